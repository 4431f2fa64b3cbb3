"""Lets other threads run steps on the consumer's thread.

Steps and replies travel through `SimpleQueue`s, because their lock, unlike that of a Future or an Event, cannot be held by the
very thread that a signal handler interrupts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any


@dataclass(frozen=True)
class Command:
    """One step to run, with the queue that receives its outcome."""

    run: Callable[[], Any]
    reply: SimpleQueue[tuple[bool, Any]] = field(default_factory=SimpleQueue)
    """Whether `run` succeeded, and what it returned or raised."""


class Commands:
    """Passes steps to the consumer's thread. Any thread may `put` and `wake`; the consumer's thread calls the rest."""

    def __init__(self) -> None:
        """Start with an empty queue."""
        self._queue: SimpleQueue[Command | None] = SimpleQueue()

    def put(self, run: Callable[[], Any]) -> Command:
        """Queue a step, and return the command whose `reply` receives the outcome."""
        command = Command(run)
        self._queue.put(command)
        return command

    def wake(self) -> None:
        """Make a `serve` call that is waiting for a step return."""
        self._queue.put(None)

    def serve(self, timeout_s: float) -> None:
        """Wait at most `timeout_s` seconds for a step, then run every queued step."""
        try:
            command = self._queue.get(timeout=timeout_s)
            while command is not None:
                try:
                    command.reply.put((True, command.run()))
                except Exception as error:  # noqa: BLE001 -- the caller on the other thread raises it
                    command.reply.put((False, error))
                command = self._queue.get_nowait()
        except Empty:
            return

    def refuse(self, error: Exception) -> None:
        """Answer every queued step with an error."""
        while True:
            try:
                command = self._queue.get_nowait()
            except Empty:
                return
            if command is not None:
                command.reply.put((False, error))
