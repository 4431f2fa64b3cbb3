"""Runs slow requests to brokers, each on a thread of its own, so that the consumer's thread never waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")


class Questions(Generic[Q, A]):
    """Runs questions on other threads, and keeps their answers until they are taken. One thread asks and takes."""

    def __init__(self, find_out: Callable[[Q], A], *, thread: str) -> None:
        """Start without a question.

        Args:
            find_out: answers a question. It is called on other threads, and may take long.
            thread: the name of these threads.
        """
        self._find_out = find_out
        self._thread = thread
        # A signal handler may interrupt the thread that takes answers. That thread never holds the lock of a SimpleQueue then.
        self._answers: SimpleQueue[tuple[Q, A | Exception]] = SimpleQueue()

    @property
    def answered(self) -> bool:
        """Whether there is an answer to take."""
        return not self._answers.empty()

    def ask(self, question: Q) -> None:
        """Ask a question without waiting for its answer."""
        threading.Thread(target=self._answer, args=(question,), name=self._thread, daemon=True).start()

    def take(self) -> tuple[Q, A | Exception] | None:
        """Return the oldest answer with its question, or `None` if there is none. The answer is an exception if asking failed."""
        try:
            return self._answers.get_nowait()
        except Empty:
            return None

    def _answer(self, question: Q) -> None:
        """Answer a question. Runs on the question's thread."""
        answer: A | Exception
        try:
            answer = self._find_out(question)
        except Exception as error:  # noqa: BLE001 -- the caller of `take` decides about it
            answer = error
        self._answers.put((question, answer))
