"""What a query left open when it died, step by step, without Spark: who holds it, who reads it, and who stops because of it."""

from __future__ import annotations

import re
import time

import pytest

from devtools.broker import Cluster
from spark_groupsource.fetch.contract import FetchRange
from spark_groupsource.group.group_reader import GroupReader
from spark_groupsource.options.model import Options
from spark_groupsource.spark.readers import GroupKafkaStreamReader
from spark_groupsource.spark.task import RangePartition
from tests.conftest import MakeTopic, Produce
from tests.kafka.conftest import Filled, MakeQuery, Query, RecordOf
from tests.support.consumers import plain_member
from tests.support.waiting import in_background, until


def test_a_claim_that_is_let_go_open_is_owed_to_its_stream_and_settled_by_it(
    filled: Filled, produce: Produce, query: MakeQuery, record_of: RecordOf
) -> None:
    name = filled(partitions=2)
    a, b = query(name, **{"handoff.drainTimeout": "1ms"}), query(name)
    assert a.plan()
    a.claim()
    b.until_planning(1)
    (moved,) = b.positions
    record = record_of(name, moved.partition)
    (owed,) = record.owed
    assert owed[:4] == (a.done.stream, 0, 0, 10)
    assert abs(time.time() - (owed.since or 0)) < 600, "since it was claimed"
    assert (record.offset, record.next) == (0, 10), "lag tools see what is not durably processed"
    produce(name, [(None, b"y")] * 3, partition=moved.partition)
    assert b.run_batch() == {moved.partition: (10, 13)}, "the next owner goes on behind the claim"
    assert a.claim() == {0: (0, 10), 1: (0, 10)}, "the claim still holds for its own stream"
    a.finish()
    a.plan()

    def settled() -> bool:
        b.plan()
        found = record_of(name, moved.partition)
        return not found.owed and found.offset == 13

    until(settled, "b drops the range that a has confirmed")


def test_a_driver_that_dies_with_a_claim_reads_it_after_its_restart_and_nobody_else_does(
    filled: Filled, produce: Produce, query: MakeQuery
) -> None:
    name = filled()
    a, b = query(name), query(name)
    assert a.plan()
    assert a.claim() == {0: (0, 10)}
    a.cycle.stop()
    b.until_planning(1)
    assert not b.plan(), "the range is a's"
    produce(name, [(None, b"y")] * 5)
    assert b.run_batch() == {0: (10, 15)}
    a.restart()
    assert a.claim() == {0: (0, 10)}, "the replay reads exactly what was planned"


def dead_with_a_claim(one: Query) -> None:
    """The query has claimed what there is, and is gone."""
    assert one.plan()
    assert one.claim()
    one.cycle.stop()


def test_a_range_of_a_dead_query_is_reread_at_once_beside_what_is_new_and_its_stream_leaves_it(
    filled: Filled, produce: Produce, query: MakeQuery, record_of: RecordOf
) -> None:
    name = filled()
    a, b = query(name), query(name, heldClaims="reread")
    dead_with_a_claim(a)
    produce(name, [(None, b"y")] * 5)
    until(b.plan, "something to read")
    before = record_of(name, 0)
    assert [entry.range for entry in before.owed] == [(0, 10)], "planned, but not yet claimed"
    assert b.claim() == {0: (0, 10, 10, 15)}
    claimed = record_of(name, 0)
    assert (claimed.offset, claimed.next, claimed.open, claimed.owed) == (0, 15, ((0, 10), (10, 15)), ())
    a.restart()
    assert a.claim() == {}, "b has taken it"
    b.finish()
    b.plan()
    confirmed = record_of(name, 0)
    assert confirmed.offset == 15


def test_the_tasks_of_a_replay_keep_their_ranges_and_numbers_when_another_stream_has_reread_some(
    filled: Filled, query: MakeQuery
) -> None:
    name = filled(partitions=6)
    a, b, c = query(name), query(name, heldClaims="reread"), query(name, heldClaims="hold")
    assert a.plan()
    first = tasks(a)
    assert [len(task) for task in first] == [2, 2, 1, 1]
    a.cycle.stop()
    joining = in_background(lambda: b.until_planning(3))
    c.until_planning(3)
    joining.join()
    until(lambda: b.plan() and len(b.claim()) == 3, "b reads what is owed in its three partitions")
    reread = {partition.partition for partition in b.positions}
    a.restart()
    assert tasks(a) == [tuple(one for one in task if one.partition not in reread) for task in first]


