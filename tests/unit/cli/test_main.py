"""`groupkafka`: a look at its help does not wait for what they need."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from spark_groupsource.cli import describe
from spark_groupsource.cli.main import COMMANDS, main
from spark_groupsource.errors import GroupKafkaError
from spark_groupsource.version import __version__

HEAVY = ("confluent_kafka", "pyarrow", "pydantic", "pyspark", "rich")


def test_the_help_imports_nothing_that_takes_long() -> None:
    look = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from spark_groupsource.cli.main import main\n"
        "print(CliRunner().invoke(main, ['--help']).output)\n"
        f"print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True).stdout
    assert all(f"  {name} " in shown for name in COMMANDS)
    assert shown.endswith("[]\n")


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (["clams"], "There is no command 'clams'. Did you mean 'claims'?"),
        (["reset-offset", "--group", "g"], "Did you mean 'reset-offsets'?"),
        (["claims", "--grop", "g"], "Did you mean"),
        (["quite-different"], "No such command"),
    ],
)
def test_a_misspelt_command_or_option_gets_a_suggestion(arguments: list[str], suggestion: str) -> None:
    refused = CliRunner().invoke(main, arguments)
    assert refused.exit_code == 2
    assert suggestion in refused.output


def test_an_error_that_names_what_a_client_chose_does_not_steer_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise GroupKafkaError("reading the commits of group a\x1b[2J\nWhat to do")

    monkeypatch.setattr(describe, "GroupAdminProcess", refuse)
    refused = CliRunner().invoke(main, ["describe", "--bootstrap-server", "127.0.0.1:1", "--group", "g"])
    assert refused.exit_code == 1
    assert refused.output == "Error: reading the commits of group a\\x1b[2J\nWhat to do\n"


def test_every_command_has_help() -> None:
    for command in COMMANDS:
        shown = CliRunner().invoke(main, [command, "--help"])
        assert shown.exit_code == 0
        assert len(shown.output) > 200
    assert CliRunner().invoke(main, ["--version"]).output == f"groupkafka, version {__version__}\n"
