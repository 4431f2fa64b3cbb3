"""What a batch read is planned from: starts, ends and times as the brokers tell them, and what the group has not processed."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from devtools.broker import Cluster
from spark_groupsource import timeouts
from spark_groupsource.errors import DataLossError, GroupActive, OptionError, TopicNotFound
from spark_groupsource.handoff.commit_record import CommitRecord, OpenRange, OwedRange
from spark_groupsource.options.model import Options
from spark_groupsource.query.batch_plan import BatchTask, plan_batch
from tests.conftest import MakeTopic, Produce
from tests.support.consumers import commit, commit_as_another_client, joined

Plan = Callable[..., list[BatchTask]]


@pytest.fixture
def plan(cluster: Cluster) -> Plan:
    """Plans a batch read of one topic, in the group that is named after it."""

    def make(topic: str, **options: str) -> list[BatchTask]:
        needed = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "kafka.group.id": f"group-of-{topic}", "subscribe": topic}
        return plan_batch(Options.parse({**needed, **options}, "batch"))

    return make


@pytest.fixture
def tens(topic: MakeTopic, produce: Produce) -> str:
    """A topic of two partitions, with ten records in the first."""
    name = topic(partitions=2)
    produce(name, [(None, "x")] * 10, 0)
    return name


@pytest.fixture
def hours(topic: MakeTopic, cluster: Cluster) -> str:
    """A topic of two partitions: six records at 1000, 2000, ... ms in the first, three up to 3000 in the second."""
    name = topic(partitions=2)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for partition, count in ((0, 6), (1, 3)):
        for number in range(1, count + 1):
            producer.produce(name, b"x", partition=partition, timestamp=1000 * number)
    assert producer.flush(60) == 0
    return name


def bounds(tasks: list[BatchTask]) -> list[tuple[int, int, int]]:
    """(partition, start, end) of each range that is read."""
    return sorted((one.partition, one.start, one.end) for task in tasks for one in task.ranges)


def by_partition(topic: str, *values: int) -> str:
    return json.dumps({topic: {str(number): value for number, value in enumerate(values)}})


def test_everything_is_read_or_what_lies_between_the_offsets_in_as_many_tasks_as_asked_for(plan: Plan, tens: str) -> None:
    assert bounds(plan(tens)) == [(0, 0, 10)]
    tasks = plan(tens, startingOffsets=by_partition(tens, 3, -2), endingOffsets=by_partition(tens, 7, -1))
    assert bounds(tasks) == [(0, 3, 7)], "inclusive at the start and exclusive at the end"
    assert bounds(plan(tens, minPartitions="3")) == [(0, 0, 3), (0, 3, 6), (0, 6, 10)]
    assert bounds(plan(tens, maxRecordsPerPartition="5")) == [(0, 0, 5), (0, 5, 10)]


def test_offsets_that_are_not_of_just_the_partitions_there_are_or_start_above_the_end_are_refused(plan: Plan, tens: str) -> None:
    for option in ("startingOffsets", "endingOffsets"):
        with pytest.raises(OptionError, match=rf"{option} does not name {tens}-1, but it must name every partition"):
            plan(tens, **{option: by_partition(tens, 1)})
        with pytest.raises(OptionError, match=rf"{option} names partitions that do not exist: {tens}-2"):
            plan(tens, **{option: by_partition(tens, 1, 0, 0)})
    with pytest.raises(OptionError, match=rf"{tens}-0: the read would start at offset 11 and end at 10"):
        plan(tens, startingOffsets=by_partition(tens, 11, 0))


def test_a_topic_that_does_not_exist_is_named(plan: Plan) -> None:
    with pytest.raises(TopicNotFound, match="no-such-topic"):
        plan("no-such-topic")


def test_a_time_is_that_of_the_first_record_which_is_not_older(plan: Plan, hours: str) -> None:
    assert bounds(plan(hours, startingTimestamp="1001", endingTimestamp="3000")) == [(0, 1, 2), (1, 1, 2)]
    given = {
        "startingOffsetsByTimestamp": by_partition(hours, 4000, 1),
        "endingOffsetsByTimestamp": by_partition(hours, 6000, 2500),
    }
    assert bounds(plan(hours, **given)) == [(0, 3, 5), (1, 0, 2)]
    with pytest.raises(OptionError, match=rf"startingOffsetsByTimestamp does not name {hours}-1"):
        plan(hours, startingOffsetsByTimestamp=by_partition(hours, 1))


def test_a_time_without_a_record_starts_by_the_strategy_and_ends_at_the_end_of_the_log(plan: Plan, hours: str) -> None:
    with pytest.raises(OptionError, match=rf"there is no record in {hours}-1 at or after 4000 .ms since 1970."):
        plan(hours, startingTimestamp="4000")
    assert bounds(plan(hours, startingTimestamp="4000", startingOffsetsByTimestampStrategy="latest")) == [(0, 3, 6)]
    assert bounds(plan(hours, endingTimestamp="4000")) == [(0, 0, 3), (1, 0, 3)]


def test_an_epoch_is_that_of_an_end_which_was_asked_for_with_it(plan: Plan, hours: str, cluster: Cluster) -> None:
    """Of an end by offset or time it is not known. An election and new records may have come since an earlier question."""

    def epochs(**options: str) -> list[tuple[int, int, int, bool]]:
        ranges = [one for task in plan(hours, **options) for one in task.ranges]
        return sorted((one.partition, one.start, one.end, one.epoch is not None) for one in ranges)

    record = CommitRecord(stream="alpha", logged=7, done=7, next=1)
    commit_as_another_client(cluster, f"group-of-{hours}", hours, record.offset, record.metadata())
    by_offset = by_partition(hours, 8, -1)
    assert epochs() == [(0, 0, 6, True), (1, 0, 3, True)]
    late = {"startingTimestamp": "4000", "startingOffsetsByTimestampStrategy": "latest"}
    assert epochs(**late, endingOffsets=by_partition(hours, -1, 8)) == [(0, 3, 6, True), (1, 3, 8, False)]
    committed = {"startingOffsets": "committed"}
    assert epochs(**committed) == [(0, 1, 6, True), (1, 0, 3, True)]
    assert epochs(**committed, commitOffsets="true", endingOffsets=by_offset) == [(0, 1, 8, False), (1, 0, 3, True)]
    assert epochs(**committed, endingTimestamp="6000") == [(0, 1, 5, False), (1, 0, 3, True)]


class TestWhatTheGroupHasNotProcessed:
    @pytest.mark.parametrize(
        ("record", "message", "left"),
        [
            (
                CommitRecord(stream="alpha", logged=7, done=6, next=8, open=(OpenRange(6, 8),), topic_id="A" * 22),
                r"\[6, 8\) \(2 offsets\): the next offset to read was 8, and the topic was deleted and recreated",
                [(0, 0, 10)],
            ),
            (
                CommitRecord(stream="alpha", logged=7, done=6, next=30, open=(OpenRange(8, 12),)),
                r"\[10, 30\) \(20 offsets\): the next offset to read was 30, and the log ends at 10",
                [(0, 8, 10)],
            ),
        ],
        ids=["of a topic that was made anew", "of a log that was cut"],
    )
    def test_is_an_error_or_what_is_there(
        self,
        plan: Plan,
        tens: str,
        cluster: Cluster,
        record: CommitRecord,
        message: str,
        left: list[tuple[int, int, int]],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(timeouts, "CUT_BELIEVED_AFTER_S", 1.0)
        commit_as_another_client(cluster, f"group-of-{tens}", tens, record.offset, record.metadata())
        with pytest.raises(DataLossError, match=message):
            plan(tens, startingOffsets="committed")
        assert bounds(plan(tens, startingOffsets="committed", failOnDataLoss="false")) == left

    def test_is_everything_without_a_commit(self, plan: Plan, tens: str) -> None:
        assert bounds(plan(tens, startingOffsets="committed")) == [(0, 0, 10)]

    def test_begins_at_another_clients_commit(self, plan: Plan, tens: str, cluster: Cluster, produce: Produce) -> None:
        with joined(cluster, f"group-of-{tens}", tens, 2) as consumer:
            commit(consumer, tens, 0, 4)
            assert bounds(plan(tens, startingOffsets="committed")) == [(0, 4, 10)]
        produce(tens, [(None, "y")], 1)
        tasks = plan(tens, startingOffsets="committed", endingOffsets=by_partition(tens, 9, -1))
        assert bounds(tasks) == [(0, 4, 9), (1, 0, 1)]

    def test_is_of_a_querys_commit_what_is_not_confirmed(self, plan: Plan, tens: str, cluster: Cluster) -> None:
        record = CommitRecord(
            stream="alpha", logged=7, done=6, next=8, open=(OpenRange(6, 8),), owed=(OwedRange("beta", 3, 2, 4),)
        )
        commit_as_another_client(cluster, f"group-of-{tens}", tens, record.offset, record.metadata())
        assert bounds(plan(tens, startingOffsets="committed")) == [(0, 2, 4), (0, 6, 8), (0, 8, 10)]
        cut = by_partition(tens, 7, -1)
        assert bounds(plan(tens, startingOffsets="committed", endingOffsets=cut)) == [(0, 2, 4), (0, 6, 7)]
        (task,) = plan(tens, startingOffsets="committed", commitOffsets="true")
        assert [(one.start, one.end) for one in task.ranges] == [(2, 4), (6, 8), (8, 10)]
        assert task.commit == 10
        with pytest.raises(
            OptionError, match=rf"{tens}-0: the read would end at offset 7, but the group's position is already 8"
        ):
            plan(tens, startingOffsets="committed", commitOffsets="true", endingOffsets=cut)

    def test_is_not_committed_for_a_group_that_is_active(self, plan: Plan, tens: str, cluster: Cluster) -> None:
        with (
            joined(cluster, f"group-of-{tens}", tens, 2),
            pytest.raises(GroupActive, match=rf"The group group-of-{tens} has 1 member .*Stop the group's queries"),
        ):
            plan(tens, startingOffsets="committed", commitOffsets="true")
