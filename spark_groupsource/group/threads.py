"""Passes work between the consumer's thread and other threads, so that the consumer's thread never waits.

Work and answers travel through `SimpleQueue`s. A signal handler may interrupt any thread. Unlike a Future's or an Event's
lock, a SimpleQueue's lock is never held by the thread that the handler interrupts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")

Reply = SimpleQueue[tuple[bool, Any]]
"""A queue that receives whether a step succeeded, and what it returned or raised."""


class Commands:
    """Passes steps to the consumer's thread. Any thread may `put` and `wake`; the consumer's thread calls the rest."""

    def __init__(self) -> None:
        """Start with an empty queue."""
        self._queue: SimpleQueue[tuple[Callable[[], Any], Reply] | None] = SimpleQueue()

    def put(self, run: Callable[[], Any]) -> Reply:
        """Queue a step, and return the queue that receives its outcome."""
        reply: Reply = SimpleQueue()
        self._queue.put((run, reply))
        return reply

    def wake(self) -> None:
        """Make a `serve` call return if it is waiting for a step."""
        self._queue.put(None)

    def serve(self, timeout_s: float) -> None:
        """Wait at most `timeout_s` seconds for a step, then run every queued step."""
        try:
            command = self._queue.get(timeout=timeout_s)
            while command is not None:
                run, reply = command
                try:
                    reply.put((True, run()))
                except Exception as error:  # noqa: BLE001 -- the caller on the other thread raises it
                    reply.put((False, error))
                command = self._queue.get_nowait()
        except Empty:
            return

    def refuse(self, error: Exception) -> None:
        """Answer every queued step with an error."""
        while not self._queue.empty():
            command = self._queue.get_nowait()
            if command is not None:
                command[1].put((False, error))


class Questions(Generic[Q, A]):
    """Asks brokers slow questions, each on its own thread, and keeps the answers until they are taken.

    A single thread calls `ask` and `take`.
    """

    def __init__(self, find_out: Callable[[Q], A], *, thread: str) -> None:
        """Start with no questions.

        Args:
            find_out: answers a question. It is called on other threads and may be slow.
            thread: the name for these threads.
        """
        self._find_out = find_out
        self._thread = thread
        self._answers: SimpleQueue[tuple[Q, A | Exception]] = SimpleQueue()

    def ask(self, question: Q) -> None:
        """Ask a question without waiting for its answer."""
        threading.Thread(target=self._answer, args=(question,), name=self._thread, daemon=True).start()

    def take(self) -> tuple[Q, A | Exception] | None:
        """Return the oldest answer (an exception if asking failed) with its question, or `None` if there is none."""
        try:
            return self._answers.get_nowait()
        except Empty:
            return None

    def _answer(self, question: Q) -> None:
        """Find the answer to a question, on the question's own thread."""
        answer: A | Exception
        try:
            answer = self._find_out(question)
        except Exception as error:  # noqa: BLE001 -- the caller of `take` handles it
            answer = error
        self._answers.put((question, answer))
