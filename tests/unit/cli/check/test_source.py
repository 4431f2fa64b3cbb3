"""What a query would read: topics, its start, records, what others have claimed, and its checkpoint.

tests/kafka/cli/check/test_source.py asks real brokers.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from spark_groupsource.brokers.group_view import GroupMember, PartitionView
from spark_groupsource.brokers.topics import TopicDescription, Topics
from spark_groupsource.cli.check import source as steps
from spark_groupsource.cli.check.findings import Finding, Level
from spark_groupsource.cli.check.source import (
    Source,
    describe_topics,
    judge_start,
    last_offsets,
    list_claims,
    name_reader,
    read_checkpoint,
    read_formats,
)
from spark_groupsource.errors import CheckpointUnreadable, GroupKafkaError
from spark_groupsource.fetch.contract import FetchRange
from spark_groupsource.handoff.commit_record import CommitRecord, Foreign, GroupCommit, OpenRange, OtherFormat, OwedRange
from spark_groupsource.handoff.losses import LogState
from spark_groupsource.handoff.plan_offset import PlanOffset
from spark_groupsource.native.libraries import NativeUnavailable
from spark_groupsource.partition import TopicPartition
from tests.support.check_sources import ONE, OTHER, ZERO, group, member, only, options, source


class Found:
    """The brokers' answer."""

    def __init__(self, answer: dict[str, TopicDescription | GroupKafkaError]) -> None:
        self.answer = answer

    def describe(self, names: list[str]) -> dict[str, TopicDescription | GroupKafkaError]:
        return {name: self.answer[name] for name in names}

    def partitions(self) -> list[TopicPartition]:
        return [
            partition for found in self.answer.values() if isinstance(found, TopicDescription) for partition in found.partitions
        ]


def described(known: Source, **answer: TopicDescription | GroupKafkaError) -> list[Finding]:
    known.topics = cast("Topics", cast("Any", Found(answer)))
    return list(describe_topics(known))


def topic(*partitions: TopicPartition, allowed: frozenset[str] | None = frozenset({"READ"})) -> TopicDescription:
    return TopicDescription(frozenset(partitions), allowed)


def test_brokers_that_do_not_say_what_is_allowed_are_believed() -> None:
    (found,) = described(source(), orders=topic(ZERO, allowed=None))
    assert found.level is Level.OK
    assert "the broker does not report whether they may be read" in found.text


def plan_of(group: str) -> PlanOffset:
    return PlanOffset.build(stream="5e7", plan=41, generation=1, member="m", group=group, ranges={})


def logged(folder: Path, *lines: str, finished: bool = True) -> None:
    """Write micro-batches 9 and 10, the last one with these lines."""
    for log in ("offsets", "commits"):
        (folder / log).mkdir()
        (folder / log / "9").write_text("v1\n{}\n-")
    (folder / "offsets" / "10").write_text("\n".join(["v1", "{}", *lines]))
    if finished:
        (folder / "commits" / "10").write_text("v1\n{}")


def line_of(group: str, **more: Any) -> str:
    return json.dumps({**plan_of(group).to_json(), **more})


@pytest.mark.parametrize(
    ("lines", "level", "named"),
    [
        ([line_of("billing")], Level.OK, "micro-batch 10 of stream 5e7 is finished"),
        (['{"orders":{"0":5}}', line_of("billing")], Level.OK, "micro-batch 10 of stream 5e7 is finished"),
        ([line_of("a", stream="5e8"), line_of("billing")], Level.OK, "micro-batch 10 of stream 5e7 is finished"),
        (['{"orders":{"0":5}}'], Level.WARNING, "has no offset from this source"),
        (["-", '{"v":{"0":5}}', '{"v":3}'], Level.WARNING, "Set the option to the writer's checkpointLocation"),
        ([line_of("a")], Level.ERROR, "belongs to the consumer group 'a', but kafka.group.id is 'billing'"),
        ([line_of("billing", v=3)], Level.ERROR, "another version of spark_groupsource wrote it in format 3"),
        ([line_of("billing", v=5)], Level.ERROR, "the query would fail"),
        ([line_of("billing"), line_of("a", stream="5e8", v=5)], Level.ERROR, "in format 5"),
    ],
)
def test_the_checkpoint_beside_the_group(tmp_path: Path, lines: list[str], level: Level, named: str) -> None:
    logged(tmp_path, *lines)
    found = only(read_checkpoint(source(checkpointLocation=f"file:{tmp_path}")))
    assert (found.level, found.check) == (level, "checkpoint")
    assert named in found.text
    assert found.text.startswith(f"checkpointLocation = file:{tmp_path}: ")


def test_a_micro_batch_without_a_commit_is_not_finished(tmp_path: Path) -> None:
    logged(tmp_path, line_of("billing"), finished=False)
    assert only(read_checkpoint(source(checkpointLocation=str(tmp_path)))).text.endswith("of stream 5e7 is not finished")


def test_a_checkpoint_before_the_first_micro_batch(tmp_path: Path) -> None:
    found = only(read_checkpoint(source(checkpointLocation=str(tmp_path))))
    assert (found.level, "its offsets folder has no micro-batch yet" in found.text) == (Level.OK, True)


