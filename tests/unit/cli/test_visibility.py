"""What readers of committed records see: leaders that do not answer at once are asked again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

import pytest

from spark_groupsource.brokers.topics import Topics
from spark_groupsource.cli import open_transactions as visibility
from spark_groupsource.partition import TopicPartition

ONE, TWO = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Leaders:
    """Answers each request in turn; the last answer again and again."""

    def __init__(self, *answers: Mapping[TopicPartition, int]) -> None:
        self.answers = list(answers)
        self.asked: list[list[TopicPartition]] = []

    def without_patience(self) -> Leaders:
        return self

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        self.asked.append(list(partitions))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return {partition: answer[partition] for partition in partitions if partition in answer}


def ends(leaders: Leaders, *partitions: TopicPartition) -> dict[TopicPartition, int]:
    return visibility.all_ends(cast("Topics", cast("Any", leaders)), partitions)


def test_a_leader_that_does_not_answer_at_first_is_asked_again() -> None:
    leaders = Leaders({ONE: 5}, {}, {TWO: 7})
    assert ends(leaders, ONE, ONE, TWO) == {ONE: 5, TWO: 7}
    assert leaders.asked == [[ONE, ONE, TWO], [TWO], [TWO]], "what is named twice is not waited for twice"


def test_a_leader_that_never_answers_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visibility, "CHECK_STEP_S", 0.2)
    assert ends(Leaders({ONE: 5}), ONE, TWO) == {ONE: 5}


def test_what_a_leader_did_not_say_is_not_known_and_the_rest_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visibility, "CHECK_STEP_S", 0.2)
    leaders = {False: Leaders({ONE: 9, TWO: 7}), True: Leaders({ONE: 5})}
    monkeypatch.setattr(visibility, "topics_by_name", lambda _, read_committed=False: leaders[read_committed])
    seen = visibility.visibility({}, [TWO, ONE])
    assert seen == [visibility.Visibility(ONE, 5, 9), visibility.Visibility(TWO, None, 7)]
    assert [one.hidden for one in seen] == [4, None]


def test_a_transaction_that_ended_between_the_two_requests_hides_nothing() -> None:
    assert visibility.Visibility(ONE, 9, 5).hidden == 0
