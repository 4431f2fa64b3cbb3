"""Runs slow broker requests, each on its own thread, so that the consumer's thread never waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")


class Questions(Generic[Q, A]):
    """Answers questions on other threads, and keeps the answers until they are taken. A single thread asks and takes."""

    def __init__(self, find_out: Callable[[Q], A], *, thread: str) -> None:
        """Start with no questions.

        Args:
            find_out: answers a question. It is called on other threads and may be slow.
            thread: the name for these threads.
        """
        self._find_out = find_out
        self._thread = thread
        # A signal handler may interrupt the thread that takes answers. Even then that thread never holds a SimpleQueue's lock.
        self._answers: SimpleQueue[tuple[Q, A | Exception]] = SimpleQueue()

    @property
    def answered(self) -> bool:
        """Whether there is an answer to take."""
        return not self._answers.empty()

    def ask(self, question: Q) -> None:
        """Ask a question without waiting for its answer."""
        threading.Thread(target=self._answer, args=(question,), name=self._thread, daemon=True).start()

    def take(self) -> tuple[Q, A | Exception] | None:
        """Return the oldest answer with its question, or `None` if there is none. If asking failed, it is an exception."""
        try:
            return self._answers.get_nowait()
        except Empty:
            return None

    def _answer(self, question: Q) -> None:
        """Answer a question on the question's own thread."""
        answer: A | Exception
        try:
            answer = self._find_out(question)
        except Exception as error:  # noqa: BLE001 -- the caller of `take` handles it
            answer = error
        self._answers.put((question, answer))
