"""What the metrics say of real members of a group, while micro-batches and rebalances run."""

from __future__ import annotations

import threading
import time

import pytest

from spark_groupsource.errors import GroupKafkaError
from spark_groupsource.handoff.commit_record import CommitRecord
from spark_groupsource.metrics.tally import Tally
from spark_groupsource.partition import TopicPartition
from spark_groupsource.query.cycle import Cycle
from tests.conftest import MakeTopic, Produce
from tests.kafka.conftest import Filled, MakeQuery, Query
from tests.support.scraping import scraped
from tests.support.waiting import in_background, until


def counted(query: Query) -> Tally:
    """Have a query that has not joined its group yet count what it does."""
    tally = Tally(query.cycle._options.group_id)
    query.cycle = Cycle(query.cycle._options, observer=tally)
    return tally


def test_follow_a_micro_batch_from_its_plan_to_its_confirmation(topic: MakeTopic, produce: Produce, query: MakeQuery) -> None:
    # A broker takes any text for a group's name.
    name, group = topic(partitions=2), 'a "b"\\c\n{d="e"} f\u00fcr'
    produce(name, [(None, b"x")] * 10, partition=0)
    produce(name, [(None, b"x")] * 4, partition=1)
    a = query(name, **{"kafka.group.id": group, "maxOffsetsPerTrigger": "7"})
    tally = counted(a)
    began = time.time()
    assert a.plan()

    planned = scraped(tally)
    assert planned.value("groupkafka_partition_lag_offsets", group=group, topic=name, partition="0") == 10
    assert planned.by_partition("groupkafka_partition_owned") == {0: 1, 1: 1}
    assert planned.by_partition("groupkafka_partition_end_offset") == {0: 10, 1: 4}
    assert planned.value("groupkafka_member_info", stream=a.done.stream) == 1
    assert planned.value("groupkafka_generation") >= 1
    assert planned.value("groupkafka_rebalances_total", kind="assigned") >= 1
    assert planned.value("groupkafka_planned_offsets_total") == 7
    assert planned.value("groupkafka_last_plan_timestamp_seconds") >= began
    assert planned.value("groupkafka_in_flight_ranges") == 0

    a.claim()
    claimed = scraped(tally)
    assert claimed.value("groupkafka_in_flight_ranges") == 2
    assert claimed.value("groupkafka_in_flight_offsets") == claimed.value("groupkafka_claimed_offsets_total") == 7
    assert began - 1 <= claimed.value("groupkafka_in_flight_oldest_timestamp_seconds") <= time.time()
    assert claimed.by_partition("groupkafka_partition_position_offset") == {0: 5, 1: 2}
    assert claimed.by_partition("groupkafka_partition_lag_offsets") == {0: 10, 1: 4}, "what is in flight is lag, too"
    assert claimed.by_partition("groupkafka_partition_committed_offset") == {0: 0, 1: 0}

    a.finish()
    assert a.run_batch()
    a.plan()
    done = scraped(tally)
    assert done.by_partition("groupkafka_partition_committed_offset") == {0: 10, 1: 4}
    assert done.by_partition("groupkafka_partition_lag_offsets") == {0: 0, 1: 0}
    assert done.value("groupkafka_in_flight_ranges") == 0
    assert not done.series("groupkafka_in_flight_oldest_timestamp_seconds")
    assert done.value("groupkafka_plan_duration_seconds_count") == done.value("groupkafka_claim_duration_seconds_count") == 2
    # Of the adoption, two claims and the confirmation.
    assert done.value("groupkafka_commit_duration_seconds_count") == 4
    assert set(done.series("groupkafka_commit_errors_total").values()) == {0}

    a.cycle.stop()
    assert not scraped(tally).series("groupkafka_partition_owned")


