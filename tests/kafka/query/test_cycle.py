"""The micro-batch cycle of one or two streams in one group, step by step, without Spark: who reads which range, and when."""

from __future__ import annotations

import json
import multiprocessing
import time

import pytest
from confluent_kafka import Producer

from devtools.broker import Cluster
from spark_groupsource.brokers import topics
from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.errors import BrokerUnavailable, ClaimTimeout, CommitRefused, OptionError, TopicNotFound
from spark_groupsource.group import fenced_commits
from spark_groupsource.handoff.commit_record import CommitRecord, Foreign, OwedRange
from spark_groupsource.handoff.plan_offset import PlanOffset
from spark_groupsource.partition import TopicPartition
from tests.conftest import MakeTopic, Produce
from tests.kafka.conftest import Filled, MakeQuery, Query, RecordOf
from tests.support.consumers import commit_as_another_client, plain_member
from tests.support.group_offsets import committed_offsets
from tests.support.waiting import in_background, until


def test_more_records_than_one_commit_can_carry_take_several(
    monkeypatch: pytest.MonkeyPatch, filled: Filled, query: MakeQuery, record_of: RecordOf
) -> None:
    monkeypatch.setattr(fenced_commits, "MAX_COMMIT_BYTES", 2 * fenced_commits.RECORD_BYTES)
    name = filled(partitions=5, count=3)
    a = query(name)
    assert a.run_batch() == dict.fromkeys(range(5), (0, 3))
    for partition in range(5):
        record = record_of(name, partition)
        assert (record.next, record.open) == (3, ((0, 3),))
    assert not a.plan()
    assert {record_of(name, partition).offset for partition in range(5)} == {3}


def test_a_range_is_claimed_then_confirmed_and_the_next_starts_behind_it(
    filled: Filled, produce: Produce, query: MakeQuery, record_of: RecordOf
) -> None:
    name = filled()
    a = query(name)
    assert a.plan()
    adopted = record_of(name, 0)
    assert (adopted.next, adopted.logged, adopted.open) == (0, -1, ())
    assert a.claim() == {0: (0, 10)}
    assert a.claim() == {0: (0, 10)}, "claiming again gives the same"
    claimed = record_of(name, 0)
    assert (claimed.offset, claimed.next, claimed.logged, claimed.done, claimed.open) == (0, 10, 0, -1, ((0, 10),))
    a.finish()
    assert not a.plan(), "nothing new: the claim is confirmed at once"
    confirmed = record_of(name, 0)
    assert (confirmed.offset, confirmed.next, confirmed.done, confirmed.open) == (10, 10, 0, ())
    produce(name, [(None, b"x")] * 5)
    assert a.run_batch() == {0: (10, 15)}


def test_an_empty_first_batch_does_not_disturb_a_rebalance(topic: MakeTopic, produce: Produce, query: MakeQuery) -> None:
    """Batch 0 always runs: with nothing there, Spark claims the offset before the first plan."""
    name = topic(partitions=2)
    a, b = query(name), query(name)
    assert not a.plan()
    assert a.claim() == {}
    b.plan()
    a.until_planning(1)
    b.until_planning(1)
    produce(name, [(None, b"x")] * 4, partition=0)
    produce(name, [(None, b"x")] * 4, partition=1)
    assert a.run_batch() | b.run_batch() == {0: (0, 4), 1: (0, 4)}


def test_a_partition_that_is_asked_back_is_let_go_once_its_micro_batch_is_confirmed(
    filled: Filled, produce: Produce, query: MakeQuery, record_of: RecordOf
) -> None:
    name = filled(partitions=2)
    a, b = query(name), query(name)
    assert a.plan()
    assert a.claim() == {0: (0, 10), 1: (0, 10)}
    joining = in_background(lambda: b.until_planning(1))
    until(lambda: a.draining, "a drains a partition")
    (going,) = a.draining
    produce(name, [(None, b"y")] * 3, partition=0)
    produce(name, [(None, b"y")] * 3, partition=1)
    assert not b.positions, "b has nothing while a's micro-batch runs"
    a.finish()
    assert a.run_batch() == {1 - going.partition: (10, 13)}, "the partition that stays is read meanwhile"
    joining.join()
    record = record_of(name, going.partition)
    assert (record.next, record.open, record.owed) == (10, (), ())
    assert b.run_batch() == {going.partition: (10, 13)}, "b goes on exactly behind a"


