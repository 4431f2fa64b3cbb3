"""Whether a query may join its group: the members, the group protocol, and the brokers' settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError

from spark_groupsource.brokers.client import make_client
from spark_groupsource.brokers.group_view import GroupMember, PartitionView
from spark_groupsource.cli.check import group as steps
from spark_groupsource.cli.check.findings import Finding, Level, ok
from spark_groupsource.cli.check.group import (
    ask_for_protocol,
    compare_assignors,
    compare_instance_ids,
    compare_settings,
    judge_retention,
    judge_session,
    refusal_of,
)
from spark_groupsource.errors import BrokerUnavailable, NotAuthorized
from spark_groupsource.handoff.commit_record import CommitRecord, Foreign, OpenRange
from spark_groupsource.partition import TopicPartition
from tests.support.check_sources import ONE, OTHER, STRATEGY, ZERO, group, member, only, options, source

MEMBER = member("a", ZERO, instance_id="spare")


@pytest.mark.parametrize(
    ("ours", "theirs", "level"),
    [
        ({}, ("classic", "cooperative-sticky"), Level.OK),
        ({STRATEGY: "roundrobin,range"}, ("classic", "range"), Level.OK),
        ({STRATEGY: "roundrobin"}, ("classic", "range"), Level.ERROR),
        ({}, ("classic", "roundrobin"), Level.ERROR),
        ({}, ("classic", "range"), Level.WARNING),
        ({}, ("classic", ""), Level.WARNING),
        ({}, ("consumer", "uniform"), Level.WARNING),
        ({"kafka_group_protocol": "consumer"}, ("consumer", "uniform"), Level.OK),
        ({"kafka_group_protocol": "consumer"}, ("classic", "cooperative-sticky"), Level.ERROR),
        ({"kafka_group_protocol": "consumer"}, ("classic", "range"), Level.WARNING),
    ],
)
def test_the_assignor_beside_the_members(ours: dict[str, str], theirs: tuple[str, str], level: Level) -> None:
    found = only(compare_assignors(source(group(*theirs, MEMBER), **ours)))
    assert found.level is level, found
    assert ("." in found.text.rpartition(";")[2]) is (level is not Level.OK), "what to do is said unless all is well"
    assert only(compare_assignors(source(group(*theirs), **ours))).level is Level.OK, "without members any will do"


def test_a_static_members_name_that_is_taken() -> None:
    now = group("classic", "range", MEMBER)
    assert not list(compare_instance_ids(source(now)))
    free, taken, refused = (
        only(compare_instance_ids(source(now, kafka_group_instance_id=name, **more)))
        for name, more in (("other", {}), ("spare", {}), ("spare", {"kafka_group_protocol": "consumer"}))
    )
    assert [found.level for found in (free, taken, refused)] == [Level.OK, Level.WARNING, Level.WARNING]
    assert "will take its place" in taken.text
    assert "will be rejected until that member has left" in refused.text


@pytest.mark.parametrize(
    ("code", "level", "text"),
    [
        (KafkaError.UNSUPPORTED_ASSIGNOR, Level.OK, "the brokers support kafka.group.protocol=consumer"),
        (KafkaError.UNSUPPORTED_VERSION, Level.ERROR, "the brokers do not support kafka.group.protocol=consumer"),
        (KafkaError._UNSUPPORTED_FEATURE, Level.ERROR, "the brokers do not support kafka.group.protocol=consumer"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Level.ERROR, "asking for kafka.group.protocol=consumer: "),
        (None, Level.WARNING, "the coordinator did not answer"),
    ],
)
def test_what_the_brokers_say_to_the_new_protocol(
    monkeypatch: pytest.MonkeyPatch, code: int | None, level: Level, text: str
) -> None:
    # librdkafka hides the code of a fatal error, and quotes its text.
    quoted = None if code is None else KafkaError(KafkaError._FATAL, f"Fatal error: {KafkaError(code).str()}: heartbeat")
    for refusal in (None if code is None else KafkaError(code), quoted):
        monkeypatch.setattr(steps, "refusal_of", lambda _, refusal=refusal: refusal)
        found = only(ask_for_protocol(source(kafka_group_protocol="consumer")))
        assert (found.level, found.check) == (level, "protocol")
        if refusal is not quoted or code != KafkaError.TOPIC_AUTHORIZATION_FAILED:
            assert found.text.startswith(text)


def test_the_classic_protocol_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "refusal_of", lambda _: pytest.fail("all brokers have it"))
    assert not list(ask_for_protocol(source()))


def test_the_question_is_asked_without_the_instance_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no broker here, so nobody answers."""
    monkeypatch.setattr(steps, "CHECK_STEP_S", 0.0)
    settings: list[Mapping[str, str]] = []

    def made(kind: Any, given: Mapping[str, str], *more: Any) -> Any:
        settings.append(given)
        return make_client(kind, given, *more)

    monkeypatch.setattr(steps, "make_client", made)
    assert refusal_of(options(kafka_group_instance_id="spare", kafka_group_protocol="consumer")) is None
    assert "group.instance.id" not in settings[0]


NOW_S = 1_800_000_000.0
DAY_MINUTES = 24 * 60


def test_brokers_that_show_no_bounds_refuse_nothing() -> None:
    for shown in ({}, {"group.min.session.timeout.ms": "6000"}):
        found = judge_session(options(), shown)
        assert found == ok("session", "kafka.session.timeout.ms=45000: the brokers do not show their limits")
    assert "is not shown, unless" in judge_session(options(kafka_group_protocol="consumer"), {}).text


@pytest.mark.parametrize(
    ("refused", "named"),
    [(NotAuthorized("no"), "requires the DESCRIBE_CONFIGS ACL"), (BrokerUnavailable("not here"), "not here")],
)
def test_settings_that_the_brokers_do_not_show_are_no_warning(
    monkeypatch: pytest.MonkeyPatch, refused: Exception, named: str
) -> None:
    def refuse(_: object) -> None:
        raise refused

    monkeypatch.setattr(steps, "settings_of_a_broker", refuse)
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
    assert "expire after 1 day without members" in idle.text
    assert "for example in orders-0" in idle.text
    assert "Start the query now" in idle.text
    for found, text in (
        (retention({ZERO: 30, ONE: 4}), "has read within this time"),
        (retention({ZERO: 30, ONE: 5}, claimed_at=NOW_S - 3600), "has read within this time"),
        (retention({ZERO: None, ONE: None}), "it is not known how long the group has been idle"),
        (retention({}, member("m", ZERO)), "the group has members"),
    ):
        assert found.level is Level.OK
        assert text in found.text
    assert retention({ZERO: 30, ONE: 5}, claimed_at=NOW_S - 25 * 3600).level is Level.WARNING