def tasks(one: Query) -> list[tuple[FetchRange, ...]]:
    """What each task of the newest plan reads, in the order of their numbers."""
    reader = GroupKafkaStreamReader(Options.parse(one.given))
    reader._cycle = one.cycle
    found = reader.partitions(one.done.to_json(), one.logged.to_json())
    return [task.ranges for task in found if isinstance(task, RangePartition)]


def test_a_replay_reads_the_reread_range_again_and_a_third_query_takes_it_from_a_dead_second(
    filled: Filled, query: MakeQuery
) -> None:
    name = filled()
    a, b, c = query(name), query(name, heldClaims="reread"), query(name, heldClaims="reread")
    dead_with_a_claim(a)
    assert b.run_batch() == {0: (0, 10)}
    b.done = b.cycle.first()
    b.restart()
    assert b.claim() == {0: (0, 10)}
    b.cycle.stop()
    assert c.run_batch() == {0: (0, 10)}


def test_a_plain_member_that_keeps_a_dead_stream_s_record_does_not_make_it_look_alive(
    filled: Filled, query: MakeQuery, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    monkeypatch.setattr("spark_groupsource.group.evidence.ADOPTED_WITHIN_S", 1.0)
    name = filled(partitions=2)
    more = {"kafka.group.protocol": protocol}
    classic = {"partition.assignment.strategy": "cooperative-sticky", "heartbeat.interval.ms": "300"}
    theirs = {"group.protocol": "consumer"} if protocol == "consumer" else classic
    a, b = query(name, **more), query(name, heldClaims="reread", **more)
    dead_with_a_claim(a)
    with plain_member(cluster, f"group-of-{name}", name, theirs) as plain:
        until(lambda: plain.owned == 2, "both partitions")
        b.until_planning(1)
        (left,) = b.positions
        until(lambda: asks(b), "the group is asked for its members")
        assert b.run_batch() == {left.partition: (0, 10)}
        until(lambda: not asks(b), "nothing is held any more")


def test_a_new_query_beside_a_killed_one_warns_at_its_start_and_goes_on_and_each_record_is_read_once(
    filled: Filled, produce: Produce, query: MakeQuery, caplog: pytest.LogCaptureFixture
) -> None:
    name = filled()
    a, b = query(name), query(name)
    dead_with_a_claim(a)
    b.until_planning(1)
    (warning,) = [text for text in caplog.messages if text.startswith("this query is new")]
    assert f"have claimed but not confirmed 10 offsets in 1 partitions: streams {a.done.stream}." in warning
    assert "read everything else. To get every record once, restart those queries from their checkpoints" in warning
    produce(name, [(None, b"y")] * 5)
    assert b.run_batch() == {0: (10, 15)}
    a.restart()
    assert a.claim() == {0: (0, 10)}, "as the warning says"


def test_a_query_is_not_called_new_when_it_was_told_to_hold_claims_or_has_a_checkpoint(
    filled: Filled, query: MakeQuery, caplog: pytest.LogCaptureFixture
) -> None:
    name = filled()
    a, holding = query(name), query(name, heldClaims="hold")
    dead_with_a_claim(a)
    holding.until_planning(1)
    assert not holding.plan()
    report = holding.cycle.report()
    assert report is not None
    assert (report["held"], report["totalHeld"]) == ({name: {"0": 10}}, 10)
    assert re.search(rf"10 offsets are held: stream {a.done.stream}.*{name}-0 \[0, 10\)", caplog.text)
    holding.cycle.stop()
    with_checkpoint = query(name)
    with_checkpoint.done = with_checkpoint.logged = with_checkpoint.done.model_copy(update={"plan": 3})
    with_checkpoint.until_planning(1)
    assert not with_checkpoint.plan()
    assert "this query is new" not in caplog.text


def test_a_new_query_does_not_say_of_a_claim_that_came_up_later_that_it_was_before(
    topic: MakeTopic, produce: Produce, query: MakeQuery, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic(partitions=2)
    a, b = query(name), query(name)
    a.until_planning(2)
    joining = in_background(lambda: b.until_planning(1))
    a.until_planning(1)
    joining.join()
    for partition in (0, 1):
        produce(name, [(None, b"x")] * 10, partition=partition)
    dead_with_a_claim(a)
    b.until_planning(2)
    assert any(record.owed for record in b.session.ledger._records.values())

    def warned() -> bool:
        b.plan()
        return "are held" in caplog.text

    until(warned, "b knows what is owed")
    assert "this query is new" not in caplog.text


def asks(query: Query) -> bool:
    """Return whether the process runs that the group's members are asked in."""
    reader = query.session.ledger._confirmed_plans._reader
    assert isinstance(reader, GroupReader)
    return reader._admin.pid is not None
