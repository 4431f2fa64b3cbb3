"""Members that own nothing: standbys, replays without a partition, and runs of AvailableNow beside a live query."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

import pytest

from spark_groupsource.handoff.commit_record import CommitRecord
from spark_groupsource.handoff.losses import PartitionLoss
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.partition import TopicPartition
from spark_groupsource.query import assignment_wait
from spark_groupsource.query.loss_watch import LossWatch
from tests.conftest import MakeTopic, Produce
from tests.kafka.conftest import Claimed, Filled, MakeQuery, Query, RecordOf, offsets_of, running
from tests.support.waiting import until


@pytest.fixture
def rebalances_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment_wait, "REBALANCE_S", 2.0)
    monkeypatch.setattr(assignment_wait, "QUIET_S", 1.0)


def run_available_now(query: Query) -> list[Claimed]:
    """One run of Trigger.AvailableNow, from its fixed target to its end."""
    query.cycle.fix_target()
    batches = []
    while query.plan():
        batches.append(query.claim())
        query.finish()
    return batches


@pytest.mark.usefixtures("rebalances_are_short")
def test_a_standby_without_a_partition_plans_nothing_and_takes_over_when_the_owner_leaves(
    filled: Filled, produce: Produce, query: MakeQuery, protocol: str
) -> None:
    name = filled()
    owner = query(name, **{"kafka.group.protocol": protocol})
    standby = query(name, **{"kafka.group.protocol": protocol, "handoff.drainTimeout": "1s"})
    assert owner.run_batch() == {0: (0, 10)}
    with running(owner):
        assert not standby.plan()
        assert not standby.plan()
    owner.plan()
    owner.cycle.stop()
    produce(name, [(None, b"y")] * 5)
    assert standby.run_batch() == {0: (10, 15)}


def test_a_pattern_that_matches_nothing_yet_waits_for_its_first_topic_under_the_new_protocol(
    topic: MakeTopic, query: MakeQuery
) -> None:
    prefix = topic()
    early = query(
        prefix,
        **{
            "kafka.group.protocol": "consumer",
            "subscribePattern": f"{prefix}-late-.*",
            "assignmentTimeout": "20s",
            "handoff.drainTimeout": "10s",
            "kafka.metadata.max.age.ms": "1000",
        },
    )
    assert not early.plan()


def test_a_restarted_stream_replays_what_it_is_owed_although_the_group_gives_it_nothing(
    filled: Filled, query: MakeQuery, record_of: RecordOf, protocol: str
) -> None:
    name = filled()
    short = {"kafka.group.protocol": protocol, "assignmentTimeout": "20s", "handoff.drainTimeout": "10s"}
    blue, green = query(name, **short), query(name, **short)
    assert blue.plan()
    assert blue.claim() == {0: (0, 10)}
    blue.cycle.stop()
    green.until_planning(1)
    blue.restart()
    with running(green):
        assert blue.claim() == {0: (0, 10)}
    assert record_of(name, 0).stream == green.done.stream


@pytest.mark.parametrize("has_checkpoint", [False, True], ids=["fresh", "on its checkpoint"])
def test_available_now_beside_a_live_query_reads_its_share(
    filled: Filled, produce: Produce, query: MakeQuery, protocol: str, has_checkpoint: bool
) -> None:
    """A newcomer's first assignment is empty under the cooperative protocol: the peer has still to give something up."""
    name = filled(partitions=4, count=200)
    live = query(name, **{"kafka.group.protocol": protocol, "maxOffsetsPerTrigger": "4"})
    run = query(name, **{"kafka.group.protocol": protocol})
    before: list[Claimed] = []
    if has_checkpoint:
        before = [run.run_batch()]
        run.plan()
        run.cycle.stop()
        for partition in range(4):
            produce(name, [(None, b"y")] * 200, partition)
        run.restart()
    with running(live) as read:
        until(lambda: read if not has_checkpoint else live.cycle.report(), "the live query is a member")
        mine = run_available_now(run)
        run.cycle.stop()
        assert offsets_of(mine), "the run ended without a record, though the group has partitions for it"
    by_both = offsets_of(before + mine + read)
    assert all(len(offsets) == len(set(offsets)) for offsets in by_both.values()), "read twice"


def test_available_now_is_expelled_at_the_moment_of_its_plan(
    monkeypatch: pytest.MonkeyPatch, filled: Filled, query: MakeQuery, protocol: str
) -> None:
    """As on a busy machine. Nothing is left of the plan, although the run had every partition when it was begun."""
    short = {"kafka.session.timeout.ms": "6000"} if protocol == "classic" else {}
    short |= {"kafka.max.poll.interval.ms": "6000", "handoff.drainTimeout": "1s"}
    run = query(filled(partitions=2), **{"kafka.group.protocol": protocol}, **short)
    run.until_planning(2)
    examine = LossWatch.examine
    expelled: list[bool] = []

    def expelled_after(
        watch: LossWatch, stream: Stream, records: Mapping[TopicPartition, CommitRecord]
    ) -> Sequence[PartitionLoss]:
        losses = examine(watch, stream, records)
        if not expelled:
            expelled.append(True)
            run.session.once(lambda _: time.sleep(7))
            until(lambda: not run.positions, "the group has expelled the member")
        return losses

    monkeypatch.setattr(LossWatch, "examine", expelled_after)
    assert offsets_of(run_available_now(run)) == {0: [*range(10)], 1: [*range(10)]}


@pytest.mark.usefixtures("rebalances_are_short")
def test_available_now_without_a_partition_ends_with_a_warning(
    filled: Filled, query: MakeQuery, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As many members as partitions: the group has nothing to give, and the run says so instead of ending in silence."""
    name = filled()
    short = {"kafka.group.protocol": protocol, "handoff.drainTimeout": "1s"}
    live, run = query(name, **short), query(name, **short)
    with running(live), caplog.at_level(logging.WARNING, "spark_groupsource"):
        until(live.cycle.report, "the live query is a member")
        assert run_available_now(run) == []
    assert any("gave this run no partition" in message for message in caplog.messages), caplog.messages


def test_a_retired_query_s_last_run_settles_what_the_others_hold_for_it(
    filled: Filled, query: MakeQuery, record_of: RecordOf, protocol: str
) -> None:
    """Blue/green: blue's last run replays a range that green holds for it, and has then to say in a record that it is done."""
    name = filled(partitions=2)
    blue = query(name, **{"kafka.group.protocol": protocol})
    green = query(name, **{"kafka.group.protocol": protocol, "heldClaims": "hold"})
    assert blue.plan()
    assert blue.claim() == {0: (0, 10), 1: (0, 10)}
    blue.cycle.stop()
    green.until_planning(2)
    with running(green):
        blue.restart()
        blue.cycle.fix_target()
        assert blue.claim() == {0: (0, 10), 1: (0, 10)}
        blue.finish()
        while blue.plan():
            blue.claim()
            blue.finish()
        blue.cycle.stop()
        until(lambda: not any(record_of(name, partition).owed for partition in range(2)), "green drops what blue has confirmed")
