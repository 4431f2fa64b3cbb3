"""What is asked before partitions are adopted. The brokers answer when a test says so, or a step of a simulated history."""

from __future__ import annotations

from spark_groupsource.group.survey import AskBrokers, BrokersAnswer, Question, Survey
from tests.support.held_questions import HeldQuestions


class HeldSurvey(Survey):
    """A question waits until somebody answers it, and does not mind whether the driver still wants to know."""

    def __init__(self, ask_brokers: AskBrokers) -> None:
        super().__init__(ask_brokers)
        self._questions: HeldQuestions[Question, BrokersAnswer] = HeldQuestions(self._questions._find_out)

    @property
    def waiting(self) -> list[Question]:
        """The questions that wait for an answer, the oldest first."""
        return self._questions.waiting

    def answer(self, number: int = 0) -> bool:
        """Answer this one of the questions that wait. Return whether there is one."""
        return self._questions.answer(number)

    def clone(self, ask_brokers: AskBrokers) -> HeldSurvey:
        twin = type(self)(ask_brokers)
        twin._questions = self._questions.clone(twin._questions._find_out)
        twin._open, twin.unanswered = dict(self._open), set(self.unanswered)
        return twin

    def key(self) -> tuple[object, ...]:
        """Equal for surveys that behave alike. A question may be open for some of its partitions, or for none."""
        return (
            tuple(self._key_of(question) for question in self.waiting),
            tuple((self._key_of(question), repr(answer)) for question, answer in self._questions.answers),
            frozenset(self.unanswered),
        )

    def _key_of(self, question: Question) -> tuple[object, ...]:
        still_open = frozenset(partition for partition in question.commits if self._open.get(partition) is question)
        return (still_open, question.stream.logged, question.stream.durable, frozenset(map(repr, question.commits.items())))
