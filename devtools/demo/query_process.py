"""Controls the process of a query for the story: it starts the process, sends commands, and reads its events and its log."""

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

_ROOT = Path(__file__).parents[2]
"""The folder that contains `devtools`, which is not installed."""


class QueryProcess:
    """One run of `demo.query`, or of a module with the same protocol. All runs append to one log.

    The process has its own session, so Ctrl-C in the terminal reaches only the demo, and `close` can kill everything that the
    process has started.
    """

    def __init__(self, name: str, folder: Path, module: str = "devtools.demo.query") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / "tmp"
        temporary.mkdir(exist_ok=True)
        self.log = folder / "query.log"
        self._events: SimpleQueue[QueryEvent] = SimpleQueue()
        self._ended = threading.Event()
        path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, name, str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
                env={**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": path},
                start_new_session=True,
            )
        threading.Thread(target=self._listen, args=(self._process.stdout,), name=f"events of {name}", daemon=True).start()

    @property
    def ended(self) -> bool:
        """Whether the process has closed its output, which it does when it ends."""
        return self._ended.is_set()

    def begin(self, options: Mapping[str, Any]) -> None:
        """Start the query with these options of the source, as soon as Spark is up."""
        assert self._process.stdin is not None  # noqa: S101 -- it is a pipe
        # If the process has already ended, `ended` shows that, and its log has the reason.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(dict(options)).encode() + b"\n")
            self._process.stdin.flush()

    def events(self) -> list[QueryEvent]:
        """Return the events since the last call."""
        events = []
        while not self._events.empty():
            events.append(self._events.get())
        return events

    def stop(self) -> None:
        """Tell the process to stop its query after the running micro-batch, and to end. Return immediately."""
        self._process.terminate()

    def interrupt(self) -> None:
        """Tell the process to interrupt its query, and to end. Return immediately."""
        self._process.send_signal(signal.SIGUSR1)

    def close(self) -> None:
        """Kill the process and everything that it has started."""
        # Wait for the process last: until then no other process can get its id, which is also the group's id.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()

    def last_lines(self, count: int = 20) -> str:
        """Return the end of the log."""
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-count:])

    def _listen(self, stdout: IO[bytes]) -> None:
        with stdout:
            for line in stdout:
                self._events.put(json.loads(line))
        self._ended.set()