def test_a_plan_that_was_never_claimed_is_left_on_a_replay_to_the_next_plan_or_to_another_stream(
    filled: Filled, produce: Produce, query: MakeQuery
) -> None:
    name = filled()
    a, b = query(name), query(name)
    assert a.plan()
    a.restart()
    assert a.claim() == {}
    a.finish()
    assert a.run_batch() == {0: (0, 10)}, "its records come in the next one"
    produce(name, [(None, b"y")] * 5)
    until(a.plan, "something to read")
    a.cycle.stop()
    assert b.run_batch() == {0: (10, 15)}
    a.restart()
    assert a.claim() == {}, "b reads it"


def test_a_plan_made_before_a_rebalance_commits_nothing_for_the_partition_that_moved(
    filled: Filled, query: MakeQuery, record_of: RecordOf
) -> None:
    """The broker would take the commit: it fences the member, not the plan."""
    name = filled(partitions=2)
    a, b = query(name, **{"handoff.drainTimeout": "1ms"}), query(name)
    assert a.plan()
    b.until_planning(1)
    (moved,) = b.positions
    assert b.run_batch() == {moved.partition: (0, 10)}
    assert a.claim() == {1 - moved.partition: (0, 10)}
    record = record_of(name, moved.partition)
    assert (record.stream, record.next) == (b.done.stream, 10)


def test_a_static_driver_that_was_killed_gets_its_partitions_back_under_the_new_protocol(
    topic: MakeTopic, produce: Produce, query: MakeQuery, cluster: Cluster
) -> None:
    """KIP-848 refuses the new member until the killed one's session is over: it tries again until then."""
    name = topic(partitions=2)
    produce(name, [(None, b"x")] * 10, partition=0)
    static = {"kafka.group.protocol": "consumer", "kafka.group.instance.id": "driver-1"}
    a = query(name, **static)
    killed = multiprocessing.get_context("spawn").Process(target=join_and_hang, args=(dict(a.given),))
    killed.start()
    try:
        until(lambda: len(committed_offsets(cluster, f"group-of-{name}", name)) == 2, "the first driver has both partitions")
    finally:
        killed.kill()
        killed.join()
    assert a.run_batch() == {0: (0, 10)}


def join_and_hang(options: dict[str, str]) -> None:
    one = Query(options)
    while True:
        one.plan()


def test_a_call_that_joins_and_then_waits_for_a_claim_ends_when_the_timeout_is_over_once(
    filled: Filled, query: MakeQuery, cluster: Cluster
) -> None:
    """The others of the group are slow to let it in, and then one of them has a partition that it does not adopt."""
    name = filled(partitions=2)
    eager = {"kafka.partition.assignment.strategy": "range"}
    a = query(name, **{"assignmentTimeout": "20s", "handoff.drainTimeout": "2s", **eager})
    a.until_planning(2)
    assert a.logged.by_partition.keys() == {TopicPartition(name, 0), TopicPartition(name, 1)}
    a.cycle.stop()
    settings = {"partition.assignment.strategy": "range", "heartbeat.interval.ms": "300"}
    with plain_member(cluster, f"group-of-{name}", name, settings, lets_go_after_s=18) as ordinary:
        until(lambda: ordinary.owned == 2, "the ordinary consumer has both partitions")
        a.restart()
        began = time.monotonic()
        with pytest.raises(ClaimTimeout, match=rf"is waiting for {name}-[01] \[0, 10\)"):
            a.claim()
        took_s = time.monotonic() - began
    assert 20 <= took_s < 35


def test_another_clients_commit_is_where_the_query_goes_on(filled: Filled, query: MakeQuery, cluster: Cluster) -> None:
    name = filled()
    commit_as_another_client(cluster, f"group-of-{name}", name, 7, '{"v":4,"s":"evil","n":99}')
    group = GroupAdmin({"bootstrap.servers": cluster.bootstrap_servers})
    assert group.commits(f"group-of-{name}") == {TopicPartition(name, 0): Foreign(7)}
    assert query(name).run_batch() == {0: (7, 10)}


def test_a_record_that_grows_too_large_is_refused_with_the_partition_and_the_streams(
    topic: MakeTopic, produce: Produce, query: MakeQuery, cluster: Cluster
) -> None:
    name = topic()
    owed = tuple(OwedRange(f"stream-that-never-came-back-{number:03}", 0, number, number + 1) for number in range(100))
    full = CommitRecord(stream="b", logged=0, done=0, next=100, owed=owed[:80])
    commit_as_another_client(cluster, f"group-of-{name}", name, full.offset, full.metadata())
    assert len(full.metadata()) < 4095
    longer = full.model_copy(update={"owed": owed})
    a = query(name)
    produce(name, [(None, b"x")] * 110)
    until(a.plan, "the partition")
    commits = a.session.ledger._commits
    partition = next(iter(a.positions))
    with pytest.raises(
        CommitRefused, match=rf"{name}-0: its commit record is \d+ bytes long, .* stream-that-never-came-back-099"
    ):
        a.session.member.call(lambda: commits.commit({partition: longer}))


