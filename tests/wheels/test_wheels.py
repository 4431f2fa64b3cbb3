"""The wheels with the C, where no compiler is: on this machine, on an emulated processor, and with musl.

`make test-wheels` builds them first.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import venv
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from devtools.broker import Cluster
from spark_groupsource.version import __version__
from tests.conftest import MakeTopic, Produce
from tests.wheels import debian
from tools.matrix import PROJECT
from tools.release import NOTES, SBOM, SUMS
from tools.wheels import DIST, LIBRARY, PLATFORMS

pytestmark = pytest.mark.wheels

ZIG = [str(PROJECT / ".venv-release" / "bin" / "python"), "-m", "ziglang", "cc"]
THIS = platform.machine()
TESTED_WITH = ("hypothesis", "pytest", "pytest-timeout")
# An emulated processor is some ten times slower.
LIMIT_S = 1200.0

READ = """
import platform, sys
from spark_groupsource.fetch.arrow_schema import arrow_schema
from spark_groupsource.fetch.choice import fetch
from spark_groupsource.fetch.contract import BUFFER_BYTES, FetchRange, FetchSettings
from spark_groupsource.native.libraries import why_unavailable
from spark_groupsource.options.client_settings import consumer_settings

servers, topic = sys.argv[1:]
unavailable = why_unavailable()
print(platform.machine(), "native" if unavailable is None else "pure Python", unavailable)
client = consumer_settings({"bootstrap.servers": servers, "group.id": "wheels"}, BUFFER_BYTES)
for batch in fetch(FetchRange(topic, 0, 0, 2), FetchSettings(client, arrow_schema(include_headers=False))):
    print(batch.column("value").to_pylist())
"""

UNIT_TESTS = """
import sys
import hypothesis, pytest

hypothesis.settings.register_profile("wheels", max_examples=int(sys.argv[1]))
hypothesis.settings.load_profile("wheels")
sys.exit(pytest.main(sys.argv[2:]))
"""


def wheel(tag: str) -> Path:
    (found,) = DIST.glob(f"*-py3-none-{tag}.whl")
    return found


def run(argv: Sequence[str], folder: Path, environment: Mapping[str, str]) -> str:
    """In an environment of which no program is known, so no compiler either."""
    done = subprocess.run(
        argv, cwd=folder, env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@dataclass(frozen=True)
class Installed:
    """A Python with the wheel of its platform and what the native reader's tests need."""

    machine: str
    folder: Path
    python: Sequence[str]
    path: Sequence[Path]

    def run(self, *arguments: str) -> str:
        environment = {
            "CC": "false",
            "HOME": str(self.folder),
            "PATH": str(self.folder / "bin"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": os.pathsep.join(map(str, self.path)),
        }
        return run([*self.python, *arguments], self.folder, environment)


def here(folder: Path) -> Installed:
    kind = "macosx" if sys.platform == "darwin" else "manylinux"
    venv.create(folder)
    python = str(folder / "bin" / "python")
    pip(wheel(f"{kind}_*_{THIS}"), python)
    return Installed(THIS, folder, [python], ())


def emulated(folder: Path, machine: str) -> Installed:
    if machine == THIS or sys.platform != "linux":
        pytest.skip(f"this is {THIS} with {sys.platform}: Linux on another processor than {machine} emulates it")
    folder.mkdir()
    command = debian.emulator(machine, folder / "root")
    root = debian.unpack(folder, machine, "python3-minimal", "libpython3-stdlib", "libstdc++6")
    python = (root / "usr" / "bin" / "python3").resolve()
    version = python.name.removeprefix("python")
    wanted = ["--target", str(folder / "packages"), "--only-binary=:all:", "--implementation=cp", f"--python-version={version}"]
    wanted += [f"--platform=manylinux_{glibc}_{machine}" for glibc in ("2_28", "2_17")]
    pip(wheel(f"manylinux_*_{machine}"), sys.executable, *wanted)
    return Installed(machine, folder, [*command, str(python)], (folder / "packages",))


def pip(file: Path, python: str, *options: str) -> None:
    first = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*first, *options, str(file), *TESTED_WITH], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module", params=["here", "emulated aarch64"])
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("wheels") / "environment"
    return here(folder) if request.param == "here" else emulated(folder, "aarch64")


def test_a_wheel_reads_natively_where_no_compiler_is(
    installed: Installed, cluster: Cluster, topic: MakeTopic, produce: Produce
) -> None:
    name = topic()
    produce(name, [(None, "first"), (None, "second")])
    said = installed.run("-c", READ, cluster.bootstrap_servers, name)
    assert said.splitlines() == [f"{installed.machine} native None", "[b'first', b'second']"]


def test_the_native_readers_tests_pass_with_the_wheels_library(installed: Installed) -> None:
    # The project is the last place where modules are looked for: the package is the wheel's.
    options = ["--import-mode=append", "-p", "no:cacheprovider", "-c", str(PROJECT / "pyproject.toml"), "--rootdir", str(PROJECT)]
    options += ["-W", "ignore:Module already imported"]
    examples = "100" if installed.machine == THIS else "20"
    files = ("native/test_libraries.py", "fetch/test_native_consumer.py", "fetch/test_native_arrow.py")
    said = installed.run("-c", UNIT_TESTS, examples, *options, *(str(PROJECT / "tests/unit" / file) for file in files))
    assert " passed" in said
    assert "skipped" not in said


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_library_for_musl_is_loaded_and_takes_in_messages(machine: str, tmp_path: Path) -> None:
    command = [] if machine == THIS else debian.emulator(machine, tmp_path / "root")
    loader = debian.unpack(tmp_path, machine, "musl") / "lib" / f"ld-musl-{machine}.so.1"
    zipfile.ZipFile(wheel(f"musllinux_*_{machine}")).extract(LIBRARY, tmp_path)
    program = tmp_path / "played"
    source = [str(Path(__file__).with_name("played.c")), "-I", str(PROJECT / "spark_groupsource" / "native")]
    # Not linked statically, so that it can load a library.
    dynamic = ["-target", f"{machine}-linux-musl", "-dynamic", "-O1", "-Wall", "-Wextra", "-Werror"]
    run([*ZIG, *dynamic, *source, "-o", str(program)], tmp_path, {**os.environ})
    assert run([*command, str(loader), str(program), str(tmp_path / LIBRARY)], tmp_path, {}) == "passed\n"


def test_dist_has_a_wheel_for_each_platform_and_what_a_release_needs() -> None:
    tags = {file.stem.split("-")[-1] for file in DIST.glob("*.whl")}
    assert tags == {"any"} | {platform.tag for platform in PLATFORMS}
    for file in DIST.glob("*.whl"):
        names = set(zipfile.ZipFile(file).namelist())
        assert names >= {"pyspark_groupkafka.py", "spark_groupsource/py.typed"}, file
        assert (LIBRARY in names) == (not file.stem.endswith("-any")), file
    listed = {line.split()[1] for line in (DIST / SUMS).read_text().splitlines()}
    assert listed == {file.name for file in DIST.iterdir()} - {SUMS}
    assert subprocess.run(["sha256sum", "--check", "--quiet", SUMS], cwd=DIST, check=False).returncode == 0
    assert "### Added" in (DIST / NOTES).read_text()
    sbom = json.loads((DIST / SBOM).read_text())
    assert (sbom["metadata"]["component"]["name"], sbom["metadata"]["component"]["version"]) == ("spark-groupsource", __version__)
    assert {"confluent-kafka", "pyarrow", "pydantic"} <= {part["name"] for part in sbom["components"]}
