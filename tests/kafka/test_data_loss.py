"""Records that are gone when they should be planned: expired, cut off, or of a topic that was deleted, or created again."""

from __future__ import annotations

import re

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from spark_groupsource.dev_broker import Cluster
from spark_groupsource.errors import DataLossError
from spark_groupsource.handoff.commit_record import CommitRecord
from spark_groupsource.handoff.plan_offset import PlanOffset
from spark_groupsource.query import loss_watch
from tests.conftest import MakeTopic, Produce
from tests.kafka.conftest import MakeQuery, Query, RecordOf
from tests.support.waiting import until

GOES_ON = {"failOnDataLoss": "false"}
QUICK = {"kafka.topic.metadata.refresh.interval.ms": "500"}
EITHER = pytest.mark.parametrize("fail", [True, False])


class Brokers:
    """What happens to topics behind a query's back."""

    def __init__(self, cluster: Cluster, admin: AdminClient) -> None:
        self._cluster = cluster
        self._admin = admin

    def expire(self, topic: str, offset: int, partition: int = 0) -> None:
        """Delete the records below the offset."""
        for done in self._admin.delete_records([TopicPartition(topic, partition, offset)]).values():
            done.result(30)

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(30)
        until(lambda: topic not in self._admin.list_topics(timeout=30).topics, "the topic is gone")

    def recreate(self, topic: str, records: int, partitions: int = 1) -> None:
        """Delete the topic and create it again, with so many records in each partition."""
        self.delete(topic)
        self._cluster.create_topic(topic, partitions)
        for partition in range(partitions):
            self.append(topic, records, partition)

    def append(self, topic: str, records: int, partition: int = 0) -> None:
        """Records of a producer that has not known the topic before: one that did would go on with the old one for a while."""
        producer = Producer({"bootstrap.servers": self._cluster.bootstrap_servers})
        for _ in range(records):
            producer.produce(topic, b"new", partition=partition)
        assert producer.flush(60) == 0

    def restore_commit(self, topic: str, record: CommitRecord) -> None:
        """As if the coordinator had not yet forgotten the group's commit of a deleted topic."""
        outsider = Consumer({"bootstrap.servers": self._cluster.bootstrap_servers, "group.id": f"group-of-{topic}"})
        outsider.commit(offsets=[TopicPartition(topic, 0, record.offset, metadata=record.metadata())], asynchronous=False)
        outsider.close()


@pytest.fixture
def brokers(cluster: Cluster, admin: AdminClient) -> Brokers:
    return Brokers(cluster, admin)


@pytest.fixture(autouse=True)
def each_plan_asks_where_logs_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_watch, "LOOK_AT_STARTS_EVERY_S", 0.0)


def ended(one: Query) -> str:
    """Plan until the query ends; what it tells."""
    told: list[str] = []

    def fails() -> bool:
        try:
            one.plan()
        except DataLossError as error:
            told.append(str(error))
        return bool(told)

    until(fails, "the query ends")
    return told[0]


