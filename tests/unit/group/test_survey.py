"""What brokers are asked before an adoption: nobody waits for it, and an answer counts only for its own acquisition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from spark_groupsource.errors import BrokerUnavailable
from spark_groupsource.group.survey import BrokersAnswer
from spark_groupsource.handoff.commit_record import GroupCommit
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.partition import OffsetRange, TopicPartition
from tests.support.held_survey import HeldSurvey

RECORDED, NEW = TopicPartition("orders", 0), TopicPartition("orders", 1)
STREAM = Stream("a" * 12)


class Brokers:
    """They answer when they are asked to, and not before."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.ids: dict[str, str | None] = {}
        self.survey = HeldSurvey(self.ask_brokers)

    def ask_brokers(self, _: Stream, commits: Mapping[TopicPartition, GroupCommit]) -> BrokersAnswer:
        if self.error is not None:
            raise self.error
        return BrokersAnswer(commits, {partition: 7 for partition, commit in commits.items() if commit is None}, self.ids, [], [])

    def answer(self) -> None:
        assert self.survey.answer(0)

    def found(self, stream: Stream = STREAM) -> set[TopicPartition]:
        """The partitions that can be adopted now."""
        return {
            partition
            for _, found in self.survey.answers(stream)
            if isinstance(found, BrokersAnswer)
            for partition in found.commits
        }


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


def test_an_answer_that_relied_on_a_position_of_an_earlier_plan_is_dropped(brokers: Brokers) -> None:
    planned = Stream("a" * 12, 3, 2, {NEW: (OffsetRange(0, 10),)})
    brokers.survey.ask(planned, {NEW: None})
    brokers.answer()
    assert brokers.found(Stream("a" * 12, 4, 3)) == set()
    assert not brokers.survey.asked


def test_an_answer_is_dropped_when_a_plan_has_another_topic_of_the_same_name(brokers: Brokers) -> None:
    brokers.ids = {"orders": "new"}
    brokers.survey.ask(STREAM, {NEW: None})
    brokers.answer()
    assert brokers.found(replace(STREAM, topics={"orders": "old"})) == set()
    brokers.survey.ask(STREAM, {NEW: None})
    brokers.answer()
    assert brokers.found(replace(STREAM, topics={"orders": "new"})) == {NEW}


def test_an_error_comes_with_the_partitions_that_it_is_about_unless_they_were_lost(brokers: Brokers) -> None:
    brokers.error = BrokerUnavailable("down")
    brokers.survey.acquired({RECORDED, NEW})
    brokers.survey.ask(STREAM, {RECORDED: None, NEW: None})
    brokers.survey.forget({RECORDED})
    brokers.answer()
    ((partitions, error),) = brokers.survey.answers(STREAM)
    assert (set(partitions), error) == ({NEW}, brokers.error)
    assert not brokers.survey.asked
    assert not brokers.survey.unanswered
    brokers.survey.ask(STREAM, {NEW: None})
    brokers.survey.forget({NEW})
    brokers.answer()
    assert list(brokers.survey.answers(STREAM)) == []
