"""Where a query with a new checkpoint starts, and what is lost already."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from spark_groupsource.cli.check.start import find_start, judge_start
from spark_groupsource.handoff.commit_record import CommitRecord, Foreign, GroupCommit, OpenRange, OtherFormat
from spark_groupsource.handoff.losses import LogState
from spark_groupsource.partition import TopicPartition
from tests.support.check_sources import ONE, ZERO, options, source


def start(
    partitions: list[TopicPartition],
    commits: Mapping[TopicPartition, GroupCommit],
    starting: Mapping[TopicPartition, int],
    logs: LogState,
    **more: str,
) -> list[tuple[str, str]]:
    found = judge_start(options(**more), partitions, commits, starting, logs)
    return [(finding.level.value, finding.text) for finding in found]


def test_where_a_query_starts_with_commits_and_without() -> None:
    record = CommitRecord(stream="other", logged=4, done=3, next=20, open=(OpenRange(10, 20),))
    logs = LogState({}, {ZERO: 0, ONE: 0}, {ZERO: 50, ONE: 7})
    places = "1 at the group's commits and 1 without a commit at the latest (startingOffsets)"
    found = [("ok", f"2 partitions: a query with a new checkpoint starts {places}; 30 offsets to read")]
    assert start([ZERO, ONE], {ZERO: record}, {ONE: 7}, logs) == found, "what another stream has claimed is not read"


def test_without_a_topic_that_may_be_read_nothing_is_asked() -> None:
    assert not list(find_start(source()))


def test_a_partition_whose_leader_is_silent() -> None:
    found = start([ZERO, ONE], {}, {ZERO: 0}, LogState({}, {ZERO: 0}, {ZERO: 5}))
    assert [level for level, _ in found] == ["ok", "error"]
    assert found[1][1].startswith("The leader does not return the offsets of orders-1,")


@pytest.mark.parametrize(
    ("logs", "lost"),
    [
        (LogState({"orders": ""}, {ZERO: 30}, {ZERO: 50}), "[10, 30)"),
        (LogState({"orders": ""}, {ZERO: 0}, {ZERO: 5}), "[5, 10)"),
    ],
)
def test_records_that_are_already_lost(logs: LogState, lost: str) -> None:
    for value, level in (("true", "error"), ("false", "warning")):
        found = start([ZERO], {ZERO: Foreign(10)}, {}, logs, failOnDataLoss=value)[-1]
        assert found[0] == level
        assert lost in found[1]
        assert "groupkafka reset-offsets" in found[1]


def test_a_topic_that_was_deleted_and_created_again_under_the_groups_commits() -> None:
    before, now = "A" * 22, "B" * 22
    record = CommitRecord(stream="other", logged=4, done=4, next=20, topic_id=before)
    found = start([ZERO], {ZERO: record}, {}, LogState({"orders": now}, {ZERO: 0}, {ZERO: 50}))
    assert "50 offsets to read" in found[0][1]
    assert found[1][0] == "error"


def test_a_partition_with_a_commit_record_of_another_version_is_left_out() -> None:
    logs = LogState({}, {ZERO: 0, ONE: 0}, {ZERO: 50, ONE: 7})
    found = start([ZERO, ONE], {ZERO: OtherFormat(10, 5)}, {ONE: 7}, logs)
    assert [level for level, _ in found] == ["ok"], "the leader of the other partition answers"