def test_offsets_of_the_plan_hold_every_owned_partition_the_generation_and_the_ids_of_topics(
    topic: MakeTopic, produce: Produce, query: MakeQuery, record_of: RecordOf
) -> None:
    name = topic(partitions=2)
    produce(name, [(None, b"x")] * 10, partition=1)
    a = query(name)
    assert a.plan()
    offset = a.logged.to_json()
    assert offset["ranges"] == {name: {"0": [[0, 0]], "1": [[0, 10]]}}
    assert offset["generation"] == a.session.assignment.generation
    assert offset["topics"] == {name: record_of(name, 0).topic_id}
    assert PlanOffset.parse(json.loads(json.dumps(offset)), f"group-of-{name}") == a.logged


def test_a_plan_waits_until_enough_offsets_are_there(topic: MakeTopic, produce: Produce, query: MakeQuery) -> None:
    name = topic(partitions=2)
    a = query(name, minOffsetsPerTrigger="4")
    produce(name, [(None, "x")], 0)
    assert a.run_batch() == {0: (0, 1)}, "the first plan of a run waits for nothing"
    produce(name, [(None, "x")] * 3, 0)
    assert not a.plan()
    produce(name, [(None, "x")], 1)
    assert a.run_batch() == {0: (1, 4), 1: (0, 1)}


def test_what_is_there_at_the_end_is_not_waited_for_under_available_now(
    topic: MakeTopic, produce: Produce, query: MakeQuery
) -> None:
    name = topic()
    a = query(name, minOffsetsPerTrigger="4", maxOffsetsPerTrigger="5")
    produce(name, [(None, "x")] * 7)
    a.cycle.fix_target()
    assert [a.run_batch(), a.run_batch()] == [{0: (0, 5)}, {0: (5, 7)}]


def test_a_stream_starts_at_a_time(topic: MakeTopic, cluster: Cluster, query: MakeQuery) -> None:
    name = topic(partitions=2)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(1, 6):
        producer.produce(name, b"x", partition=0, timestamp=1000 * number)
    producer.produce(name, b"x", partition=1, timestamp=1000)
    assert producer.flush(60) == 0
    with pytest.raises(OptionError, match=rf"startingTimestamp: there is no record in {name}-1 at or after 3000"):
        query(name, startingTimestamp="3000").plan()
    a = query(name, startingTimestamp="3000", startingOffsetsByTimestampStrategy="latest")
    assert a.run_batch() == {0: (2, 5)}


def test_starting_offsets_name_every_partition_that_has_no_commit(filled: Filled, produce: Produce, query: MakeQuery) -> None:
    name = filled(partitions=2, count=5)
    with pytest.raises(OptionError, match=rf"startingOffsets names partitions that do not exist: {name}-2"):
        query(name, startingOffsets=f'{{"{name}":{{"0":1,"1":1,"2":1}}}}').plan()
    with pytest.raises(OptionError, match=rf"startingOffsets does not name {name}-1"):
        query(name, startingOffsets=f'{{"{name}":{{"0":1}}}}').plan()
    a = query(name, startingOffsets=f'{{"{name}":{{"0":1,"1":-1}}}}')
    assert a.run_batch() == {0: (1, 5)}
    a.plan()
    a.cycle.stop()
    b = query(name, startingOffsets=f'{{"{name}":{{"0":1}}}}')
    produce(name, [(None, "x")], 1)
    assert b.run_batch() == {1: (5, 6)}, "the group has commits of both"


def test_a_topic_that_does_not_exist_is_named(query: MakeQuery) -> None:
    with pytest.raises(TopicNotFound, match="no-such-topic"):
        query("no-such-topic")


def test_no_broker_is_an_error_within_a_bounded_time(query: MakeQuery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "FIRST_TIMEOUTS_S", (1.0, 1.0))
    began = time.monotonic()
    with pytest.raises(BrokerUnavailable, match=r"kafka\.bootstrap\.servers"):
        query("any", **{"kafka.bootstrap.servers": "127.0.0.1:1"})
    assert time.monotonic() - began < 10
