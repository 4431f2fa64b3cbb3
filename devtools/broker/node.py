"""Runs one node: its JVM, its ports and its folder."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from devtools.broker import watch
from devtools.broker.addresses import Identity
from devtools.broker.config import server_properties
from devtools.broker.jars import KafkaJars
from devtools.broker.ready import wait_until_answers
from devtools.broker.storage import format_log_folder, write_properties
from devtools.errors import BrokerStartError
from spark_groupsource.patience import Deadline

JVM_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Djava.awt.headless=true")
"""Makes the JVM use only its first compiler. In a broker that lives for minutes, the second one does not pay off."""

_LOG_OPTIONS = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.showThreadName=false",
)
START_LIMIT_S = 120.0
STOP_LIMIT_S = 60.0


def shared_classes(archive: Path) -> list[str]:
    """Return the JVM's options for an archive of classes, if there is one. The JVM silently ignores an archive of other jars."""
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off"] if archive.exists() else []


class Node:
    """A broker that is also a controller. Only one thread may use it at a time."""

    def __init__(
        self,
        java: str,
        jars: KafkaJars,
        identity: Identity,
        index: int,
        folder: Path,
        *,
        temporary: bool,
        jvm_options: Sequence[str] = (),
    ) -> None:
        self._java = java
        self._jars = jars
        self._identity = identity
        self._address = identity.nodes[index]
        self._folder = folder
        self._temporary = temporary
        self._jvm_options = jvm_options
        self._watcher: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._ready_by = Deadline(START_LIMIT_S)

    @property
    def id(self) -> int:
        """The node id, from 1."""
        return self._address.id

    @property
    def port(self) -> int:
        """The port for clients, on 127.0.0.1. It never changes."""
        return self._address.port

    @property
    def pid(self) -> int:
        """The process id of the running JVM, or else of the last one. 0 before the first start."""
        return self._pid

    @property
    def log(self) -> Path:
        """The node's log file."""
        return self._folder / "node.log"

    @property
    def running(self) -> bool:
        """Whether the JVM is running or paused."""
        return self._watcher is not None and self._watcher.poll() is None

    def configure(self, extra: Mapping[str, str]) -> None:
        """Write the node's settings, and format its log folders if necessary. `extra` overrides all settings."""
        self._folder.mkdir(parents=True, exist_ok=True)
        properties = server_properties(self._address, self._identity.nodes, self._folder / "data", extra)
        for folder in properties["log.dirs"].split(","):
            format_log_folder(self._jars.template, Path(folder.strip()), self.id, self._identity.cluster_id)
        write_properties(self._folder / "server.properties", properties)

    def launch(self) -> None:
        """Start the JVM and return immediately. `start` also waits until the node answers."""
        if self.running:
            return
        self._forget()
        self._pid = 0
        command = [self._java, "-Xms128m", "-Xmx512m", *JVM_OPTIONS, *_LOG_OPTIONS, *shared_classes(self._jars.classes)]
        command += self._jvm_options
        command += ["-cp", self._jars.classpath, "kafka.Kafka", str(self._folder / "server.properties")]
        remove = str(self._folder) if self._temporary else "-"
        with open(self.log, "ab") as log:
            self._watcher = subprocess.Popen(
                # -I and -S: without the user's environment, and without site-packages, which would double the start time.
                [sys.executable, "-I", "-S", watch.__file__, str(os.getpid()), remove, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self._folder,
                start_new_session=True,
            )
        self._ready_by = Deadline(START_LIMIT_S)
        line = self._watcher.stdout.readline() if self._watcher.stdout is not None else b""
        if not line:
            self._watcher.wait()
            raise self._died()
        self._pid = int(line)

    def start(self) -> None:
        """Start the node with its port and its data, and wait until it answers clients.

        Raises:
            BrokerStartError: The node crashes, or does not answer within two minutes. The message has the end of its log.
        """
        self.launch()
        self.wait_until_answers({self.id})

    def wait_until_answers(self, nodes: set[int]) -> None:
        """Wait until this node itself answers and lists `nodes` as brokers.

        Raises:
            BrokerStartError: As `start` does.
        """
        wait_until_answers(self._address, nodes, self.check_alive)

    def stop(self) -> None:
        """Send SIGTERM, and return when the JVM has ended. It is killed if it is still running after a minute."""
        self._signal(signal.SIGTERM)
        # A paused process handles the signal when it continues.
        self._signal(signal.SIGCONT)
        if self._watcher is None:
            return
        try:
            self._watcher.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
        self._forget()

    def kill(self) -> None:
        """Send SIGKILL, and return when the JVM has ended."""
        self._signal(signal.SIGKILL)
        self._forget()

    def pause(self) -> None:
        """Send SIGSTOP, and return when every thread has stopped. Connections stay open, but the node answers nothing.

        On a busy machine, the signal takes effect late. Only Linux shows the threads; elsewhere, this returns immediately.
        """
        self._signal(signal.SIGSTOP)
        for _ in Deadline(STOP_LIMIT_S).attempts(0.01):
            if all(state in "TXZ" for state in self._thread_states()):
                return

    def resume(self) -> None:
        """Send SIGCONT: the node continues."""
        self._signal(signal.SIGCONT)

    def send_stop(self) -> None:
        """Ask the JVM to stop, and return immediately, so that nodes that stop together do not wait for each other."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)

    def check_alive(self) -> None:
        """Check that the JVM is running, and was launched less than two minutes ago. After that time, it should be ready.

        Raises:
            BrokerStartError: It is not running, or has taken too long.
        """
        if not self.running:
            raise self._died()
        if self._ready_by.over:
            raise BrokerStartError(
                f"Node {self.id} does not answer on 127.0.0.1:{self.port} after {START_LIMIT_S:.0f} s. "
                f"The end of its log, {self.log}:\n{self.last_lines()}"
            )

    def last_lines(self, count: int = 25) -> str:
        """Return the end of the node's log."""
        try:
            return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-count:])
        except OSError:
            return "(no log)"

    def first_error(self) -> str:
        """Return the lines of the first error in the node's log, because later errors only repeat it."""
        lines = self.last_lines(10_000).splitlines()
        at = next((number for number, line in enumerate(lines) if " ERROR " in line), None)
        return "" if at is None else "The first error in it:\n" + "\n".join(lines[at : at + 3]) + "\n"

    def port_was_taken(self) -> bool:
        """Return whether the log reports that a port was in use."""
        return "Address already in use" in self.last_lines(400)

    def _signal(self, number: signal.Signals) -> None:
        if self.running and self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, number)

    def _thread_states(self) -> list[str]:
        """Return the state of each thread from /proc, where T means stopped."""
        states = []
        for stat in Path(f"/proc/{self._pid}/task").glob("*/stat"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                states.append(stat.read_text().rpartition(")")[2].split()[0])
        return states

    def _forget(self) -> None:
        """Wait for the watcher, which ends with the JVM, and close the pipes."""
        watcher, self._watcher = self._watcher, None
        if watcher is None:
            return
        if self._pid:
            watcher.wait()
        # If the start was interrupted, the pid may be unknown. Closing the pipe makes the watcher kill what it has started.
        for pipe in (watcher.stdin, watcher.stdout):
            if pipe is not None:
                pipe.close()
        watcher.wait()

    def _died(self) -> BrokerStartError:
        status = self._watcher.returncode if self._watcher is not None else "unknown"
        return BrokerStartError(
            f"Node {self.id} ended with status {status} while it started. {self.first_error()}"
            f"The end of its log, {self.log}:\n{self.last_lines()}"
        )
