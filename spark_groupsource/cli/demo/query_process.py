"""A query's process, as the story sees it: commands in, events out, a log, and an end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

QueryEvent = Mapping[str, Any]


class QueryProcess:
    """One run of `demo.query`, or of a module that is spoken to like it. Its log is appended to, run after run.

    It leads a session of its own, so that Ctrl-C in the terminal reaches the demo alone, and `close` can end all that it
    has started.
    """

    def __init__(self, name: str, folder: Path, module: str = "spark_groupsource.cli.demo.query") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / "tmp"
        temporary.mkdir(exist_ok=True)
        self.log = folder / "query.log"
        self._events: SimpleQueue[QueryEvent] = SimpleQueue()
        self._ended = threading.Event()
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, name, str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
                env={**os.environ, "TMPDIR": str(temporary)},
                start_new_session=True,
            )
        threading.Thread(target=self._listen, args=(self._process.stdout,), name=f"events of {name}", daemon=True).start()

    @property
    def ended(self) -> bool:
        """Whether the process has closed its output, which it does when it ends."""
        return self._ended.is_set()

    def begin(self, options: Mapping[str, Any]) -> None:
        """Start the query, as soon as Spark is up, with these options of the source."""
        assert self._process.stdin is not None  # noqa: S101 -- it is a pipe
        # A process that has ended already is noticed by `ended`, and its log tells more.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(dict(options)).encode() + b"\n")
            self._process.stdin.flush()

    def events(self) -> list[QueryEvent]:
        """What it has told since the last call."""
        told = []
        while not self._events.empty():
            told.append(self._events.get())
        return told

    def stop(self) -> None:
        """Send SIGTERM: the process stops its query and ends. Returns at once."""
        self._process.terminate()

    def close(self) -> None:
        """Kill what is left of the process and of all that it has started."""
        # The process itself is waited for last: until then its id, which is the group's too, belongs to nobody else.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()

    def last_lines(self, count: int = 20) -> str:
        """The end of the log."""
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-count:])

    def _listen(self, stdout: IO[bytes]) -> None:
        with stdout:
            for line in stdout:
                self._events.put(json.loads(line))
        self._ended.set()
