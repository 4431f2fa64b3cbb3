"""The brokers' settings beside the options: the session timeout, and how long commits are kept."""

from __future__ import annotations

import pytest

from spark_groupsource.brokers.group_view import GroupMember, PartitionView
from spark_groupsource.cli.check import settings
from spark_groupsource.cli.check.findings import Finding, Level, ok
from spark_groupsource.cli.check.settings import compare_settings, judge_retention, judge_session
from spark_groupsource.errors import BrokerUnavailable, NotAuthorized
from spark_groupsource.handoff.commit_record import CommitRecord, Foreign, OpenRange
from spark_groupsource.partition import TopicPartition
from tests.support.check_sources import ONE, OTHER, ZERO, group, member, only, options, source

NOW_S = 1_800_000_000.0
DAY_MINUTES = 24 * 60


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
    found = judge_session(options(kafka_session_timeout_ms=session, kafka_max_poll_interval_ms="1800001"), bounds)
    assert (found.check, found.level) == ("session", level)
    assert named in found.text
    assert ("Set it to" in found.text) is (level is Level.ERROR)


def test_brokers_that_show_no_bounds_refuse_nothing() -> None:
    for shown in ({}, {"group.min.session.timeout.ms": "6000"}):
        found = judge_session(options(), shown)
        assert found == ok("session", "kafka.session.timeout.ms=45000: the brokers do not show their bounds")
    assert "is not shown, unless" in judge_session(options(kafka_group_protocol="consumer"), {}).text


@pytest.mark.parametrize(
    ("refused", "named"),
    [(NotAuthorized("no"), "that takes the ACL DESCRIBE_CONFIGS"), (BrokerUnavailable("not here"), "not here")],
)
def test_settings_that_the_brokers_do_not_show_are_no_warning(
    monkeypatch: pytest.MonkeyPatch, refused: Exception, named: str
) -> None:
    def refuse(_: object) -> None:
        raise refused

    monkeypatch.setattr(settings, "settings_of_a_broker", refuse)
    found = only(compare_settings(source()))
    assert (found.level, found.check) == (Level.OK, "settings")
    assert "were not compared with the brokers' settings: " in found.text
    assert named in found.text


def retention(first: dict[TopicPartition, int | None], *members: GroupMember, claimed_at: float | None = None) -> Finding:
    claimed = None if claimed_at is None else round(claimed_at)
    opened = () if claimed is None else (OpenRange(10, 20),)
    record = CommitRecord(stream="a", logged=4, done=3, next=20, open=opened, claimed_at=claimed)
    commits = tuple(
        PartitionView(partition, None, commit, 50) for partition, commit in ((ZERO, record), (ONE, Foreign(5)), (OTHER, record))
    )
    now = group("classic", "range", *members, partitions=commits)
    return only(judge_retention(source(now), DAY_MINUTES, NOW_S, first))


def test_commits_expire_in_a_group_without_members_that_reads_nothing() -> None:
    idle = retention({ZERO: 30, ONE: 5})
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
        assert found.level is Level.OK
        assert text in found.text
    assert retention({ZERO: 30, ONE: 5}, claimed_at=NOW_S - 25 * 3600).level is Level.WARNING


def test_a_group_without_commits_of_these_topics_has_nothing_to_lose() -> None:
    assert not list(judge_retention(source(), DAY_MINUTES, NOW_S, {ZERO: 0}))
    others = group("classic", "range", partitions=(PartitionView(OTHER, None, Foreign(1), 5),))
    assert not list(judge_retention(source(others), DAY_MINUTES, NOW_S, {ZERO: 0}))
