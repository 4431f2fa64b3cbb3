"""Steps that other threads have the consumer's thread run.

A `SimpleQueue` carries each step and its reply. Its lock, unlike that of a Future or an Event, cannot be held by the very thread
that a signal handler interrupts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any


@dataclass(frozen=True)
class Command:
    """One step, and where its outcome arrives."""

    run: Callable[[], Any]
    reply: SimpleQueue[tuple[bool, Any]] = field(default_factory=SimpleQueue)
    """Whether `run` succeeded, and what it returned or raised."""


class Commands:
    """The queue between the threads: any thread may `put` and `wake`, the consumer's thread does the rest."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Command | None] = SimpleQueue()

    def put(self, run: Callable[[], Any]) -> Command:
        """Queue a step, and return it with its reply to come."""
        command = Command(run)
        self._queue.put(command)
        return command

    def wake(self) -> None:
        """End a `serve` that waits."""
        self._queue.put(None)

    def serve(self, timeout_s: float) -> None:
        """Run the steps that are queued; wait at most `timeout_s` seconds for the first."""
        try:
            command = self._queue.get(timeout=timeout_s)
            while command is not None:
                try:
                    command.reply.put((True, command.run()))
                except Exception as error:  # noqa: BLE001 -- it is the caller's, on the other thread
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
