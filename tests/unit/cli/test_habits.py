"""The findings of `groupkafka check` about habits of production, whatever the brokers answer."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from spark_groupsource.brokers.group_view import GroupMember, PartitionView
from spark_groupsource.cli import check
from spark_groupsource.cli.checkpoint_files import NewestBatch, newest_batch
from spark_groupsource.cli.findings import Finding, Level
from spark_groupsource.cli.habits import (
    of_checkpoint,
    of_members,
    of_no_checkpoint,
    of_reader,
    of_retention,
    of_session,
    of_unreadable_checkpoint,
)
from spark_groupsource.fetch import native_consumer, pure_consumer
from spark_groupsource.fetch.choice import InstalledReader
from spark_groupsource.handoff.commit_record import CommitRecord, Foreign, OpenRange
from spark_groupsource.handoff.plan_offset import PlanOffset
from spark_groupsource.partition import TopicPartition
from tests.unit.cli.test_findings import options, view

ZERO, ONE, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("others", 0)
NOW_S = 1_800_000_000.0
DAY_MINUTES = 24 * 60


def member(name: str, *partitions: TopicPartition) -> GroupMember:
    return GroupMember(name, name, None, "host", frozenset(partitions))


@pytest.mark.parametrize(
    ("session", "level", "named"),
    [
        ("6000", Level.OK, "accept 6000 to 1800000"),
        ("5999", Level.ERROR, "below group.min.session.timeout.ms (6000)"),
        ("1800001", Level.ERROR, "above group.max.session.timeout.ms (1800000)"),
    ],
)
def test_the_session_beside_the_brokers_bounds(session: str, level: Level, named: str) -> None:
    bounds = {"group.min.session.timeout.ms": "6000", "group.max.session.timeout.ms": "1800000"}
    found = of_session(options(kafka_session_timeout_ms=session, kafka_max_poll_interval_ms="1800001"), bounds)
    assert (found.check, found.level) == ("session", level)
    assert named in found.text
    assert ("Set it to" in found.text) is (level is Level.ERROR)


def test_brokers_that_show_no_bounds_refuse_nothing() -> None:
    for shown in ({}, {"group.min.session.timeout.ms": "6000"}):
        found = of_session(options(), shown)
        assert (found.level, found.text) == (Level.OK, "kafka.session.timeout.ms=45000: the brokers do not show their bounds")
    assert "is not shown, unless" in of_session(options(kafka_group_protocol="consumer"), {}).text


def retention(first: dict[TopicPartition, int | None], *members: GroupMember, claimed_at: float | None = None) -> Finding | None:
    claimed = None if claimed_at is None else round(claimed_at)
    opened = () if claimed is None else (OpenRange(10, 20),)
    record = CommitRecord(stream="a", logged=4, done=3, next=20, open=opened, claimed_at=claimed)
    commits = tuple(PartitionView(one, None, commit, 50) for one, commit in ((ZERO, record), (ONE, Foreign(5)), (OTHER, record)))
    return of_retention(options(), view("classic", "range", *members, partitions=commits), DAY_MINUTES, NOW_S, first)


def test_commits_expire_in_a_group_without_members_that_reads_nothing() -> None:
    idle = retention({ZERO: 30, ONE: 5})
    assert idle is not None
    assert idle.level is Level.WARNING
    assert "kept for 1 day without members" in idle.text
    assert "in orders-0 for example" in idle.text
    assert "Start the query now" in idle.text
    for found, text in (
        (retention({ZERO: 30, ONE: 4}), "has read within this time"),
        (retention({ZERO: 30, ONE: 5}, claimed_at=NOW_S - 3600), "has read within this time"),
        (retention({ZERO: None, ONE: None}), "since when it is idle is not known"),
        (retention({}, member("m", ZERO)), "it has members"),
    ):
        assert found is not None
        assert found.level is Level.OK
        assert text in found.text
    old = retention({ZERO: 30, ONE: 5}, claimed_at=NOW_S - 25 * 3600)
    assert old is not None
    assert old.level is Level.WARNING


def test_a_group_without_commits_of_these_topics_has_nothing_to_lose() -> None:
    assert of_retention(options(), None, DAY_MINUTES, NOW_S, {ZERO: 0}) is None
    others = view("classic", "range", partitions=(PartitionView(OTHER, None, Foreign(1), 5),))
    assert of_retention(options(), others, DAY_MINUTES, NOW_S, {ZERO: 0}) is None


def test_members_beside_partitions() -> None:
    def found(*members: GroupMember) -> tuple[Level, str] | None:
        one = of_members(options(), view("classic", "range", *members), [ZERO, ONE])
        return None if one is None else (one.level, one.text)

    assert found() is None
    assert found(member("a", ZERO, ONE)) == (Level.OK, "1 member for 2 partitions")
    assert found(member("a", ZERO), member("b", ONE)) == (
        Level.OK,
        "2 members for 2 partitions; one more member would be a standby",
    )
    assert found(member("a", ZERO), member("b", ONE), member("c", OTHER)) == found(member("a", ZERO), member("b", ONE))
    more = found(member("a", ZERO), member("b", ONE), member("c"))
    assert more is not None
    assert more[0] is Level.WARNING
    assert more[1].startswith("3 members for 2 partitions: 1 of them can have none")
    assert of_members(options(), None, [ZERO]) is None


def test_the_reader_and_why() -> None:
    native = of_reader("2.16.1", InstalledReader(native_consumer.read, "native"))
    pure = of_reader("2.16.1", InstalledReader(pure_consumer.read, "pure Python", "no compiler", "install one"))
    assert (native.level, pure.level) == (Level.OK, Level.WARNING)
    assert "native reader, with librdkafka 2.16.1" in native.text
    assert "cannot be used: no compiler." in pure.text
    assert "To use the native reader: install one." in pure.text


def plan_of(group: str) -> PlanOffset:
    return PlanOffset.build(stream="5e7", plan=41, generation=1, member="m", group=group, ranges={})


def test_without_a_checkpoint_location_there_is_advice_and_no_warning() -> None:
    found = of_no_checkpoint()
    assert (found.level, found.check) == (Level.OK, "checkpoint")
    assert "until the next trigger" in found.text
    assert "spark_groupsource.register(spark)" in found.text


@pytest.mark.parametrize(
    ("newest", "level", "named"),
    [
        (None, Level.OK, "has no micro-batch yet (folder offsets)"),
        (NewestBatch(41, (plan_of("billing"),), True), Level.OK, "micro-batch 41 is plan 41 of stream 5e7, and is finished"),
        (NewestBatch(41, (plan_of("a"), plan_of("billing")), False), Level.OK, "plan 41 of stream 5e7, and is not finished"),
        (NewestBatch(41, (), True), Level.WARNING, "has no offset of this source"),
        (NewestBatch(41, (), True, "Too old: do this."), Level.ERROR, "the query would fail. Too old: do this."),
        (NewestBatch(41, (plan_of("b"), plan_of("a")), True), Level.ERROR, "is of group a and b, not of billing"),
    ],
)
def test_the_checkpoint_beside_the_group(newest: NewestBatch | None, level: Level, named: str) -> None:
    found = of_checkpoint(options(), "s3://key:secret@bucket/a", newest)
    assert (found.level, found.check) == (level, "checkpoint")
    assert named in found.text
    assert found.text.startswith("checkpointLocation = s3://***@bucket/a: ")
    of_another = level is not Level.OK and (newest is None or newest.refused is None)
    assert ("Set it to the writer's checkpointLocation" in found.text) is of_another


def test_a_checkpoint_that_cannot_be_read_says_what_follows() -> None:
    found = of_unreadable_checkpoint("/data/a cannot be read: no such host.")
    assert found.level is Level.WARNING
    assert found.text.startswith("checkpointLocation = /data/a cannot be read: no such host. Until that is corrected, the claims")


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


@pytest.mark.parametrize(("version", "said"), [(3, "development version"), (5, "newer version")])
def test_the_newest_micro_batch_of_another_version_is_known_as_that(tmp_path: Path, version: int, said: str) -> None:
    (tmp_path / "offsets").mkdir()
    offset = {**plan_of("billing").to_json(), "v": version}
    (tmp_path / "offsets" / "7").write_text("\n".join(["v1", "{}", "-", '{"v":{"0":5}}', '{"v":3}', json.dumps(offset)]))
    newest = newest_batch(str(tmp_path))
    assert newest is not None
    assert newest.plans == ()
    assert f"{said} of spark_groupsource" in str(newest.refused)
    assert f"offset format {version}" in str(newest.refused)


def test_a_file_system_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    late = threading.Event()

    def hang(location: str) -> None:
        late.wait(60)

    monkeypatch.setattr(check, "newest_batch", hang)
    monkeypatch.setattr(check, "CHECK_STEP_S", 0.05)
    found = check._of_checkpoint(options(checkpointLocation="hdfs://host/a"))
    late.set()
    assert found.level is Level.WARNING
    assert "hdfs://host/a did not answer within 0 s" in found.text
