"""The findings of `groupkafka check` that follow from the brokers' answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from confluent_kafka import KafkaError

from spark_groupsource.brokers.group_view import GroupMember, GroupView, PartitionView
from spark_groupsource.cli import check
from spark_groupsource.cli.findings import (
    Finding,
    Known,
    Level,
    of_assignor,
    of_claims,
    of_classic_protocol,
    of_formats,
    of_instance_id,
    of_start,
)
from spark_groupsource.fetch import pure_consumer
from spark_groupsource.fetch.choice import InstalledReader
from spark_groupsource.handoff.commit_record import CommitRecord, Foreign, OpenRange, OtherFormat, OwedRange
from spark_groupsource.handoff.losses import LogState
from spark_groupsource.options.model import Options
from spark_groupsource.partition import TopicPartition, listed
from tests.support.options import BASE

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)
MEMBER = GroupMember("a-1", "a", "spare", "host", frozenset({ZERO}))


def options(**more: str) -> Options:
    return Options.parse({**BASE, **{name.replace("_", "."): value for name, value in more.items()}}, "stream")


def view(protocol: str, assignor: str, *members: GroupMember, partitions: tuple[PartitionView, ...] = ()) -> GroupView:
    return GroupView("billing", "stable", protocol, assignor, "broker 1", members, partitions)


STRATEGY = "kafka_partition_assignment_strategy"


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
    found = of_assignor(options(**ours), view(*theirs, MEMBER))
    assert found.level is level, found
    assert ("." in found.text.rpartition(";")[2]) is (level is not Level.OK), "what to do is said unless all is well"
    assert of_assignor(options(**ours), view(*theirs)).level is Level.OK, "without members any will do"


def test_what_the_new_protocol_would_bring() -> None:
    able = of_classic_protocol(options(), supported=True)
    assert (able.level, able.check) == (Level.OK, "protocol")
    assert "from Kafka 5.0 on" in able.text
    assert able.text.endswith("To change it, stop all members of the group first.")
    given = {"kafka_session_timeout_ms": "30000", STRATEGY: "range"}
    named = "and remove kafka.partition.assignment.strategy and kafka.session.timeout.ms, which it does not have."
    assert of_classic_protocol(options(**given), supported=True).text.endswith(named)


def test_brokers_without_the_new_protocol() -> None:
    unable = of_classic_protocol(options(), supported=False)
    assert (unable.level, unable.check) == (Level.OK, "protocol")
    assert "older than Kafka 4.0, or it is disabled" in unable.text
    assert "5.0" not in unable.text


@pytest.mark.parametrize(
    ("code", "of_classic", "of_consumer"),
    [
        (KafkaError.UNSUPPORTED_ASSIGNOR, "The brokers have consumer (KIP-848), too", Level.OK),
        (KafkaError.UNSUPPORTED_VERSION, "do not have consumer (KIP-848)", Level.ERROR),
        (KafkaError._UNSUPPORTED_FEATURE, "do not have consumer (KIP-848)", Level.ERROR),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, None, Level.ERROR),
        (None, None, Level.WARNING),
    ],
)
def test_what_the_brokers_say_to_the_new_protocol(
    monkeypatch: pytest.MonkeyPatch, code: int | None, of_classic: str | None, of_consumer: Level
) -> None:
    # librdkafka hides the code of a fatal error, and quotes its text.
    quoted = None if code is None else KafkaError(KafkaError._FATAL, f"Fatal error: {KafkaError(code).str()}: heartbeat")
    for error in (None if code is None else KafkaError(code), quoted):
        monkeypatch.setattr(check, "_refusal_of_new_protocol", lambda _, error=error: error)
        found = check._of_protocol(options())
        assert (found is None) is (of_classic is None)
        assert found is None or (found.level is Level.OK and (of_classic or "") in found.text)
        needed = check._of_protocol(options(kafka_group_protocol="consumer"))
        assert needed is not None
        assert needed.level is of_consumer


def test_the_question_for_the_new_protocol_has_no_setting_that_it_refuses() -> None:
    """librdkafka would refuse such a consumer. There is no broker here, so nobody answers."""
    given = {"kafka_session_timeout_ms": "30000", "kafka_heartbeat_interval_ms": "500", STRATEGY: "range"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check, "CHECK_STEP_S", 0.0)
        assert check._refusal_of_new_protocol(options(kafka_group_instance_id="spare", **given)) is None


def test_a_static_members_name_that_is_taken() -> None:
    assert of_instance_id(options(), view("classic", "range", MEMBER)) is None
    taken = [
        of_instance_id(options(kafka_group_instance_id=name, **more), view("classic", "range", MEMBER))
        for name, more in (("other", {}), ("spare", {}), ("spare", {"kafka_group_protocol": "consumer"}))
    ]
    assert [one and one.level for one in taken] == [Level.OK, Level.WARNING, Level.WARNING]
    assert "takes its place" in str(taken[1])
    assert "is refused until that member has left" in str(taken[2])


def start(known: Known, **more: str) -> list[tuple[str, str]]:
    return [(found.level.value, found.text) for found in of_start(options(**more), known)]


def test_where_a_query_starts_with_commits_and_without() -> None:
    record = CommitRecord(stream="other", logged=4, done=3, next=20, open=(OpenRange(10, 20),))
    known = Known([ZERO, ONE], {ZERO: record}, {ONE: 7}, LogState({}, {ZERO: 0, ONE: 0}, {ZERO: 50, ONE: 7}))
    places = "1 at the group's commits and 1 without a commit at the latest (startingOffsets)"
    found = [("ok", f"2 partitions: a query with a new checkpoint starts {places}; 30 offsets to read")]
    assert start(known) == found, "what another stream has claimed is not read"


def test_a_partition_whose_leader_is_silent() -> None:
    known = Known([ZERO, ONE], {}, {ZERO: 0}, LogState({}, {ZERO: 0}, {ZERO: 5}))
    assert [level for level, _ in start(known)] == ["ok", "error"]
    assert start(known)[1][1].startswith("The leader does not return the offsets of orders-1,")


@pytest.mark.parametrize(
    ("logs", "lost"),
    [
        (LogState({"orders": ""}, {ZERO: 30}, {ZERO: 50}), "[10, 30)"),
        (LogState({"orders": ""}, {ZERO: 0}, {ZERO: 5}), "[5, 10)"),
    ],
)
def test_records_that_are_already_lost(logs: LogState, lost: str) -> None:
    known = Known([ZERO], {ZERO: Foreign(10)}, {}, logs)
    for value, level in (("true", "error"), ("false", "warning")):
        found = start(known, failOnDataLoss=value)[-1]
        assert found[0] == level
        assert lost in found[1]
        assert "groupkafka reset-offsets" in found[1]


def test_a_topic_that_was_deleted_and_created_again_under_the_groups_commits() -> None:
    before, now = "A" * 22, "B" * 22
    record = CommitRecord(stream="other", logged=4, done=4, next=20, topic_id=before)
    known = Known([ZERO], {ZERO: record}, {}, LogState({"orders": now}, {ZERO: 0}, {ZERO: 50}))
    found = start(known)
    assert "50 offsets to read" in found[0][1]
    assert found[1][0] == "error"


def claims(member: GroupMember | None, **more: str) -> Finding:
    record = CommitRecord(stream="b", logged=4, done=3, next=20, open=(OpenRange(10, 20),), owed=(OwedRange("c", 1, 5, 7),))
    shown = (PartitionView(ZERO, member, record, 50), PartitionView(TopicPartition("others", 0), None, record, 50))
    return of_claims(options(**more), view("classic", "range", MEMBER, partitions=shown))


def test_claims_that_others_left_behind_and_what_a_new_query_would_do() -> None:
    running = claims(MEMBER)
    assert running.level is Level.WARNING
    assert "orders-0 [5, 7) of stream c." in running.text, "what a running member has in flight is its own"
    assert "orders-0 [5, 7) of stream c, orders-0 [10, 20) of stream b" in claims(None).text
    assert "others" not in claims(None).text
    assert "fails after 5 s" in claims(None, outstandingClaims_grace="5s").text
    left = "does not read them, and goes on; only that stream's query does, when it restarts"
    assert left in claims(None).text
    assert left in claims(None, outstandingClaims="hold").text
    assert "reads them; records may be duplicated" in claims(None, outstandingClaims="reread").text
    assert "reads them after 600 s; records may be duplicated" in claims(None, outstandingClaims="reread-after 10m").text


def test_what_is_in_flight_while_a_classic_group_rebalances_is_its_members_own() -> None:
    record = CommitRecord(stream="c", logged=4, done=3, next=7, open=(OpenRange(5, 7),))
    shown = replace(view("classic", "range", partitions=(PartitionView(ZERO, None, record, 50),)), members=(MEMBER,))
    assert of_claims(options(), shown).level is Level.WARNING
    rebalancing = replace(shown, state="completing rebalancing")
    assert of_claims(options(), rebalancing).text == "2 offsets are in flight in running queries; nothing is owed"


def test_no_claims() -> None:
    assert of_claims(options(), None) == Finding(Level.OK, "claims", "nothing is claimed")


def test_long_lists_are_cut() -> None:
    assert listed(range(5)) == "0, 1, 2, 3, 4"
    assert listed(range(8)) == "0, 1, 2, 3, 4 and 3 more"


@pytest.mark.parametrize("name", ["native", "pure Python"])
def test_the_reader_is_named_that_a_query_would_use(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(check, "installed_reader", lambda: InstalledReader(pure_consumer.read, name))
    assert f"the {name} reader" in check._of_fetch(options(), None).text


@pytest.mark.parametrize(("version", "advice"), [(5, "upgrade this command"), (2, "let it finish its claims")])
def test_commit_records_of_another_version(version: int, advice: str) -> None:
    known = Known([ZERO, ONE], {ZERO: OtherFormat(10, version)}, {ONE: 7}, LogState({}, {ZERO: 0, ONE: 0}, {ZERO: 50, ONE: 7}))
    assert [level for level, _ in start(known)] == ["ok"], "the leader of the other partition answers"
    elsewhere = PartitionView(TopicPartition("others", 0), None, OtherFormat(1, 6), 50)
    group = view("classic", "range", partitions=(PartitionView(ZERO, None, OtherFormat(10, version), 50), elsewhere))
    found = of_formats(options(), group)
    assert found is not None
    assert found.level is Level.ERROR
    assert found.text.startswith(f"orders-0: format {version}, written by a ")
    assert advice in found.text
    assert "CommitRecordUnreadable" in found.text
    assert "others" not in found.text
    assert of_claims(options(), group).text == "nothing is claimed in the other partitions"
    assert of_formats(options(), None) is None
