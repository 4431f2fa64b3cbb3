"""Questions that are answered when a test says so, or a step of a simulated history: whatever may happen before, can."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

from spark_groupsource.group.threads import Questions

Q = TypeVar("Q")
A = TypeVar("A")


class HeldQuestions(Questions[Q, A]):
    """Holds each question until the test answers it. Starts no threads."""

    def __init__(self, find_out: Callable[[Q], A]) -> None:
        super().__init__(find_out, thread="never started")
        self.waiting: list[Q] = []

    def ask(self, question: Q) -> None:
        self.waiting.append(question)

    def answer(self, number: int = 0) -> bool:
        """Answer this one of the questions that wait. Return whether there is one."""
        if number >= len(self.waiting):
            return False
        self._answer(self.waiting.pop(number))
        return True

    @property
    def answered(self) -> bool:
        """Whether there is an answer to take."""
        return not self._answers.empty()

    @property
    def answers(self) -> list[tuple[Q, A | Exception]]:
        """The answers that were not taken yet. They stay."""
        found = [self._answers.get_nowait() for _ in range(self._answers.qsize())]
        for answer in found:
            self._answers.put(answer)
        return found

    def clone(self, find_out: Callable[[Q], A]) -> HeldQuestions[Q, A]:
        """Return questions of which the same wait, with the same answers to take."""
        twin = HeldQuestions(find_out)
        twin.waiting, twin._answers = list(self.waiting), SimpleQueue()
        for answer in self.answers:
            twin._answers.put(answer)
        return twin
