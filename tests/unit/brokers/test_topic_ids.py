"""A topic is given up only when a broker has said several times that it does not exist, or has another id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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


def test_an_expected_id_is_believed_at_once() -> None:
    broker = Broker({"orders": WAS})
    assert broker.ids.now({"orders": WAS}) == {"orders": WAS}
    assert broker.questions == 1


def test_any_id_is_believed_of_a_topic_whose_id_was_not_known() -> None:
    broker = Broker({"orders": IS})
    assert broker.ids.now({"orders": None}) == {"orders": IS}
    assert broker.questions == 1


def test_a_topic_that_one_broker_does_not_know_for_a_moment_is_not_given_up() -> None:
    broker = Broker({"orders": None}, {"orders": None}, {"orders": WAS})
    assert broker.ids.now({"orders": WAS}) == {"orders": WAS}
    assert broker.questions == 3


def test_another_id_is_believed_after_several_answers_and_at_once_from_then_on() -> None:
    broker = Broker({"orders": IS})
    assert broker.ids.now({"orders": WAS}) == {"orders": IS}
    assert broker.questions == 1 + BELIEVE_AFTER
    assert broker.ids.now({"orders": WAS}) == {"orders": IS}
    assert broker.questions == 2 + BELIEVE_AFTER


def test_a_second_change_of_the_same_topic_is_asked_again() -> None:
    broker = Broker({"orders": IS})
    broker.ids.now({"orders": WAS})
    broker.answers, broker.questions = [{"orders": None}], 0
    assert broker.ids.now({"orders": WAS}) == {"orders": None}
    assert broker.questions == 1 + BELIEVE_AFTER


def test_what_is_believed_is_replaced_and_never_edited() -> None:
    broker = Broker({"orders": IS})
    before = broker.ids._believed
    broker.ids.now({"orders": WAS})
    assert before == frozenset()
    assert broker.ids._believed == {("orders", IS)}


def test_a_topic_that_no_broker_answers_for_is_left_out() -> None:
    broker = Broker({"returns": WAS})
    assert broker.ids.now({"orders": WAS, "returns": WAS}) == {"returns": WAS}
    assert broker.questions == 1
