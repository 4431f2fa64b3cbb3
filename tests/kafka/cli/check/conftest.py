"""`groupkafka check` on an options file, and its findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from devtools.broker import Cluster
from spark_groupsource.brokers import topics
from spark_groupsource.cli.main import main
from tests.support.secured import Secured

Line = tuple[str, str, str]


class Checked:
    """The output of a run of the command: lines of (level, check, text), and the summary."""

    def __init__(self, exit_code: int, output: str) -> None:
        self.exit_code = exit_code
        self.output = output
        findings, _, self.summary = output.strip().rpartition("\n\n")
        self.lines: list[Line] = [(line[:8].strip(), line[9:20].strip(), line[21:]) for line in findings.splitlines()]

    def of(self, check: str) -> list[Line]:
        return [line for line in self.lines if line[1] == check]

    @property
    def errors(self) -> list[Line]:
        return [line for line in self.lines if line[0] == "error"]

    @property
    def failed(self) -> list[str]:
        """The check of each error. The exit code and the summary say whether there is one."""
        assert self.exit_code == (1 if self.errors else 0), self.output
        assert self.summary.endswith("the query cannot run" if self.errors else "the query can run"), self.output
        return [line[1] for line in self.errors]

    def level(self, check: str) -> str:
        """The level of the only line on it."""
        (line,) = self.of(check)
        return line[0]


Check = Callable[..., Checked]


@pytest.fixture
def given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers that let nobody in, or that are not there, are waited for no longer than this."""
    monkeypatch.setattr(topics, "REQUEST_TIMEOUT_S", 4.0)


@pytest.fixture
def check(tmp_path: Path, request: pytest.FixtureRequest) -> Check:
    """Writes an options file and checks it; whatever comes out, no secret of the secured broker is in it."""

    def run(options: Mapping[str, str], *more: str) -> Checked:
        file = tmp_path / "query.properties"
        lines = (f"{name}={value}".replace("\\", "\\\\") for name, value in options.items())
        file.write_text("# a query\n" + "\n".join(lines) + "\n")
        result = CliRunner().invoke(main, ["check", "--conf", str(file), *more])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        if "secured" in request.fixturenames:
            secured: Secured = request.getfixturevalue("secured")
            assert [secret for secret in secured.secrets() if secret in result.output] == []
        return Checked(result.exit_code, result.output)

    return run


def query(topic: str, login: Mapping[str, str], **more: str) -> dict[str, str]:
    return {
        "kafka.group.id": topic,
        "subscribe": topic,
        "kafka.log_level": "0",
        **login,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


@pytest.fixture
def plain(cluster: Cluster) -> Mapping[str, str]:
    return {"kafka.bootstrap.servers": cluster.bootstrap_servers}
