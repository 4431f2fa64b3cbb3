"""Records that do not exist any more when they should be planned: expired, or cut off."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping

import pytest

from spark_groupsource import timeouts
from spark_groupsource.brokers.topics import Topics
from spark_groupsource.errors import DataLossError
from spark_groupsource.handoff.commit_record import CommitRecord
from spark_groupsource.partition import TopicPartition
from tests.conftest import Produce
from tests.kafka.conftest import Filled, MakeQuery, Query, RecordOf
from tests.kafka.query.losses.conftest import GOES_ON, Brokers, ended
from tests.support.waiting import until

CUT_BELIEVED_LATE_S = 60.0
"""Above what a busy machine takes: a query that takes longer has waited until the cut is believed."""


def test_what_expired_before_it_was_planned_ends_the_query_or_is_passed_over(
    filled: Filled, produce: Produce, query: MakeQuery, brokers: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    name = filled()
    a = query(name)
    assert a.run_batch() == {0: (0, 10)}
    produce(name, [(None, b"x")] * 20)
    brokers.expire(name, 25)
    lost = rf"{name}-0 \[10, 25\) \(15 offsets\): the next offset to read was 10, and the log starts at 25"
    assert re.search(lost, ended(a))
    assert "failOnDataLoss to false" in ended(a)
    a.cycle.stop()
    b = query(name, **GOES_ON)
    b.done = b.logged = a.done
    assert b.run_batch() == {0: (25, 30)}, "each record that is there, once"
    assert re.search(lost + r".*the query will continue at 25", caplog.text)
    assert not b.plan()


def test_a_range_that_is_held_stays_held_when_it_expires(
    filled: Filled, produce: Produce, query: MakeQuery, brokers: Brokers, record_of: RecordOf
) -> None:
    name = filled()
    a, b = query(name), query(name, **GOES_ON)
    assert a.plan()
    assert a.claim() == {0: (0, 10)}
    a.cycle.stop()
    b.until_planning(1)
    produce(name, [(None, b"x")] * 10)
    brokers.expire(name, 15)
    assert b.run_batch() == {0: (15, 20)}
    record = record_of(name, 0)
    assert [entry.range for entry in record.owed] == [(0, 10)]
    a.restart()
    assert a.claim() == {0: (0, 10)}, "its tasks tell what is left of it"


class TestTheFixedTargetOfAvailableNow:
    @pytest.fixture
    def begun(self, filled: Filled, query: MakeQuery) -> tuple[str, Query]:
        """A topic, and a query on it whose target is ten records and which has read four of them."""
        name = filled()
        a = query(name, maxOffsetsPerTrigger="4", **GOES_ON)
        a.cycle.fix_target()
        assert a.run_batch() == {0: (0, 4)}
        return name, a

    def test_is_gone_with_its_topic_whatever_failOnDataLoss_says(  # noqa: N802
        self, begun: tuple[str, Query], brokers: Brokers
    ) -> None:
        name, a = begun
        brokers.recreate(name, 10)
        with pytest.raises(DataLossError, match=rf"AvailableNow(.|\n)*{name}-0 \[4, 10\) \(6 offsets\): .*recreated"):
            a.plan()

    def test_is_gone_when_the_topic_is_deleted(self, begun: tuple[str, Query], brokers: Brokers) -> None:
        name, a = begun
        brokers.delete(name)
        with pytest.raises(DataLossError, match=r"AvailableNow(.|\n)*no longer exists"):
            a.plan()

    def test_is_read_as_far_as_it_has_not_expired(self, begun: tuple[str, Query], brokers: Brokers) -> None:
        name, a = begun
        brokers.expire(name, 8)
        assert a.run_batch() == {0: (8, 10)}
        assert not a.plan()


def test_a_position_beyond_the_log_of_the_same_topic_is_a_log_that_was_cut(
    filled: Filled,
    produce: Produce,
    query: MakeQuery,
    brokers: Brokers,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timeouts, "CUT_BELIEVED_AFTER_S", CUT_BELIEVED_LATE_S)
    name = filled()
    brokers.restore_commit(name, CommitRecord(stream="another", logged=4, done=4, next=30))
    loss = rf"{name}-0 \[10, 30\) \(20 offsets\): the next offset to read was 30, and the log ends at 10"
    brief = {"kafkaConsumer.pollTimeoutMs": "2000"}
    a = query(name, **brief)
    began = time.monotonic()
    assert re.search(loss, ended(a))
    assert 2 <= time.monotonic() - began < CUT_BELIEVED_LATE_S
    a.cycle.stop()
    b = query(name, **GOES_ON, **brief)
    until(lambda: b.plan() or re.search(loss + ".*the query will continue at 10", caplog.text), "the cut is believed")
    produce(name, [(None, b"x")] * 5)
    assert b.run_batch() == {0: (10, 15)}


class TestAnEndThatIsTooLowForAMoment:
    """As a leader gives it that was replaced and does not know: `low` is the end that it gives of partition 0."""

    @pytest.fixture
    def low(self, monkeypatch: pytest.MonkeyPatch) -> dict[TopicPartition, int]:
        low: dict[TopicPartition, int] = {}
        ends = Topics.ends
        monkeypatch.setattr(Topics, "ends", lambda self, asked: {**(known := ends(self, asked)), **_of(low, known)})
        return low

    def test_ends_no_query_and_the_other_partitions_go_on(
        self,
        filled: Filled,
        produce: Produce,
        query: MakeQuery,
        low: dict[TopicPartition, int],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(timeouts, "CUT_BELIEVED_AFTER_S", CUT_BELIEVED_LATE_S)
        name = filled(partitions=2)
        a = query(name)
        a.until_planning(2)
        assert a.run_batch() == {0: (0, 10), 1: (0, 10)}
        low[TopicPartition(name, 0)] = 7
        for partition in (0, 1):
            produce(name, [(None, b"x")] * 5, partition)
        began = time.monotonic()
        assert a.run_batch() == {1: (10, 15)}
        assert not a.plan()
        assert time.monotonic() - began < CUT_BELIEVED_LATE_S / 2
        low.clear()
        assert a.run_batch() == {0: (10, 15)}

    def test_at_two_triggers_long_one_after_the_other_is_asked_about_until_it_is_over(
        self, filled: Filled, produce: Produce, query: MakeQuery, low: dict[TopicPartition, int]
    ) -> None:
        name = filled()
        a = query(name, **{"kafkaConsumer.pollTimeoutMs": "2000"})
        assert a.run_batch() == {0: (0, 10)}
        low[TopicPartition(name, 0)] = 7
        assert not a.plan()
        time.sleep(2.5)  # a trigger that is longer than the time after which a cut is believed
        produce(name, [(None, b"x")] * 5)
        threading.Timer(1.0, low.clear).start()
        assert a.run_batch() == {0: (10, 15)}

    def test_ends_no_run_of_available_now_before_its_target(
        self, filled: Filled, query: MakeQuery, low: dict[TopicPartition, int]
    ) -> None:
        name = filled()
        a = query(name, maxOffsetsPerTrigger="4")
        a.cycle.fix_target()
        assert a.run_batch() == {0: (0, 4)}
        low[TopicPartition(name, 0)] = 3
        healed = threading.Timer(2.0, low.clear)
        healed.start()
        assert a.run_batch() == {0: (4, 8)}


def _of(low: Mapping[TopicPartition, int], known: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    return {partition: end for partition, end in dict(low).items() if partition in known}
