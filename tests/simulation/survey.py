"""What a driver asks before it adopts partitions. The answer comes when a history says so, however late."""

from __future__ import annotations

from queue import SimpleQueue
from typing import TypeVar

from spark_groupsource.group.survey import LookUp, Question, Survey

T = TypeVar("T")


def waiting_in(queue: SimpleQueue[T]) -> list[T]:
    """What is in the queue, which keeps it."""
    found = [queue.get_nowait() for _ in range(queue.qsize())]
    for one in found:
        queue.put(one)
    return found


class HeldSurvey(Survey):
    """A question waits until somebody answers it, and does not mind whether the driver still wants to know."""

    def __init__(self, look_up: LookUp) -> None:
        super().__init__(look_up)
        self.waiting: list[Question] = []

    def clone(self, look_up: LookUp) -> HeldSurvey:
        twin = type(self)(look_up)
        twin.waiting, twin._open, twin._unheard = list(self.waiting), dict(self._open), set(self._unheard)
        twin._answers = SimpleQueue()
        for answer in waiting_in(self._answers):
            twin._answers.put(answer)
        return twin

    def answer(self, number: int) -> bool:
        """The brokers answer this one of the questions that wait."""
        if number >= len(self.waiting):
            return False
        self._find_out(self.waiting.pop(number))
        return True

    def _begin(self, question: Question) -> None:
        self.waiting.append(question)

    def key(self) -> tuple[object, ...]:
        """Equal for surveys that behave alike. A question may be open for some of its partitions, or for none."""
        return (
            tuple(self._key_of(question) for question in self.waiting),
            tuple((self._key_of(question), repr(answer)) for question, answer in waiting_in(self._answers)),
            frozenset(self._unheard),
        )

    def _key_of(self, question: Question) -> tuple[object, ...]:
        still_open = frozenset(partition for partition in question.commits if self._open.get(partition) is question)
        return (still_open, question.stream.logged, question.stream.durable, frozenset(map(repr, question.commits.items())))
