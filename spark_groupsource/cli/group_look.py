"""Looks at groups by a process of their own, so that a crash of librdkafka in one of them ends nothing else.

librdkafka aborts its process when a coordinator's connection breaks at the wrong moment while an AdminClient asks it for a
group (librdkafka #4605, and as of 2.16 not mended). Whoever looks at a group again and again meets that moment in the end.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.brokers.group_view import GroupView
from spark_groupsource.errors import BrokerUnavailable, GroupKafkaError, GroupNotFound
from spark_groupsource.patience import Deadline

if TYPE_CHECKING:
    from typing_extensions import Self

Question = Literal["describe", "operations"]

ATTEMPTS = 3
"""How often a question is asked before the process that dies of it is told of."""

ANSWER_LIMIT_S = 40.0
"""For one question, all its attempts together: the requests of one have limits of their own, which are over by then."""


class GroupLook:
    """A GroupAdmin in a child process that is started when it is needed. Not to be used by two threads at once."""

    def __init__(self, client_settings: Mapping[str, str]) -> None:
        """
        Args:
            client_settings: as GroupAdmin takes them. They reach the child through a pipe.
        """
        # Spawned: librdkafka's threads do not outlive a fork, and a forked client hangs.
        self._context = multiprocessing.get_context("spawn")
        self._settings = dict(client_settings)
        self._child: SpawnProcess | None = None
        self._pipe: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The child's process id, while there is one."""
        return None if self._child is None else self._child.pid

    def describe(self, group: str) -> GroupView:
        """As `GroupAdmin.describe`.

        Raises:
            what that raises, what making its client raises, and BrokerUnavailable when the child dies of it three times, or
            does not answer within ANSWER_LIMIT_S.
        """
        view: GroupView = self._answer("describe", group)
        return view

    def operations(self, group: str) -> frozenset[str] | None:
        """As `GroupAdmin.operations`, and raises as `describe` does here."""
        allowed: frozenset[str] | None = self._answer("operations", group)
        return allowed

    def close(self) -> None:
        """End the child; a later question starts another."""
        if self._pipe is not None:
            self._pipe.close()
        if self._child is not None:
            self._child.kill()  # it holds nothing that would have to be given back
            self._child.join()
        self._pipe = self._child = None

    def _answer(self, question: Question, group: str) -> Any:
        deadline = Deadline(ANSWER_LIMIT_S)
        for _ in range(ATTEMPTS):
            try:
                pipe = self._connected()
                pipe.send((question, group))
                if not pipe.poll(deadline.left):
                    break
                answer = pipe.recv()
            except (EOFError, OSError):  # it died
                self.close()
                continue
            except BaseException:
                self.close()  # interrupted: its answer must not be taken for the next question's
                raise
            if isinstance(answer, GroupKafkaError):
                if not isinstance(answer, GroupNotFound):
                    self.close()  # a client whose broker went away may wait for ever, also when the broker is back
                raise answer
            return answer
        self.close()
        raise BrokerUnavailable(
            f"Looking at group {group}: the Kafka client crashed, or did not answer within {ANSWER_LIMIT_S:.0f} s (librdkafka "
            "does that when the coordinator's connection breaks while it asks). Try again when the brokers are back."
        )

    def _connected(self) -> Connection:
        if self._pipe is None:
            ours, theirs = self._context.Pipe()
            child = self._context.Process(target=_serve, args=(theirs, self._settings), name="groupkafka-look", daemon=True)
            with theirs, _no_interrupts():
                child.start()
                self._child, self._pipe = child, ours  # only now: what was not started cannot be ended
        return self._pipe


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Ctrl-C is for the parent: a child that is started in here never gets it."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(pipe: Connection, settings: Mapping[str, str]) -> None:
    """The child: answers until its parent closes the pipe, or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with open(os.devnull, "w") as nothing:  # what an abort says would stand in the middle of the parent's terminal
        os.dup2(nothing.fileno(), 2)
    describer: GroupAdmin | None = None
    while True:
        try:
            question, group = pipe.recv()
        except EOFError:
            return
        try:
            describer = describer or GroupAdmin(settings)
            answer = describer.operations(group) if question == "operations" else describer.describe(group)
        except GroupKafkaError as failed:
            pipe.send(failed)
        else:
            pipe.send(answer)