def test_what_expired_before_it_was_planned_ends_the_query_or_is_passed_over(
    topic: MakeTopic, produce: Produce, query: MakeQuery, brokers: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic()
    produce(name, [(None, b"x")] * 10)
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
    assert re.search(lost + r".*the query goes on at 25", caplog.text)
    assert not b.plan()


def test_a_range_that_is_held_stays_held_when_it_expires(
    topic: MakeTopic, produce: Produce, query: MakeQuery, brokers: Brokers, record_of: RecordOf
) -> None:
    name = topic()
    produce(name, [(None, b"x")] * 10)
    a, b = query(name), query(name, **GOES_ON)
    assert a.plan()
    assert a.claim() == {0: (0, 10)}
    a.cycle.stop()
    b.until_planning(1)
    produce(name, [(None, b"x")] * 10)
    brokers.expire(name, 15)
    assert b.run_batch() == {0: (15, 20)}
    record = record_of(name, 0)
    assert isinstance(record, CommitRecord)
    assert [entry.range for entry in record.owed] == [(0, 10)]
    a.restart()
    assert a.claim() == {0: (0, 10)}, "its tasks tell what is left of it"


@EITHER
@pytest.mark.parametrize("records", [3, 10, 14], ids=["with less", "with as many", "with more"])
def test_a_topic_that_was_made_anew_between_two_batches(
    topic: MakeTopic,
    produce: Produce,
    query: MakeQuery,
    brokers: Brokers,
    caplog: pytest.LogCaptureFixture,
    records: int,
    fail: bool,
) -> None:
    name = topic()
    produce(name, [(None, b"x")] * 10)
    a = query(name, failOnDataLoss=str(fail))
    assert a.run_batch() == {0: (0, 10)}
    assert not a.plan()
    brokers.recreate(name, records)
    told = rf"{name}-0: the next offset to read was 10, and the topic was deleted and created again .*; the new log starts at 0"
    if fail:
        assert re.search(told, ended(a))
    else:
        assert a.run_batch() == {0: (0, records)}
        assert not a.plan()
        assert re.search(told, caplog.text)


@EITHER
@pytest.mark.parametrize("forgotten", [True, False], ids=["and the commits with it", "and the commits are still there"])
def test_a_topic_that_was_made_anew_while_the_query_was_stopped(
    topic: MakeTopic,
    produce: Produce,
    query: MakeQuery,
    brokers: Brokers,
    record_of: RecordOf,
    caplog: pytest.LogCaptureFixture,
    forgotten: bool,
    fail: bool,
) -> None:
    name = topic()
    produce(name, [(None, b"x")] * 10)
    a = query(name, failOnDataLoss=str(fail))
    a.run_batch()
    a.plan()
    a.cycle.stop()
    before = record_of(name, 0)
    assert isinstance(before, CommitRecord)
    brokers.recreate(name, 10)
    if not forgotten:
        brokers.restore_commit(name, before)
    a.restart()
    told = (
        rf"{name}-0: the next offset to read was 10, and the topic was deleted and created again .*was {before.topic_id} and is"
    )
    if fail:
        assert re.search(told, ended(a))
    else:
        assert a.run_batch() == {0: (0, 10)}
        assert re.search(told, caplog.text)


@EITHER
def test_a_batch_that_was_logged_and_whose_topic_was_made_anew_is_not_read_from_the_new_one(
    topic: MakeTopic, produce: Produce, query: MakeQuery, brokers: Brokers, caplog: pytest.LogCaptureFixture, fail: bool
) -> None:
    name = topic()
    produce(name, [(None, b"x")] * 10)
    a = query(name, failOnDataLoss=str(fail))
    assert a.plan()
    assert a.claim() == {0: (0, 10)}
    a.cycle.stop()
    brokers.recreate(name, 12)
    a.restart()
    told = rf"{name}-0 \[0, 10\) \(10 offsets\): (the next offset to read was 10, and )?the topic was deleted and created again"
    if fail:
        with pytest.raises(DataLossError, match=told):
            a.claim()
        return
    assert a.claim() == {}, "the replay has nothing to read"
    assert re.search(told, caplog.text)
    a.finish()
    assert a.run_batch() == {0: (0, 12)}


@EITHER
def test_the_next_owner_of_a_topic_that_was_made_anew_neither_skips_nor_holds_its_records(
    topic: MakeTopic, produce: Produce, query: MakeQuery, brokers: Brokers, record_of: RecordOf, fail: bool
) -> None:
    name = topic()
    produce(name, [(None, b"x")] * 10)
    a, b = query(name), query(name, failOnDataLoss=str(fail))
    assert a.plan()
    assert a.claim() == {0: (0, 10)}
    a.cycle.stop()
    before = record_of(name, 0)
    assert isinstance(before, CommitRecord)
    brokers.recreate(name, 10)
    brokers.restore_commit(name, before)
    if fail:
        assert re.search(rf"{name}-0 \[0, 10\) .*deleted and created again", ended(b))
        return
    assert b.run_batch() == {0: (0, 10)}
    record = record_of(name, 0)
    assert isinstance(record, CommitRecord)
    assert (record.stream, record.owed, record.next) == (b.done.stream, (), 10)
    assert record.topic_id != before.topic_id


def test_offsets_that_were_reset_for_a_topic_that_was_made_anew_are_believed(
    topic: MakeTopic, produce: Produce, query: MakeQuery, brokers: Brokers, cluster: Cluster
) -> None:
    name = topic()
    produce(name, [(None, b"x")] * 10)
    a = query(name)
    a.run_batch()
    a.plan()
    a.cycle.stop()
    brokers.recreate(name, 10)
    outsider = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": f"group-of-{name}"})
    outsider.commit(offsets=[TopicPartition(name, 0, 4)], asynchronous=False)
    outsider.close()
    a.restart()
    assert a.run_batch() == {0: (4, 10)}


@EITHER
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("by", ["name", "pattern"])
def test_a_topic_that_is_deleted_while_a_batch_of_it_runs(
    topic: MakeTopic,
    produce: Produce,
    query: MakeQuery,
    brokers: Brokers,
    record_of: RecordOf,
    caplog: pytest.LogCaptureFixture,
    by: str,
    protocol: str,
    fail: bool,
) -> None:
    kept = topic()
    going = f"{kept}-going"
    brokers._cluster.create_topic(going, 1)
    for each in (kept, going):
        produce(each, [(None, b"x")] * 10)
    subscription = {"subscribePattern": f"{kept}.*"} if by == "pattern" else {"subscribe": f"{kept},{going}"}
    a = query(kept, **subscription, **QUICK, **{"kafka.group.protocol": protocol}, failOnDataLoss=str(fail))
    a.until_planning(2)
    assert a.plan()
    assert a.logged.ranges == {kept: {"0": ((0, 10),)}, going: {"0": ((0, 10),)}}
    a.claim()
    brokers.delete(going)
    a.finish()
    produce(kept, [(None, b"y")] * 5)
    told = rf"{going}-0: the next offset to read was 10, and the topic does not exist any more"
    if fail:
        assert re.search(told, ended(a))
        return
    until(a.plan, "something to read")
    assert a.logged.ranges[kept] == {"0": ((10, 15),)}
    assert a.claim() == {0: (10, 15)}
    a.finish()
    a.until_planning(1)
    assert re.search(told, caplog.text)
    assert (
        len([record for record in caplog.records if f"{going}-0: " in record.getMessage() and "(failOnData" in record.msg]) == 1
    )
    record = record_of(kept, 0)
    assert isinstance(record, CommitRecord)
    assert record.offset == 15, "the rest is confirmed as ever"
    brokers._cluster.create_topic(going, 1)
    brokers.append(going, 7)
    until(a.plan, "the topic is there again")
    assert a.logged.ranges[going] == {"0": ((0, 7),)}
    assert a.claim() == {0: (0, 7)}


def test_a_replay_of_a_plan_whose_topic_is_gone_waits_for_nobody(
    topic: MakeTopic, produce: Produce, query: MakeQuery, brokers: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    kept = topic()
    going = f"{kept}-going"
    brokers._cluster.create_topic(going, 1)
    for each in (kept, going):
        produce(each, [(None, b"x")] * 10)
    a = query(kept, subscribePattern=f"{kept}.*", **GOES_ON)
    a.until_planning(2)
    assert a.plan()
    a.cycle.claim(a.done, a.logged)
    a.cycle.stop()
    brokers.delete(going)
    a.restart()
    granted = a.cycle.claim(a.done, a.logged)
    assert {where.topic for where in granted} == {kept}
    assert re.search(rf"{going}-0 \[0, 10\) \(10 offsets\): the topic does not exist any more", caplog.text)


def test_partitions_that_are_added_while_a_query_runs_are_read_from_their_beginning(
    topic: MakeTopic, query: MakeQuery, admin: AdminClient, brokers: Brokers, produce: Produce
) -> None:
    name = topic()
    produce(name, [(None, b"x")] * 10)
    a = query(name, startingOffsets="latest", **QUICK)
    a.until_planning(1)
    assert not a.plan()
    admin.create_partitions([NewPartitions(name, 2)])[name].result(30)
    until(lambda: len(admin.list_topics(name, timeout=30).topics[name].partitions) == 2, "the new partition")
    brokers.append(name, 4, partition=1)
    assert a.run_batch() == {1: (0, 4)}


def test_a_topic_that_comes_anew_is_read_from_its_beginning_wherever_the_options_started(
    topic: MakeTopic, query: MakeQuery, brokers: Brokers, produce: Produce
) -> None:
    name = topic()
    produce(name, [(None, b"x")] * 10)
    a = query(name, startingOffsets="latest", **QUICK, **GOES_ON)
    a.until_planning(1)
    assert not a.plan()
    brokers.recreate(name, 6)
    assert a.run_batch() == {0: (0, 6)}


class TestTheFixedTargetOfAvailableNow:
    @pytest.fixture
    def begun(self, topic: MakeTopic, produce: Produce, query: MakeQuery) -> tuple[str, Query]:
        """A topic, and a query on it whose target is ten records and which has read four of them."""
        name = topic()
        produce(name, [(None, b"x")] * 10)
        a = query(name, maxOffsetsPerTrigger="4", **GOES_ON)
        a.cycle.fix_target()
        assert a.run_batch() == {0: (0, 4)}
        return name, a

    @pytest.mark.parametrize("records", [3, 10], ids=["with less", "with as many"])
    def test_is_gone_with_its_topic_whatever_failOnDataLoss_says(  # noqa: N802
        self, begun: tuple[str, Query], brokers: Brokers, records: int
    ) -> None:
        name, a = begun
        brokers.recreate(name, records)
        with pytest.raises(DataLossError, match=rf"AvailableNow(.|\n)*{name}-0 \[4, 10\) \(6 offsets\): .*created again"):
            a.plan()

    def test_is_gone_when_the_topic_is_deleted(self, begun: tuple[str, Query], brokers: Brokers) -> None:
        name, a = begun
        brokers.delete(name)
        with pytest.raises(DataLossError, match=r"AvailableNow(.|\n)*does not exist any more"):
            a.plan()

    def test_is_read_as_far_as_it_has_not_expired(self, begun: tuple[str, Query], brokers: Brokers) -> None:
        name, a = begun
        brokers.expire(name, 8)
        assert a.run_batch() == {0: (8, 10)}
        assert not a.plan()


def test_a_position_beyond_the_log_of_the_same_topic_is_a_log_that_was_cut(
    topic: MakeTopic, produce: Produce, query: MakeQuery, brokers: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic()
    produce(name, [(None, b"x")] * 10)
    brokers.restore_commit(name, CommitRecord(stream="another", logged=4, done=4, next=30))
    told = rf"{name}-0 \[10, 30\) \(20 offsets\): the next offset to read was 30, and the log ends at 10"
    a = query(name)
    assert re.search(told, ended(a))
    a.cycle.stop()
    b = query(name, **GOES_ON)
    b.until_planning(1)
    assert re.search(told + ".*the query goes on at 10", caplog.text)
    produce(name, [(None, b"x")] * 5)
    assert b.run_batch() == {0: (10, 15)}


def test_the_ids_of_topics_stand_in_the_plan_and_in_the_commit_record(
    topic: MakeTopic, produce: Produce, query: MakeQuery, record_of: RecordOf
) -> None:
    name = topic()
    produce(name, [(None, b"x")] * 10)
    a = query(name)
    a.run_batch()
    record = record_of(name, 0)
    assert isinstance(record, CommitRecord)
    assert a.done.topics == {name: record.topic_id}
    assert PlanOffset.parse(a.done.to_json(), f"group-of-{name}") == a.done


def test_a_record_and_a_checkpoint_without_an_id_are_accepted(
    topic: MakeTopic, produce: Produce, query: MakeQuery, brokers: Brokers, record_of: RecordOf
) -> None:
    name = topic()
    produce(name, [(None, b"x")] * 10)
    a = query(name)
    a.done = a.logged = a.done.model_copy(update={"plan": 3, "ranges": {name: {"0": ((0, 4),)}}})
    brokers.restore_commit(name, CommitRecord(stream=a.done.stream, logged=3, done=3, next=4))
    assert a.run_batch() == {0: (4, 10)}
    record = record_of(name, 0)
    assert isinstance(record, CommitRecord)
    assert record.topic_id == a.done.topics[name]