def test_a_partition_that_drains_is_no_longer_owned_and_its_series_go_with_it(filled: Filled, query: MakeQuery) -> None:
    name = filled(partitions=2)
    a, b = query(name), query(name)
    tally, other = counted(a), counted(b)
    assert a.plan()
    a.claim()
    joining = in_background(lambda: b.until_planning(1))
    until(lambda: 0.0 in scraped(tally).by_partition("groupkafka_partition_owned").values(), "a partition drains")
    a.finish()
    a.plan()
    joining.join()
    until(lambda: len(scraped(tally).by_partition("groupkafka_partition_owned")) == 1, "a partition is gone")

    def looked() -> bool:
        b.plan()  # the one before may have been made as the partition came
        return len(scraped(other).by_partition("groupkafka_partition_end_offset")) == 1

    until(looked, "b has looked at its partition")
    ours, theirs = scraped(tally), scraped(other)
    for metric in ("owned", "position_offset", "committed_offset", "end_offset", "lag_offsets"):
        of_a = ours.by_partition(f"groupkafka_partition_{metric}")
        of_b = theirs.by_partition(f"groupkafka_partition_{metric}")
        assert sorted([*of_a, *of_b]) == [0, 1], metric
    assert ours.value("groupkafka_rebalances_total", kind="revoked") == 1
    assert ours.value("groupkafka_drain_duration_seconds_count") == 1
    assert ours.value("groupkafka_drain_duration_seconds_sum") > 0
    assert ours.value("groupkafka_drain_timeouts_total") == 0
    assert theirs.value("groupkafka_held_ranges") == 0


def test_a_claim_that_a_drain_left_open_is_held_by_the_next_owner(filled: Filled, produce: Produce, query: MakeQuery) -> None:
    name = filled(partitions=2)
    a, b = query(name, **{"handoff.drainTimeout": "500ms"}), query(name)
    tally, other = counted(a), counted(b)
    assert a.plan()
    a.claim()
    b.until_planning(1)
    assert scraped(tally).value("groupkafka_drain_timeouts_total") == 1
    assert scraped(tally).value("groupkafka_drain_duration_seconds_sum") >= 0.5
    held = scraped(other)
    assert held.value("groupkafka_held_ranges") == 1
    assert held.value("groupkafka_held_offsets") == 10
    assert abs(held.value("groupkafka_held_oldest_timestamp_seconds") - time.time()) < 600
    (moved,) = b.positions
    produce(name, [(None, b"y")] * 3, partition=moved.partition)
    b.run_batch()
    b.plan()  # confirms it
    held = scraped(other)
    assert held.value("groupkafka_partition_finished_lag_offsets", partition=str(moved.partition)) == 3
    since = held.value("groupkafka_partition_lowest_claim_timestamp_seconds", stream=a.done.stream)
    assert since == held.value("groupkafka_held_oldest_timestamp_seconds")
    a.finish()
    a.plan()

    def settled() -> bool:
        b.plan()
        return scraped(other).value("groupkafka_held_ranges") == 0

    until(settled, "b sees that a has confirmed it")
    assert scraped(other).value("groupkafka_partition_finished_lag_offsets") == 0
    assert not scraped(other).series("groupkafka_partition_lowest_claim_timestamp_seconds")


def test_a_refused_commit_is_counted_and_a_scrape_waits_for_no_thread(filled: Filled, query: MakeQuery) -> None:
    name = filled(count=3)
    a = query(name)
    tally = counted(a)
    assert a.plan()
    member, ledger = a.session.member, a.session.ledger
    stranger = {TopicPartition("there-is-no-such-topic", 0): CommitRecord(stream="s", logged=-1, done=-1, next=0)}
    with pytest.raises(GroupKafkaError) as refused:
        member.call(lambda: ledger._commits.commit(stranger))
    assert scraped(tally).value("groupkafka_commit_errors_total", error=type(refused.value).__name__) == 1

    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        go_on.wait(60)

    busy = in_background(lambda: member.call(hold))
    assert held.wait(60)
    assert scraped(tally).by_partition("groupkafka_partition_lag_offsets") == {0: 3}, "while the consumer's thread is busy"
    go_on.set()
    busy.join()
