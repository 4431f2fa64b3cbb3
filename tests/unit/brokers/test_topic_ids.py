"""A topic is given up only when a broker has said several times that it does not exist, or has another id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from spark_groupsource.brokers.topic_ids import BELIEVE_AFTER, TopicIds

WAS, IS = "a" * 22, "b" * 22


class Broker:
    """Gives its answers one after the other, the last one for ever."""

    def __init__(self, *answers: Mapping[str, str | None]) -> None:
        self.answers = list(answers)
        self.questions = 0
        self.ids = TopicIds(self._ask, sleep=lambda _: None)

    def _ask(self, topics: Iterable[str]) -> Mapping[str, str | None]:
        self.questions += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return {topic: answer[topic] for topic in topics if topic in answer}


@pytest.mark.parametrize(
    ("answers", "expected", "found", "questions"),
    [
        pytest.param([{"orders": WAS}], {"orders": WAS}, {"orders": WAS}, 1, id="the expected id is believed at once"),
        pytest.param([{"orders": IS}], {"orders": None}, {"orders": IS}, 1, id="any id, where none was known"),
        pytest.param(
            [{"orders": None}, {"orders": None}, {"orders": WAS}],
            {"orders": WAS},
            {"orders": WAS},
            3,
            id="one broker does not know the topic for a moment: it is not given up",
        ),
        pytest.param(
            [{"returns": WAS}], {"orders": WAS, "returns": WAS}, {"returns": WAS}, 1, id="no broker answers: it is left out"
        ),
    ],
)
def test_what_is_not_doubted_is_not_asked_again(
    answers: list[dict[str, str | None]], expected: dict[str, str | None], found: dict[str, str | None], questions: int
) -> None:
    broker = Broker(*answers)
    assert broker.ids.now(expected) == found
    assert broker.questions == questions


def test_another_id_is_believed_after_several_answers_and_at_once_from_then_on() -> None:
    broker = Broker({"orders": IS})
    before = broker.ids._believed
    assert broker.ids.now({"orders": WAS}) == {"orders": IS}
    assert broker.questions == 1 + BELIEVE_AFTER
    assert before == frozenset(), "other threads read it: it is replaced, and never edited"
    assert broker.ids._believed == {("orders", IS)}
    assert broker.ids.now({"orders": WAS}) == {"orders": IS}
    assert broker.questions == 2 + BELIEVE_AFTER


def test_a_second_change_of_the_same_topic_is_asked_again() -> None:
    broker = Broker({"orders": IS})
    broker.ids.now({"orders": WAS})
    broker.answers, broker.questions = [{"orders": None}], 0
    assert broker.ids.now({"orders": WAS}) == {"orders": None}
    assert broker.questions == 1 + BELIEVE_AFTER


def test_a_change_that_was_undone_is_doubted_again() -> None:
    broker = Broker(*[{"orders": None}] * (1 + BELIEVE_AFTER), {"orders": WAS}, {"orders": None}, {"orders": WAS})
    assert broker.ids.now({"orders": WAS}) == {"orders": None}
    assert broker.ids.now({"orders": WAS}) == {"orders": WAS}
    assert broker.ids.now({"orders": WAS}) == {"orders": WAS}, "one broker was late"
