"""Claims that stay open for long: a trigger of minutes, a backlog, a group that moved to another cluster."""

from __future__ import annotations

import logging
import time

import pytest

from devtools.broker import Cluster
from spark_groupsource.errors import CommitRecordUnreadable
from spark_groupsource.handoff.commit_record import CommitRecord, OpenRange
from spark_groupsource.handoff.plan_offset import PlanOffset
from tests.conftest import MakeTopic, Produce
from tests.kafka.conftest import Filled, MakeQuery, RecordOf
from tests.support.consumers import commit_as_another_client
from tests.support.group_offsets import committed_offsets
from tests.support.waiting import until

ANOTHER_CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"


def test_a_new_query_beside_one_with_a_long_trigger_warns_of_its_claims_when_it_has_died(
    filled: Filled, produce: Produce, query: MakeQuery, record_of: RecordOf, caplog: pytest.LogCaptureFixture
) -> None:
    """The live query's claims stay open until its next trigger. They are not those of a deleted checkpoint."""
    name = filled(partitions=4)
    patience = {"handoff.drainTimeout": "1s"}
    slow, newcomer = query(name, **patience), query(name, **patience)
    assert slow.plan()
    assert len(slow.claim()) == 4
    newcomer.until_planning(2)
    for partition in range(4):
        produce(name, [(None, b"y")] * 5, partition)
    moved = {one.partition for one in newcomer.positions}
    assert newcomer.run_batch() == dict.fromkeys(moved, (10, 15))
    assert all(record_of(name, partition).owed for partition in moved), "the live query's claims are held for it"

    def overdue() -> bool:
        """Some answers of the group later."""
        newcomer.plan()
        return time.monotonic() > later

    later = time.monotonic() + 3
    until(overdue, "three seconds of plans")
    assert "this query is new" not in caplog.text
    slow.cycle.stop()

    def warned() -> bool:
        newcomer.plan()
        return "this query is new" in caplog.text

    until(warned, "its claims are known to be those of a dead query")


def test_a_range_is_reread_by_the_first_plan_after_its_query_was_dead_for_so_long(
    filled: Filled, query: MakeQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan before may be an hour ago. In between only the consumer's thread learns who has died."""
    monkeypatch.setattr("spark_groupsource.group.ledger.SETTLE_BETWEEN_TRIGGERS_S", 0.1)
    name = filled(partitions=2)
    a, b = query(name, **{"handoff.drainTimeout": "1ms"}), query(name, heldClaims="reread-after 1s")
    assert a.plan()
    a.claim()
    b.until_planning(1)
    assert not b.plan(), "everything is claimed by a query that is alive"
    a.cycle.stop()
    held = b.session.ledger._held_ranges

    def dead_for_a_second() -> bool:
        since = dict(held._dead_since).values()
        return len(since) == 2 and held._noted_at - max(since) >= 1

    until(dead_for_a_second, "the consumer's thread learns that the other query is dead")
    assert b.plan()
    assert b.claim() == {0: (0, 10), 1: (0, 10)}


def test_a_trigger_that_is_longer_than_the_drain_timeout_is_worth_one_warning(
    topic: MakeTopic, produce: Produce, query: MakeQuery, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic()
    slow = query(name, **{"handoff.drainTimeout": "1ms"})
    with caplog.at_level(logging.WARNING, "spark_groupsource.query.cycle"):
        for _ in range(3):
            produce(name, [(None, b"x")])
            slow.run_batch()
            time.sleep(0.01)  # The claims stay open for at least ten times as long as a partition may drain.
    (message,) = [record.getMessage() for record in caplog.records if record.name == "spark_groupsource.query.cycle"]
    assert "took longer than handoff.drainTimeout" in message


def test_a_record_of_a_newer_version_stops_the_query_before_it_reads(filled: Filled, query: MakeQuery, cluster: Cluster) -> None:
    """In a rolling upgrade the newer version's record may owe ranges to anybody."""
    name = filled()
    commit_as_another_client(cluster, f"group-of-{name}", name, 5, '{"v":5,"s":"0123456789abcdef","unheard":"of"}')
    with pytest.raises(CommitRecordUnreadable, match=f"The commit record of {name}-0 cannot be read: .* in format 5,"):
        query(name).plan()


def test_a_query_that_restarts_stops_if_a_newer_version_has_its_partition(
    filled: Filled, query: MakeQuery, cluster: Cluster
) -> None:
    """It may be owed what the other one has made of its claim, so it does not go on past that record."""
    name = filled()
    a = query(name)
    assert a.plan()
    a.cycle.stop()
    commit_as_another_client(cluster, f"group-of-{name}", name, 4, '{"v":5,"s":"0123456789abcdef","unheard":"of"}')
    a.restart()
    with pytest.raises(CommitRecordUnreadable, match="in format 5,"):
        a.claim()
    assert committed_offsets(cluster, f"group-of-{name}", name) == {0: 4}


def test_a_record_of_another_cluster_is_where_the_query_goes_on_and_its_claims_are_void(
    filled: Filled, query: MakeQuery, cluster: Cluster, record_of: RecordOf, caplog: pytest.LogCaptureFixture
) -> None:
    name = filled()
    claimed = CommitRecord(
        stream="0123456789abcdef",
        logged=4,
        done=3,
        next=8,
        open=(OpenRange(3, 8),),
        topic_id="A" * 22,
        cluster_id=ANOTHER_CLUSTER,
    )
    commit_as_another_client(cluster, f"group-of-{name}", name, 3, claimed.metadata())
    with caplog.at_level(logging.WARNING, "spark_groupsource"):
        assert query(name).run_batch() == {0: (3, 10)}
    assert any("were written in another Kafka cluster" in message for message in caplog.messages)
    record = record_of(name, 0)
    assert record.cluster_id not in {None, ANOTHER_CLUSTER}


def test_a_checkpoint_of_another_cluster_goes_on_at_the_group_s_commits(
    filled: Filled, query: MakeQuery, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    name = filled()
    commit_as_another_client(cluster, f"group-of-{name}", name, 6)
    moved = query(name)
    here = moved.done
    assert here.cluster is not None
    there = {"stream": here.stream, "group": here.group, "generation": 3, "member": "m", "cluster": ANOTHER_CLUSTER}
    topics, ranges = {name: "A" * 22}, {name: {"0": [[0, 4]]}}
    moved.done = PlanOffset.parse({"v": 4, **there, "plan": 6, "ranges": {name: {"0": [[0, 0]]}}, "topics": topics}, here.group)
    moved.logged = PlanOffset.parse({"v": 4, **there, "plan": 7, "ranges": ranges, "topics": topics}, here.group)
    with caplog.at_level(logging.WARNING, "spark_groupsource"):
        assert moved.claim() == {}, "the plan is replayed as an empty micro-batch"
        moved.finish()
        assert moved.run_batch() == {0: (6, 10)}
    assert sum("the checkpoint belongs to Kafka cluster" in message for message in caplog.messages) == 1
