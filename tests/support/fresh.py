"""A new user's environment: this package and what its extras bring, and nothing of what the tests run with but PySpark."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import pyspark

from tests.harness.classes import OPTIONS
from tests.support.queries import NO_WORKER
from tests.support.spark_process import JVM_OPTIONS, ROOT, SparkProcess, running

INSTALL_LIMIT_S = 600.0
OURS = ("PYTHONPATH", "SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV", OPTIONS)
"""What the tests set for themselves, and what an activated environment sets."""


def copied_source(folder: Path) -> Path:
    """Copy the clone without what was made in it: pip builds in the folder that it installs."""
    left_out = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "*.so", "__pycache__", "spark-warehouse")
    return shutil.copytree(ROOT, folder, ignore=left_out)


def path_without_environment() -> str:
    """Return PATH as it is where no virtual environment is activated."""
    ours = Path(sys.prefix) / "bin"
    return os.pathsep.join(folder for folder in os.environ["PATH"].split(os.pathsep) if Path(folder) != ours)


class Newcomer:
    """A folder with a virtual environment in `.venv` that is not activated, where a page's commands are run."""

    def __init__(self, folder: Path, environment: Path) -> None:
        self.folder = folder
        (folder / ".venv").symlink_to(environment)

    def save(self, program: str) -> None:
        """Save a program of a page under the name in its first line."""
        name = program.splitlines()[0].removeprefix("# ")
        (self.folder / name).write_text(program, encoding="utf-8")

    def run(self, command: str) -> str:
        """Run a command of a page to its end, and return what it has printed to stdout."""
        try:
            self._finish(command)
        except AssertionError as failed:
            if NO_WORKER not in str(failed):
                raise
            self._finish(command)
        return self.printed("run")

    def _finish(self, command: str) -> None:
        with self.running(command, "run") as process:
            process.finish()

    @contextmanager
    def running(self, command: str, name: str) -> Iterator[SparkProcess]:
        """Start a command of a page. `name` is for `printed`."""
        without = [word for variable in OURS for word in ("-u", variable)]
        shell = f"exec {command} > {shlex.quote(name)}.out"
        quick = {"JDK_JAVA_OPTIONS": JVM_OPTIONS, "PATH": path_without_environment()}
        with running(name, self.folder, ["env", *without, "sh", "-c", shell], quick) as process:
            yield process

    def printed(self, name: str) -> str:
        """Return what a command has printed to stdout until now."""
        file = self.folder / f"{name}.out"
        return file.read_text(errors="replace") if file.exists() else ""


class Environment:
    """A virtual environment outside a copy of the clone, made and filled by the commands of a page."""

    def __init__(self, folder: Path) -> None:
        """Make the environment.

        Args:
            folder: an empty folder.
        """
        self._clone = copied_source(folder / "clone")
        self.folder = folder / "first" / ".venv"
        self._run([sys.executable, "-m", "venv", str(self.folder)])
        self._link_spark()

    def _link_spark(self) -> None:
        """Link the PySpark of the tests, which is large: pip finds it installed, and does not unpack it again."""
        (packages,) = self.folder.glob("lib/python3*/site-packages")
        for name in ("pyspark", "py4j"):
            distribution = metadata.distribution(name)
            files = [file for file in distribution.files or () if file.suffix != ".pyc"]
            for folder in {file.parts[0] for file in files} - {".."}:
                (packages / folder).symlink_to(str(distribution.locate_file(folder)))
            for program in (file for file in files if file.parent.name == "bin" and file.parts[0] == ".."):
                (self.folder / "bin" / program.name).symlink_to(Path(sys.prefix) / "bin" / program.name)

    def install(self, command: str) -> None:
        """Run a page's command `../first/.venv/bin/pip install ...` in the clone, for the PySpark of the tests."""
        self._run([*shlex.split(command), f"pyspark=={pyspark.__version__}"])

    def _run(self, command: Sequence[str]) -> None:
        outside = {name: value for name, value in os.environ.items() if name not in OURS} | {"PATH": path_without_environment()}
        done = subprocess.run(
            command, cwd=self._clone, env=outside, capture_output=True, text=True, check=False, timeout=INSTALL_LIMIT_S
        )
        assert done.returncode == 0, done.stdout + done.stderr
