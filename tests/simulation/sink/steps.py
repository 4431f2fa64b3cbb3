"""Runs the sink's own code one request at a time. Each task attempt is a thread that waits before and after each request."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar, cast

from confluent_kafka import KafkaError, KafkaException

from spark_groupsource.brokers.client_pool import ClientPool
from tests.simulation.sink.broker import Broker

T = TypeVar("T")


class Killed(BaseException):
    """The process was killed."""


class Steps(threading.Thread):
    """A process that takes one step at a time."""

    here = threading.local()

    def __init__(self, broker: Broker, work: Callable[[], object], pool: ClientPool) -> None:
        super().__init__(daemon=True)
        self.broker = broker
        """What its clients are connected to."""
        self.pool = pool
        """The clients that its worker keeps."""
        self._work = work
        self._go, self._waits = _held(), _held()
        self._killed = False
        self.result: object = None
        self.error: BaseException | None = None
        self.done = False
        self.loses = ""
        """What is lost next: a `request`, or the `answer` to one."""
        self.is_cut = False
        """Whether Spark has cancelled the task: its input ends."""
        self.overlooks = False
        """Whether the groups that it looks for are moving to another coordinator."""
        self.late_s = 0.0
        """How much time has passed for it."""
        self.start()
        self._waits.acquire()

    def run(self) -> None:
        Steps.here.steps = self
        try:
            self._pause()
            self.result = self._work()
        except BaseException as failed:  # noqa: BLE001 -- the main thread looks at it
            self.error = failed
        self.done = True
        self._waits.release()

    def step(self) -> None:
        """Let the process continue to the next request or response."""
        self._go.release()
        self._waits.acquire()

    def kill(self) -> None:
        """Kill the process where it is. Nothing that it does afterwards has an effect."""
        self._killed = True
        while not self.done:
            self.step()

    def _pause(self) -> None:
        if self._killed:
            raise Killed
        self._waits.release()
        self._go.acquire()
        if self._killed:
            raise Killed


def _held() -> threading.Lock:
    """Return a lock for taking turns: one thread releases it, and another waits for that. A semaphore costs more."""
    lock = threading.Lock()
    lock.acquire()
    return lock


def request(effect: Callable[[], T]) -> T:
    """Send a request from the current process, which may die or wait before the request or the response arrives."""
    process: Steps = Steps.here.steps
    process._pause()
    answer = None if process.loses == "request" else effect()
    process._pause()
    if process.loses:
        process.loses = ""
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer", retriable=True))
    return cast("T", answer)


def clock() -> float:
    """Return the current process's time, which passes only when something is too late."""
    process: Steps = Steps.here.steps
    return process.late_s
