"""Questions that brokers may take long to answer: each is asked on a thread of its own, and the consumer's thread goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")


class Questions(Generic[Q, A]):
    """The questions that are open, and the answers that were not taken yet. One thread asks and takes."""

    def __init__(self, find_out: Callable[[Q], A], *, thread: str) -> None:
        """Begin without a question.

        Args:
            find_out: answers a question. It is called on other threads, and may take long.
            thread: the name of these threads.
        """
        self._find_out = find_out
        self._thread = thread
        # A signal handler may interrupt the thread that takes answers. It cannot hold the lock of a SimpleQueue then.
        self._answers: SimpleQueue[tuple[Q, A | Exception]] = SimpleQueue()

    @property
    def answered(self) -> bool:
        """Whether there is an answer to take."""
        return not self._answers.empty()

    def ask(self, question: Q) -> None:
        """Ask; return at once."""
        threading.Thread(target=self._answer, args=(question,), name=self._thread, daemon=True).start()

    def take(self) -> tuple[Q, A | Exception] | None:
        """Return the oldest answer with its question, or `None` if there is none. An exception says why there is no answer."""
        try:
            return self._answers.get_nowait()
        except Empty:
            return None

    def _answer(self, question: Q) -> None:
        """Run on a thread of its own."""
        answer: A | Exception
        try:
            answer = self._find_out(question)
        except Exception as error:  # noqa: BLE001 -- who takes the answer decides about it
            answer = error
        self._answers.put((question, answer))
