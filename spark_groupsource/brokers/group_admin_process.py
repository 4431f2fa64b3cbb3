"""Runs a GroupAdmin in a child process, so that a librdkafka crash takes down only that process.

librdkafka's AdminClient aborts its process if the connection to a coordinator breaks at a certain point during a group request
(librdkafka #4605, not fixed as of 2.16). A program that sends many such requests will hit that point sooner or later.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Concatenate, ParamSpec, TypeVar

from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.errors import BrokerError, BrokerUnavailable, GroupKafkaError, GroupNotFound, NotAConsumerGroup
from spark_groupsource.patience import Deadline

ANSWER_LIMIT_S = 40.0
"""The time limit for one question to the child process, including all attempts. Each request has its own, shorter limit."""

P = ParamSpec("P")
T = TypeVar("T")

_PROGRAM = """import sys
sys.path[:] = filter(None, sys.path)  # without the working directory, which may contain anything
from spark_groupsource.brokers.group_admin_process import serve
serve(int(sys.argv[1]))
"""
"""The child's program. multiprocessing would first import the parent's program, which may be large."""

ATTEMPTS = 3
"""How many times the same question may crash the child process before an error is raised."""


_DESCRIBING = "Describing group {!r}"


def _asked(method: Callable[Concatenate[GroupAdmin, P], T], doing: str) -> Callable[Concatenate[GroupAdminProcess, P], T]:
    """Return a `GroupAdminProcess` method that calls this GroupAdmin method in the child process.

    Besides the method's own errors, it raises BrokerUnavailable if the child died three times, or did not answer within
    ANSWER_LIMIT_S, and any error from creating the `GroupAdmin`.

    Args:
        method: The method. Its arguments and its result are pickled.
        doing: What the method does, for error messages, with a placeholder for the first argument.
    """

    @functools.wraps(method)
    def ask(self: GroupAdminProcess, /, *about: P.args, **options: P.kwargs) -> T:
        answer: T = self._answer(method.__name__, about, options, doing.format(*about))
        return answer

    return ask


class GroupAdminProcess(AbstractContextManager["GroupAdminProcess"]):
    """A GroupAdmin in a child process that starts on demand. Only one thread may use it at a time."""

    def __init__(self, client_settings: Mapping[str, str]) -> None:
        """Store the settings. The child process starts with the first question.

        Args:
            client_settings: as for `GroupAdmin`. They are sent to the child through a pipe.
        """
        self._settings = dict(client_settings)
        self._child: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._end_child: Callable[[], object] | None = None

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The child's process id, or `None` if it is not running."""
        return None if self._child is None else self._child.pid

    describe = _asked(GroupAdmin.describe, _DESCRIBING)
    refuse_other_kinds = _asked(GroupAdmin.refuse_other_kinds, _DESCRIBING)
    members = _asked(GroupAdmin.members, _DESCRIBING)
    member = _asked(GroupAdmin.member, _DESCRIBING)
    operations = _asked(GroupAdmin.operations, _DESCRIBING)
    groups = _asked(GroupAdmin.groups, "Listing the groups *{}*")
    offsets = _asked(GroupAdmin.offsets, "Reading the commits of group {}")

    def close(self) -> None:
        """Kill the child process. A later question starts a new one."""
        if self._pipe is not None:
            self._pipe.close()
        if self._end_child is not None:
            self._end_child()
        self._pipe = self._child = self._end_child = None

    def _answer(self, method: str, about: tuple[Any, ...], options: dict[str, Any], doing: str) -> Any:
        deadline = Deadline(ANSWER_LIMIT_S)
        for _ in range(ATTEMPTS):
            try:
                pipe = self._connected()
                pipe.send((method, about, options, doing))
                if not pipe.poll(deadline.left):
                    break
                answer = pipe.recv()
            except (EOFError, OSError):  # the child died
                self.close()
                continue
            except BaseException:
                self.close()  # after an interruption, so that a late answer is not taken for the answer to the next question
                raise
            if isinstance(answer, GroupKafkaError):
                if not isinstance(answer, GroupNotFound | NotAConsumerGroup):
                    self.close()  # a client that lost its broker may wait forever, even when the broker is back
                raise answer
            return answer
        self.close()
        raise BrokerUnavailable(
            f"{doing}: the Kafka client crashed, or did not answer within {ANSWER_LIMIT_S:.0f} s. librdkafka crashes if the "
            "connection to the coordinator breaks during the request. Try again when the brokers are up."
        )

    def _connected(self) -> Connection:
        if self._pipe is None:
            if not sys.executable:
                raise BrokerUnavailable("The group cannot be described here, because Python's sys.executable is not set.")
            ours, theirs = Pipe()
            with theirs:
                # Do not fork, because a forked child has none of librdkafka's threads, so its client would hang.
                self._child = subprocess.Popen(
                    [sys.executable, "-c", _PROGRAM, str(theirs.fileno())],
                    pass_fds=(theirs.fileno(),),
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,  # an abort must not print into the parent's terminal
                    start_new_session=True,  # a Ctrl-C in that terminal is meant for the parent
                )
                self._pipe = ours
                # Kill the child even if this object is dropped without being closed, as when its query rejoins the group.
                self._end_child = finalizer = weakref.finalize(self, _end, self._child)
                finalizer.atexit = False  # a fork of this process must not kill the child, which exits when the pipe is closed
            ours.send(self._settings)
        return self._pipe


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()  # the child holds nothing that it must release
    child.wait()


def serve(descriptor: int) -> None:
    """Answer questions in the child until the parent closes the pipe or exits. The parent first sends the settings."""
    pipe = Connection(descriptor)
    settings: Mapping[str, str] = {}
    admin: GroupAdmin | None = None
    while True:
        try:
            settings = settings or pipe.recv()
            method, about, options, doing = pipe.recv()
        except EOFError:
            return
        try:
            admin = admin or GroupAdmin(settings)
            answer = getattr(admin, method)(*about, **options)
        except GroupKafkaError as failed:
            pipe.send(failed)
        except Exception as failed:  # noqa: BLE001 -- without an answer, the parent would report a librdkafka crash
            pipe.send(BrokerError(f"{doing} failed: {type(failed).__name__}: {failed}"))
        else:
            pipe.send(answer)