def test_a_checkpoint_that_cannot_be_read_says_what_follows(tmp_path: Path) -> None:
    (tmp_path / "offsets").write_text("not a folder")
    found = only(read_checkpoint(source(checkpointLocation=str(tmp_path))))
    assert found.level is Level.WARNING
    assert found.text.startswith(f"checkpointLocation = {tmp_path} cannot be read: ")
    assert ". Until this is fixed, a finished" in found.text


def test_an_offset_log_of_a_newer_spark_names_the_location(tmp_path: Path) -> None:
    logged(tmp_path)
    (tmp_path / "offsets" / "10").write_text("v9")
    found = only(read_checkpoint(source(checkpointLocation=str(tmp_path))))
    assert found.level is Level.WARNING
    assert found.text.startswith(f"checkpointLocation = {tmp_path}: The offset log file begins with 'v9'")


def test_a_file_system_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    late = threading.Event()

    class Hanging:
        def __init__(self, _: str) -> None:
            late.wait(60)
            raise CheckpointUnreadable("late")

    monkeypatch.setattr(steps, "CheckpointFiles", Hanging)
    monkeypatch.setattr(steps, "CHECK_STEP_S", 0.05)
    found = only(read_checkpoint(source(checkpointLocation="s3://key:secret@bucket/a")))
    late.set()
    assert found.level is Level.WARNING
    assert "checkpointLocation = s3://***@bucket/a did not answer within 0 s" in found.text


def test_the_reader_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "why_unavailable", lambda: None)
    native = only(name_reader(source()))
    monkeypatch.setattr(steps, "why_unavailable", lambda: NativeUnavailable("no compiler", "install one"))
    pure = only(name_reader(source()))
    assert (native.level, pure.level) == (Level.OK, Level.WARNING)
    assert "native reader, with librdkafka 2." in native.text
    assert "cannot be used: no compiler." in pure.text
    assert "To use the native reader: install one." in pure.text


def test_the_last_offsets_of_a_partition_are_tried() -> None:
    assert last_offsets(LogState({}, {ZERO: 7, ONE: 40}, {ZERO: 7, ONE: 1000})) == FetchRange(*ONE, 900, 1000)
    assert last_offsets(LogState({}, {ZERO: 7, ONE: 40}, {ZERO: 9})) == FetchRange(*ZERO, 7, 9)
    assert last_offsets(LogState({}, {ZERO: 7}, {})) is None


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
    places = "1 at the group's committed offsets and 1 without a committed offset at the latest (startingOffsets)"
    found = [("ok", f"2 partitions: a query with a new checkpoint would start {places}; 30 offsets to read")]
    assert start([ZERO, ONE], {ZERO: record}, {ONE: 7}, logs) == found, "what another stream has claimed is not read"


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


MEMBER = member("a", ZERO)


def claims(owner: GroupMember | None, **more: str) -> Finding:
    record = CommitRecord(stream="b", logged=4, done=3, next=20, open=(OpenRange(10, 20),), owed=(OwedRange("c", 1, 5, 7),))
    seen = (PartitionView(ZERO, owner, record, 50), PartitionView(OTHER, None, record, 50))
    return only(list_claims(source(group("classic", "range", MEMBER, partitions=seen), **more)))


def test_claims_that_others_left_behind_and_what_a_new_query_would_do() -> None:
    running = claims(MEMBER)
    assert running.level is Level.WARNING
    assert "orders-0 [5, 7) of stream c." in running.text, "what a running member has in flight is its own"
    assert "orders-0 [5, 7) of stream c, orders-0 [10, 20) of stream b" in claims(None).text
    assert "others" not in claims(None).text
    left = "will continue without them; only the query that claimed them will read them, once you restart it"
    assert left in claims(None).text
    assert left in claims(None, heldClaims="hold").text
    assert "will read them; records may be duplicated" in claims(None, heldClaims="reread").text
    assert "will read them after 600 s; records may be duplicated" in claims(None, heldClaims="reread-after 10m").text


def test_what_is_in_flight_while_a_classic_group_rebalances_is_its_members_own() -> None:
    record = CommitRecord(stream="c", logged=4, done=3, next=7, open=(OpenRange(5, 7),))
    now = replace(group("classic", "range", partitions=(PartitionView(ZERO, None, record, 50),)), members=(MEMBER,))
    assert only(list_claims(source(now))).level is Level.WARNING
    rebalancing = replace(now, state="completing rebalancing")
    assert only(list_claims(source(rebalancing))).text == "2 offsets are in flight in running queries; nothing is held"


@pytest.mark.parametrize("version", [2, 5])
def test_commit_records_of_another_version(version: int) -> None:
    seen = (PartitionView(ZERO, None, OtherFormat(10, version), 50), PartitionView(OTHER, None, OtherFormat(1, 6), 50))
    of_others = source(group("classic", "range", partitions=seen))
    found = only(read_formats(of_others))
    assert found.level is Level.ERROR
    assert found.text.startswith(
        f"The commit record of orders-0 cannot be read: another version of spark_groupsource wrote it in format {version}, "
    )
    assert "CommitRecordUnreadable" in found.text
    assert "others" not in found.text
    assert only(list_claims(of_others)).text == "nothing is claimed in the other partitions"
    assert not list(read_formats(source()))
