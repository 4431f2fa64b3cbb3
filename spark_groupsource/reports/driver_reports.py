"""What the driver's program tells the runner on the same host: which plan is durable, and that the query is being stopped.

Spark posts the progress of a micro-batch when its commit log has the micro-batch. A listener in the driver's program
(spark/durable_listener.py) then writes a file that is named after the driver's process and the stream. The runner, a child of
that process, looks at the file. It believes one thing of it: which plan of that stream is durable. The file is in a folder that
only this user may enter, and is always replaced whole.

A second file asks the runner to plan nothing new (spark/graceful_stop.py). Its text is the request's own. A runner that was asked
before it began to leave answers with this text in a third file, when it has left the group with nothing claimed. Before its first
plan a runner removes both files, which may be of a run that was killed.

Another driver's reports are not looked at: a copy of the checkpoint has the same stream, and plans of its own.
"""

from __future__ import annotations

import re
import secrets
from contextlib import suppress
from pathlib import Path

from spark_groupsource.errors import ReportsUnavailable
from spark_groupsource.handoff.commit_record import STREAM_NAME
from spark_groupsource.reports.private_folder import PrivateFolder

_LONGEST = 200

_STOP = ".stop"
"""The end of a request's name. No stream's name has a dot."""

_LEFT = ".left"
"""The end of an answer's name."""


class DriverReports:
    """The reports of one driver. Any process of this user on this host may write and read them."""

    def __init__(self, driver: int, folder: Path | None = None) -> None:
        """Name the folder. It is made by the first report.

        Args:
            driver: the process id of the driver's JVM.
            folder: see `PrivateFolder`.
        """
        self._driver = driver
        self._folder = PrivateFolder(folder)

    @property
    def folder(self) -> Path:
        """Where the files are.

        Raises:
            ReportsUnavailable: there is no folder for temporary files.
        """
        return self._folder.folder

    def write(self, stream: str, plan: int) -> None:
        """Report that `plan` of `stream` is in Spark's commit log.

        Args:
            stream: the stream's name, as in the offsets of Spark's log.
            plan: the plan's number, from 0.

        Raises:
            ReportsUnavailable: the folder is another user's, or cannot be written to.
        """
        self._folder.replace(self._name(stream), f'{{"v":1,"stream":"{stream}","plan":{plan}}}')

    def read(self, stream: str) -> int | None:
        """Return the newest plan of the stream that is reported as durable; `None` if there is no report.

        Raises:
            ReportsUnavailable: the folder is another user's, or cannot be read.
        """
        content = self._folder.content(self._name(stream), _LONGEST)
        if content is None:
            return None
        found = re.fullmatch(rf'\{{"v":1,"stream":"{re.escape(stream)}","plan":(0|[1-9][0-9]{{0,17}})\}}'.encode(), content)
        return int(found[1]) if found else None

    def discard(self, stream: str) -> None:
        """Remove the stream's report, if there is one: what it says is of an earlier plan."""
        self._remove(stream)

    def ask_to_stop(self, stream: str) -> bytes:
        """Ask the runner to plan nothing new, and return the request, which differs from all others.

        Raises:
            ReportsUnavailable: the folder is another user's, or cannot be written to.
        """
        request = secrets.token_hex(8)
        self._folder.replace(self._name(stream) + _STOP, request)
        return request.encode()

    def asked_to_stop(self, stream: str) -> bytes | None:
        """Return the request to plan nothing new, if there is one. A folder that cannot be read has none."""
        return self._request(stream, _STOP)

    def answer_stop(self, stream: str, request: bytes) -> None:
        """Answer a request, unless there is another one by now: nothing stays claimed. Safe in a signal handler."""
        if self._request(stream, _STOP) == request:
            # Not by renaming the request: one for the next run, written in between, would be taken for answered. If that one is
            # removed here, the program repeats it.
            with suppress(ReportsUnavailable):
                self._folder.replace(self._name(stream) + _LEFT, request.decode())
            self._remove(stream, _STOP)

    def is_answered(self, stream: str, request: bytes) -> bool:
        """Return whether the runner has answered this request."""
        return self._request(stream, _LEFT) == request

    def end_stop(self, stream: str) -> None:
        """Remove the request to plan nothing new, and the answer, if there are any."""
        self._remove(stream, _STOP)
        self._remove(stream, _LEFT)

    def _request(self, stream: str, end: str) -> bytes | None:
        try:
            return self._folder.content(self._name(stream) + end, _LONGEST)
        except ReportsUnavailable:
            return None

    def _remove(self, stream: str, end: str = "") -> None:
        with suppress(OSError, ReportsUnavailable):
            (self.folder / (self._name(stream) + end)).unlink()

    def _name(self, stream: str) -> str:
        if not re.fullmatch(STREAM_NAME, stream):
            raise ReportsUnavailable(f"{stream[:80]!r} is not the name of a stream")
        return f"{self._driver}-{stream}"
