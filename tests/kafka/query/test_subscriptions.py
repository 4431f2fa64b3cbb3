"""Streams of one group whose topics overlap in part, and a checkpoint whose topics were changed, step by step, without Spark."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from spark_groupsource.group import evidence
from spark_groupsource.group.group_reader import GroupReader
from spark_groupsource.handoff.plan_offset import PlanOffset
from spark_groupsource.options.model import Options
from spark_groupsource.partition import OffsetRange, TopicPartition
from spark_groupsource.query.cycle import Cycle
from tests.conftest import MakeTopic, Produce
from tests.kafka.conftest import MakeQuery, Query, RecordOf
from tests.support.secured import Secured
from tests.support.waiting import until

PATIENCE = {"assignmentTimeout": "15s", "handoff.drainTimeout": "2s"}


def claimed(one: Query) -> dict[TopicPartition, tuple[OffsetRange, ...]]:
    """What the tasks read of the newest plan, by topic and partition."""
    return dict(one.cycle.claim(one.done, one.logged))


def next_batch(one: Query) -> dict[TopicPartition, tuple[OffsetRange, ...]]:
    until(one.plan, "something to read")
    granted = claimed(one)
    one.finish()
    return granted


def resubscribe(one: Query, subscribe: str) -> None:
    """Start the query again on its checkpoint, with other topics."""
    one.cycle.stop()
    one.given = {**one.given, "subscribe": subscribe}
    one._options = Options.parse(one.given)
    one.cycle = Cycle(one._options)


def zero(topic: str) -> TopicPartition:
    return TopicPartition(topic, 0)


class TestTopicsThatOverlapInPart:
    def test_a_range_is_settled_by_a_record_of_a_topic_that_its_holder_does_not_subscribe_to(
        self,
        monkeypatch: pytest.MonkeyPatch,
        topic: MakeTopic,
        produce: Produce,
        query: MakeQuery,
        record_of: RecordOf,
        protocol: str,
    ) -> None:
        monkeypatch.setattr(evidence, "ASK_GROUP_EVERY_S", 1.0)
        first, shared, last = topic(partitions=2), topic(), topic()
        group = {"kafka.group.id": f"group-of-{shared}", "handoff.drainTimeout": "2s", "kafka.group.protocol": protocol}
        a = query(first, subscribe=f"{first},{shared}", **group)
        a.until_planning(3)
        produce(shared, [(None, b"x")] * 10)
        until(a.plan, "the records")
        assert claimed(a) == {zero(shared): ((0, 10),)}
        a.cycle.stop()
        b = query(last, subscribe=f"{shared},{last}", **group)
        b.until_planning(2)
        assert not b.plan(), "the range is a's"
        a.restart()
        assert claimed(a) == {zero(shared): ((0, 10),)}, "the replay reads it"
        assert zero(shared) not in a.positions, "a owns partitions of the other topic only"
        a.finish()
        a.until_planning(2)

        def settled() -> bool:
            a.plan()
            b.plan()
            record = record_of(shared, 0)
            return (record.stream, record.owed, record.offset) == (b.done.stream, (), 10)

        until(settled, "b drops the range that a has confirmed in its other topic")

    def test_a_range_that_was_confirmed_in_another_topic_is_not_reread(
        self, topic: MakeTopic, produce: Produce, query: MakeQuery, caplog: pytest.LogCaptureFixture
    ) -> None:
        first, shared, last = topic(), topic(), topic()
        group = {"kafka.group.id": f"group-of-{shared}"}
        a = query(first, subscribe=f"{first},{shared}", **group)
        produce(shared, [(None, b"x")] * 10)
        until(a.plan, "the records")
        assert claimed(a) == {zero(shared): ((0, 10),)}
        resubscribe(a, first)
        assert claimed(a) == {zero(shared): ((0, 10),)}, "what it has claimed it reads, subscribed or not"
        assert "no longer subscribes" not in caplog.text
        a.finish()
        a.until_planning(1)
        b = query(last, subscribe=f"{shared},{last}", heldClaims="reread", **group)
        b.until_planning(2)
        produce(shared, [(None, b"y")] * 3)
        assert next_batch(b) == {zero(shared): ((10, 13),)}

    def test_other_topics_are_all_but_those_of_the_brokers(self, topic: MakeTopic, query: MakeQuery) -> None:
        name, other = topic(), topic()
        a = query(name)
        a.until_planning(1)
        reader = a.session.ledger._confirmed_plans._reader
        assert isinstance(reader, GroupReader)
        listed = set(reader._everywhere())
        assert {zero(name), zero(other)} <= listed
        assert "__consumer_offsets" not in {partition.topic for partition in listed}


class TestATopicThatIsNoLongerSubscribed:
    def test_is_left_when_nobody_adopts_it_and_is_read_by_the_next_subscriber(
        self, topic: MakeTopic, produce: Produce, query: MakeQuery, caplog: pytest.LogCaptureFixture
    ) -> None:
        kept, left = topic(), topic()
        a = query(kept, subscribe=f"{kept},{left}", **PATIENCE)
        a.until_planning(2)
        for name in (kept, left):
            produce(name, [(None, b"x")] * 10)
        until(lambda: a.plan() and len(a.logged.by_partition) == 2, "both topics")
        until(lambda: a.plan() and all(ranges[-1].size for ranges in a.logged.by_partition.values()), "records of both")
        resubscribe(a, kept)
        assert claimed(a) == {}, "nothing was claimed"
        assert (
            f"the last micro-batch of stream {a.done.stream} leaves out {left}-0 [0, 10): the query no longer subscribes"
            in caplog.text
        )
        assert "within 15000 ms (assignmentTimeout)" in caplog.text
        a.finish()
        assert next_batch(a) == {zero(kept): ((0, 10),)}, "the checkpoint goes on"
        assert not a.session.ledger._blocked_at, "draining is as before"
        resubscribe(a, f"{kept},{left}")
        assert next_batch(a) == {zero(left): ((0, 10),)}, "the group's position stayed"

    def test_is_left_at_once_when_its_records_may_not_be_read(
        self, secured: Secured, secured_topic: Callable[[str], str], query: MakeQuery, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.WARNING)
        kept, closed = secured_topic("open-"), secured_topic("closed-")
        a = query(kept, **{"kafka.group.id": kept, **secured.login("SCRAM-SHA-256")})
        a.logged = PlanOffset.build(
            stream=a.done.stream,
            plan=0,
            generation=1,
            member="",
            group=kept,
            ranges={zero(closed): (OffsetRange(0, 10),)},
            topics={closed: "A" * 22},
        )
        assert claimed(a) == {}
        assert f"leaves out {closed}-0 [0, 10): the query no longer subscribes to the topic, and cannot read" in caplog.text
        a.finish()
        assert next_batch(a) == {zero(kept): ((0, 10),)}
