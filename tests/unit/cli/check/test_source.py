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
    NewestBatch,
    Source,
    describe_topics,
    judge_checkpoint,
    judge_start,
    last_offsets,
    list_claims,
    name_reader,
    newest_batch,
    read_checkpoint,
    read_formats,
)
from spark_groupsource.errors import GroupKafkaError
from spark_groupsource.fetch import native_consumer, pure_consumer
from spark_groupsource.fetch.choice import InstalledReader
from spark_groupsource.fetch.contract import FetchRange
from spark_groupsource.handoff.commit_record import CommitRecord, Foreign, GroupCommit, OpenRange, OtherFormat, OwedRange
from spark_groupsource.handoff.losses import LogState
from spark_groupsource.handoff.plan_offset import PlanOffset
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


@pytest.mark.parametrize(
    ("newest", "level", "named"),
    [
        (None, Level.OK, "has no micro-batch yet (folder offsets)"),
        (NewestBatch(41, (plan_of("billing"),), True), Level.OK, "micro-batch 41 of stream 5e7 is finished"),
        (NewestBatch(41, (plan_of("a"), plan_of("billing")), False), Level.OK, "micro-batch 41 of stream 5e7 is not finished"),
        (NewestBatch(41, (), True), Level.WARNING, "has no offset of this source"),
        (NewestBatch(41, (), True, "Too old: do this."), Level.ERROR, "the query would fail. Too old: do this."),
        (NewestBatch(41, (plan_of("b"), plan_of("a")), True), Level.ERROR, "belongs to group a and b, not to billing"),
    ],
)
def test_the_checkpoint_beside_the_group(newest: NewestBatch | None, level: Level, named: str) -> None:
    found = judge_checkpoint(options(), "checkpointLocation = s3://***@bucket/a", newest)
    assert (found.level, found.check) == (level, "checkpoint")
    assert named in found.text
    assert found.text.startswith("checkpointLocation = s3://***@bucket/a: ")
    of_another = level is not Level.OK and (newest is None or newest.refused is None)
    assert ("Set it to the writer's checkpointLocation" in found.text) is of_another


def test_the_newest_micro_batch_is_read_from_the_logs(tmp_path: Path) -> None:
    assert newest_batch(str(tmp_path)) is None
    (tmp_path / "offsets").mkdir()
    assert newest_batch(str(tmp_path)) is None
    for number in (9, 10):
        lines = ["v1", "{}", '{"orders":{"0":5}}', json.dumps(plan_of(f"group-{number}").to_json())]
        (tmp_path / "offsets" / str(number)).write_text("\n".join(lines))
    assert newest_batch(f"file:{tmp_path}") == NewestBatch(10, (plan_of("group-10"),), False)
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "10").write_text("v1\n{}")
    assert newest_batch(str(tmp_path)) == NewestBatch(10, (plan_of("group-10"),), True)


@pytest.mark.parametrize("version", [3, 5])
def test_the_newest_micro_batch_of_another_version_is_known_as_that(tmp_path: Path, version: int) -> None:
    (tmp_path / "offsets").mkdir()
    offset = {**plan_of("billing").to_json(), "v": version}
    (tmp_path / "offsets" / "7").write_text("\n".join(["v1", "{}", "-", '{"v":{"0":5}}', '{"v":3}', json.dumps(offset)]))
    newest = newest_batch(str(tmp_path))
    assert newest is not None
    assert newest.plans == ()
    assert f"another version of spark_groupsource wrote format {version} there" in str(newest.refused)


def test_a_file_system_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    late = threading.Event()

    def hang(_: str) -> None:
        late.wait(60)

    monkeypatch.setattr(steps, "newest_batch", hang)
    monkeypatch.setattr(steps, "CHECK_STEP_S", 0.05)
    found = only(read_checkpoint(source(checkpointLocation="hdfs://host/a")))
    late.set()
    assert found.level is Level.WARNING
    assert "hdfs://host/a did not answer within 0 s" in found.text


def test_the_reader_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "installed_reader", lambda: InstalledReader(native_consumer.read, "native"))
    native = only(name_reader(source()))
    reader = InstalledReader(pure_consumer.read, "pure Python", "no compiler", "install one")
    monkeypatch.setattr(steps, "installed_reader", lambda: reader)
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
    places = "1 at the group's commits and 1 without a commit at the latest (startingOffsets)"
    found = [("ok", f"2 partitions: a query with a new checkpoint starts {places}; 30 offsets to read")]
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
    left = "continues without them; only the query that claimed them reads them, after you restart it"
    assert left in claims(None).text
    assert left in claims(None, heldClaims="hold").text
    assert "reads them; records may be duplicated" in claims(None, heldClaims="reread").text
    assert "reads them after 600 s; records may be duplicated" in claims(None, heldClaims="reread-after 10m").text


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
        f"The commit record of orders-0 cannot be read: another version of spark_groupsource wrote format {version} "
    )
    assert "CommitRecordUnreadable" in found.text
    assert "others" not in found.text
    assert only(list_claims(of_others)).text == "nothing is claimed in the other partitions"
    assert not list(read_formats(source()))
