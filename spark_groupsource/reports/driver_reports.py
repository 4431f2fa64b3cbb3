"""Exchanges files between the driver's program and the runner, to report durable plans and to stop queries gracefully.

A stream has up to three files. Each is named after the driver's process and the stream, because another driver may run on a copy
of the checkpoint, with the same stream but its own plans.

1. The report. Spark posts a micro-batch's progress once its commit log has the micro-batch. A listener in the driver's program
   (spark/durable_listener.py) then writes the plan's number to this file. The runner, a child process of the driver, reads it.
2. The request (`.stop`). The program asks the runner to plan nothing new (spark/graceful_stop.py). The request's text is random.
   Before its first plan, a runner removes any request and answer that it finds, because they may be from a run that was killed.
3. The answer (`.answer`). It repeats the request's text, and reports how far the runner has got: it has returned an empty plan to
   Spark, or has left the group, with or without claims.

Only this user can access the folder, and files are always replaced as a whole.
"""

from __future__ import annotations

import re
import secrets
from contextlib import suppress
from enum import Enum
from pathlib import Path

from spark_groupsource.errors import ReportsUnavailable
from spark_groupsource.handoff.commit_record import STREAM_NAME
from spark_groupsource.reports.private_folder import PrivateFolder

_LONGEST = 200

_STOP = ".stop"
"""The suffix of a request's file name. Stream names do not contain dots."""

_ANSWER = ".answer"
"""The suffix of an answer's file name."""


class Answer(Enum):
    """The runner's answer to a request to plan nothing new."""

    PLANS_NOTHING = "plans nothing new, and has confirmed all finished micro-batches"
    LEFT = "has left the group, and nothing is claimed"
    LEFT_WITH_CLAIMS = "has left the group, and something may be claimed"


class DriverReports:
    """One driver's reports. Any of this user's processes on this host may write and read them."""

    def __init__(self, driver: int, folder: Path | None = None) -> None:
        """Store the folder's path. The first report creates the folder.

        Args:
            driver: the process id of the driver's JVM.
            folder: see `PrivateFolder`.
        """
        self._driver = driver
        self._folder = PrivateFolder(folder)

    @property
    def folder(self) -> Path:
        """The folder that contains the files.

        Raises:
            ReportsUnavailable: there is no folder for temporary files.
        """
        return self._folder.folder

    def write(self, stream: str, plan: int) -> None:
        """Report that `plan` of `stream` is in Spark's commit log.

        Args:
            stream: the stream's name, as in the offsets in Spark's log.
            plan: the plan's number, from 0.

        Raises:
            ReportsUnavailable: the folder is another user's, or cannot be written to.
        """
        self._folder.replace(self._name(stream), f'{{"v":1,"stream":"{stream}","plan":{plan}}}')

    def read(self, stream: str) -> int | None:
        """Return the newest plan that was reported as durable for the stream, or `None` if there is no report.

        Raises:
            ReportsUnavailable: the folder is another user's, or cannot be read.
        """
        content = self._folder.content(self._name(stream), _LONGEST)
        if content is None:
            return None
        found = re.fullmatch(rf'\{{"v":1,"stream":"{re.escape(stream)}","plan":(0|[1-9][0-9]{{0,17}})\}}'.encode(), content)
        return int(found[1]) if found else None

    def discard(self, stream: str) -> None:
        """Remove the stream's report, if there is one, because it is about an earlier plan."""
        self._remove(stream)

    def ask_to_stop(self, stream: str) -> bytes:
        """Ask the runner to plan nothing new, and return the request's text, which is unique.

        Raises:
            ReportsUnavailable: the folder is another user's, or cannot be written to.
        """
        request = secrets.token_hex(8)
        self._folder.replace(self._name(stream) + _STOP, request)
        return request.encode()

    def asked_to_stop(self, stream: str) -> bytes | None:
        """Return the request to plan nothing new, or `None` if there is none or the folder cannot be read."""
        return self._content(stream, _STOP)

    def answer_stop(self, stream: str, request: bytes, answer: Answer) -> None:
        """Answer a request, unless there is a newer one. Safe in a signal handler."""
        if self._content(stream, _STOP) != request:
            return
        # Write a second file rather than renaming the request, because a request for the next run could arrive in between and be
        # renamed instead. If that request is removed below, the program repeats it.
        with suppress(ReportsUnavailable):
            self._folder.replace(self._name(stream) + _ANSWER, _text(request, answer).decode())
        if answer is not Answer.PLANS_NOTHING:
            self._remove(stream, _STOP)

    def answer(self, stream: str, request: bytes) -> Answer | None:
        """Return the runner's newest answer to this request, or `None` if it has not answered yet."""
        content = self._content(stream, _ANSWER)
        return next((answer for answer in Answer if content == _text(request, answer)), None)

    def end_stop(self, stream: str) -> None:
        """Remove the request to plan nothing new, and the answer, if they exist."""
        self._remove(stream, _STOP)
        self._remove(stream, _ANSWER)

    def _content(self, stream: str, end: str) -> bytes | None:
        try:
            return self._folder.content(self._name(stream) + end, _LONGEST)
        except ReportsUnavailable:
            return None

    def _remove(self, stream: str, end: str = "") -> None:
        with suppress(OSError, ReportsUnavailable):
            (self.folder / (self._name(stream) + end)).unlink()

    def _name(self, stream: str) -> str:
        if not re.fullmatch(STREAM_NAME, stream):
            raise ReportsUnavailable(f"{stream[:80]!r} is not a valid stream name")
        return f"{self._driver}-{stream}"


def _text(request: bytes, answer: Answer) -> bytes:
    return request + b" " + answer.value.encode()
