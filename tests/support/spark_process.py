"""Spark processes that tests start: a standalone cluster, a Connect server, and programs that use them.

All of it listens on 127.0.0.1, and ends with the process that runs the tests, even if that is killed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from devtools.broker import watch
from devtools.broker.node import shared_classes
from devtools.spark_home import spark_home
from tests.harness.classes import OF_SPARK
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
SPARK_HOME = spark_home()
START_LIMIT_S = 180.0

_SPARK_CLASS = str(SPARK_HOME / "bin" / "spark-class")
_ANY_PORTS = ("--port", "0", "--webui-port", "0")

# The first compiler only: none of these JVMs runs for long.
JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"


def environment() -> dict[str, str]:
    """Return the environment in which this package and this Python are installed wherever Spark runs."""
    return {
        **os.environ,
        "JDK_JAVA_OPTIONS": " ".join([JVM_OPTIONS, *shared_classes(OF_SPARK)]),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


class SparkProcess:
    """One process with a log file."""

    def __init__(self, name: str, folder: Path, command: Sequence[str], more: Mapping[str, str] | None = None) -> None:
        self._name = name
        self._log = folder / f"{name}.log"
        with self._log.open("wb") as log:
            self._watcher = subprocess.Popen(
                [sys.executable, "-I", "-S", watch.__file__, str(os.getpid()), "-", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
                env={**environment(), **(more or {})},
                start_new_session=True,
            )

    def found_in_log(self, pattern: str) -> str:
        """Wait for a line of the log, and return the first group of the pattern."""

        def found() -> re.Match[str] | None:
            # Asked first: a program may write its last line and end before the log is read.
            ended = self._watcher.poll() is not None
            match = re.search(pattern, self.log())
            assert match is not None or not ended, f"{self._name} has ended:\n{self.log()}"
            return match

        until(found, f"{pattern} in the log of {self._name}", START_LIMIT_S)
        match = found()
        assert match is not None
        return match[1]

    @property
    def ended(self) -> bool:
        """Whether it has ended on its own."""
        return self._watcher.poll() is not None

    def terminate(self) -> None:
        """Send SIGTERM to the program, and to none of the processes that it has started."""
        os.kill(self._pid(), signal.SIGTERM)

    def interrupt(self) -> None:
        """Send SIGINT to the program and to all that it has started, as a terminal does for Ctrl-C."""
        os.killpg(self._pid(), signal.SIGINT)

    def _pid(self) -> int:
        assert self._watcher.stdout is not None
        return int(self._watcher.stdout.readline())

    def finish(self, limit_s: float = START_LIMIT_S) -> str:
        """Wait until it has ended, fail if it failed, and return its log."""
        try:
            status = self._watcher.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self._name} has not ended after {limit_s:.0f} s:\n{self.log()}") from None
        assert status == 0, f"{self._name} ended with status {status}:\n{self.log()}"
        return self.log()

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def close(self) -> None:
        """Kill it, and all that it has started."""
        assert self._watcher.stdin is not None
        self._watcher.stdin.close()
        self._watcher.wait(START_LIMIT_S)
        assert self._watcher.stdout is not None
        self._watcher.stdout.close()


@contextmanager
def running(name: str, folder: Path, command: Sequence[str], more: Mapping[str, str] | None = None) -> Iterator[SparkProcess]:
    process = SparkProcess(name, folder, command, more)
    try:
        yield process
    finally:
        process.close()


@contextmanager
def standalone_cluster(folder: Path, workers: int) -> Iterator[str]:
    """Start a master and its workers, each with room for one executor with one core; give the master's address."""
    with ExitStack() as started:
        master, address = start_master(folder)
        started.callback(master.close)
        for number in range(workers):
            started.callback(start_worker(f"worker-{number}", folder, address).close)
        until(lambda: master.log().count("Registering worker") == workers, "the workers are registered", START_LIMIT_S)
        yield address


def start_master(folder: Path, options: str = "", more: Mapping[str, str] | None = None) -> tuple[SparkProcess, str]:
    """Start a master; return it with its address.

    Args:
        folder: Where its log is written.
        options: Options of its JVM.
        more: Variables of its environment.
    """
    options = f"-Dspark.master.rest.enabled=false {options}"  # the port of that is always the same
    command = [_SPARK_CLASS, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", *_ANY_PORTS]
    master = SparkProcess("master", folder, command, {"SPARK_MASTER_OPTS": options, **(more or {})})
    try:
        return master, master.found_in_log(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
    except AssertionError:
        master.close()
        raise


def start_worker(
    name: str, folder: Path, master: str, cores: int = 1, host: str = "127.0.0.1", more: Mapping[str, str] | None = None
) -> SparkProcess:
    """Start a worker with 1 GB.

    Args:
        name: Its log has this name, and so has the folder of its executors.
        folder: Where these are.
        master: The master's address.
        cores: For how many tasks it has room.
        host: The address of this machine at which it and its executors listen.
        more: Variables of its environment, which its executors have, too.
    """
    room = ["--cores", str(cores), "--memory", "1g", "--work-dir", str(folder / name)]
    command = [_SPARK_CLASS, "org.apache.spark.deploy.worker.Worker", "--host", host, *_ANY_PORTS, *room, master]
    return SparkProcess(name, folder, command, more)


@contextmanager
def connect_server(folder: Path, command: Sequence[str]) -> Iterator[str]:
    """Start a Spark Connect server; give its address."""
    listen = [
        *("--conf", "spark.connect.grpc.binding.address=127.0.0.1", "--conf", "spark.connect.grpc.binding.port=0"),
        *("--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2"),
    ]
    folders = {"SPARK_LOG_DIR": str(folder), "SPARK_PID_DIR": str(folder)}
    with running("connect", folder, [*command, *listen], folders) as server:
        yield "sc://" + server.found_in_log(r"Spark Connect server started at: (127\.0\.0\.1:\d+)")
