"""`groupkafka check`: where a query would start, what is lost, and what is claimed."""

from __future__ import annotations

from collections.abc import Mapping

from devtools.broker import Cluster
from spark_groupsource.handoff.commit_record import CommitRecord, OwedRange
from tests.conftest import MakeTopic, Produce
from tests.kafka.check.conftest import Check, query
from tests.support.consumers import commit, joined


def test_starting_offsets_that_leave_out_a_partition_are_an_error(
    topic: MakeTopic, check: Check, plain: Mapping[str, str]
) -> None:
    name = topic(partitions=2)
    checked = check(query(name, plain, startingOffsets=f'{{"{name}":{{"0":5}}}}'))
    assert checked.failed == ["start"]
    assert f"{name}-1" in checked.errors[0][2]


def test_claims_and_commits_beyond_the_log_are_reported_with_what_follows(
    topic: MakeTopic, produce: Produce, cluster: Cluster, check: Check, plain: Mapping[str, str]
) -> None:
    name = topic(partitions=2)
    produce(name, [(None, "x")] * 10, 0)
    record = CommitRecord(stream="alpha", logged=7, done=7, next=9, owed=(OwedRange("beta", 3, 2, 4),))
    with joined(cluster, f"group-of-{name}", name, 2) as consumer:
        commit(consumer, name, 0, record.offset, record.metadata())
        commit(consumer, name, 1, 3)
    checked = check(query(name, plain, kafka_group_id=f"group-of-{name}"))
    assert "starts 2 at the group's commits; 1 offsets to read" in checked.of("start")[0][2]
    assert checked.failed == ["data loss"]
    assert f"{name}-1" in checked.errors[0][2]
    assert f"{name}-0 [2, 4) of stream beta" in checked.of("claims")[0][2]
    assert "does not read them, and goes on" in checked.of("claims")[0][2]
    held = check(query(name, plain, kafka_group_id=f"group-of-{name}", failOnDataLoss="false", outstandingClaims="reread"))
    assert held.exit_code == 0
    assert held.level("data loss") == held.level("claims") == "warning"
    assert "reads them; records may be duplicated" in held.of("claims")[0][2]
