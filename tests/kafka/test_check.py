"""`groupkafka check`: an options file that is right, and each way in which it can be wrong, against real brokers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from spark_groupsource.brokers import topics
from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.cli.main import main
from spark_groupsource.dev_broker import Cluster
from spark_groupsource.errors import GroupNotFound
from spark_groupsource.handoff.commit_record import CommitRecord, OwedRange
from tests.conftest import MakeTopic, Produce
from tests.support.consumers import commit, joined
from tests.support.producing import send
from tests.support.secured import WRONG, Secured
from tests.support.waiting import until

Line = tuple[str, str, str]


class Checked:
    """The output of a run of the command: lines of (level, check, text)."""

    def __init__(self, exit_code: int, output: str) -> None:
        self.exit_code = exit_code
        self.output = output
        self.lines: list[Line] = [(line[:8].strip(), line[9:20].strip(), line[21:]) for line in output.splitlines()]

    def of(self, check: str) -> list[Line]:
        return [line for line in self.lines if line[1] == check]

    @property
    def errors(self) -> list[Line]:
        return [line for line in self.lines if line[0] == "error"]

    def level(self, check: str) -> str:
        """The level of the only line on it."""
        (line,) = self.of(check)
        return line[0]


Check = Callable[..., Checked]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Check:
    """Writes an options file and checks it; whatever comes out, no secret of the secured broker is in it."""
    monkeypatch.setattr(topics, "REQUEST_TIMEOUT_S", 3.0)

    def run(options: Mapping[str, str], *more: str) -> Checked:
        file = tmp_path / "query.properties"
        lines = (f"{name}={value}".replace("\\", "\\\\") for name, value in options.items())
        file.write_text("# a query\n" + "\n".join(lines) + "\n")
        result = CliRunner().invoke(main, ["check", "--conf", str(file), *more])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        if "secured" in request.fixturenames:
            secured: Secured = request.getfixturevalue("secured")
            assert [secret for secret in secured.secrets() if secret in result.output] == []
        return Checked(result.exit_code, result.output)

    return run


def query(topic: str, login: Mapping[str, str], **more: str) -> dict[str, str]:
    return {
        "kafka.group.id": topic,
        "subscribe": topic,
        "kafka.log_level": "0",
        **login,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


@pytest.fixture
def plain(cluster: Cluster) -> Mapping[str, str]:
    return {"kafka.bootstrap.servers": cluster.bootstrap_servers}


@pytest.mark.parametrize("login", ["SCRAM-SHA-512", "oauth_cb"])
def test_what_is_right_is_all_ok_and_leaves_no_trace(
    secured: Secured, secured_topic: Callable[[str], str], check: Check, login: str
) -> None:
    topic = secured_topic("open-")
    checked = check(query(topic, secured.login(login), startingOffsets="earliest"))
    assert checked.exit_code == 0, checked.output
    assert {line[0] for line in checked.lines} == {"ok"}
    assert [line[1] for line in checked.lines] == [
        *("options", "brokers", "security", "topics", "group", "assignor", "settings", "reader"),
        *("start", "fetch", "isolation", "claims"),
    ]
    assert "were not checked. reading a broker's settings: " in checked.of("settings")[0][2]
    assert "needs the ACL DESCRIBE_CONFIGS on the cluster" in checked.of("settings")[0][2]
    mechanism = "OAUTHBEARER" if login == "oauth_cb" else login
    assert f"{mechanism}: the login is accepted, the brokers' certificate is trusted" in checked.of("security")[0][2]
    assert f"{topic} (1 partitions): found, and may be read" in checked.of("topics")[0][2]
    assert "joining it is allowed" in checked.of("group")[0][2]
    assert "1 without a commit at the earliest (startingOffsets); 10 offsets to read" in checked.of("start")[0][2]
    assert f"has read 10 records of {topic}-0 [0, 10)" in checked.of("fetch")[0][2]
    with pytest.raises(GroupNotFound):
        GroupAdmin({"bootstrap.servers": secured.cluster.bootstrap_servers}).describe(topic)


def test_after_a_wrong_password_nothing_more_is_checked(secured: Secured, check: Check) -> None:
    checked = check(query("open-any", secured.login("PLAIN", WRONG)))
    assert checked.exit_code == 1
    assert [line[:2] for line in checked.lines] == [("ok", "options"), ("error", "security")]
    assert "kafka.sasl.password" in checked.errors[0][2]


def test_a_certificate_that_is_not_trusted_is_reported_with_the_setting(secured: Secured, check: Check) -> None:
    login = {**secured.login("PLAIN"), "kafka.ssl.truststore.location": str(secured.folder / "client.pem")}
    checked = check(query("open-any", login))
    assert checked.exit_code == 1
    assert [line[:2] for line in checked.errors] == [("error", "security")]
    assert "kafka.ssl.truststore" in checked.errors[0][2]
    checked = check(query("open-any", {**login, "kafka.enable.ssl.certificate.verification": "false"}))
    assert checked.level("security") == "warning"
    assert "Remove kafka.enable.ssl.certificate.verification=false" in checked.of("security")[0][2]
    assert "is trusted" not in checked.output


def test_topics_without_acls_are_named_and_the_others_are_tried(
    secured: Secured, secured_topic: Callable[[str], str], check: Check
) -> None:
    readable, seen, closed = secured_topic("open-"), secured_topic("seen-"), secured_topic("closed-")
    checked = check(query("open-group", secured.login("SCRAM-SHA-256"), subscribe=f"{readable},{seen},{closed}"))
    assert checked.exit_code == 1
    assert [line[1] for line in checked.errors] == ["topics", "topics"]
    assert f"looking up topic '{closed}'" in checked.errors[0][2]
    assert checked.errors[1][2].startswith(f"{seen}: this user may describe it, but not read it.")
    assert all("ACL READ on the topic" in line[2] for line in checked.errors)
    assert "has read 10 records" in checked.of("fetch")[0][2]


def test_a_group_without_acl_is_reported(secured: Secured, secured_topic: Callable[[str], str], check: Check) -> None:
    checked = check(query(secured_topic("open-"), secured.login("SCRAM-SHA-256"), kafka_group_id="closed"))
    assert checked.exit_code == 1
    assert [line[1] for line in checked.errors] == ["group"]
    assert "ACL READ on the group (kafka.group.id)" in checked.errors[0][2]


def test_a_group_that_may_only_be_described_is_reported(
    secured: Secured, secured_topic: Callable[[str], str], check: Check
) -> None:
    secured.allow_describing_group("shown-")
    checked = check(query(secured_topic("open-"), secured.login("SCRAM-SHA-256"), kafka_group_id="shown-group"))
    assert checked.exit_code == 1
    assert [line[1] for line in checked.errors] == ["group"]
    assert checked.errors[0][2].startswith("shown-group: this user may describe it, but not join it.")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_live_member_with_another_assignor_is_reported_and_not_disturbed(
    topic: MakeTopic, cluster: Cluster, check: Check, plain: Mapping[str, str], protocol: str
) -> None:
    name = topic(partitions=2)
    group = f"group-of-{name}"
    options = query(name, plain, kafka_group_id=group, kafka_group_protocol=protocol)
    if protocol == "classic":
        options["kafka.partition.assignment.strategy"] = "range"
    with joined(cluster, group, name, 2, partition_assignment_strategy="cooperative-sticky") as member:
        before = GroupAdmin({"bootstrap.servers": cluster.bootstrap_servers}).describe(group)
        changed: list[object] = []
        member.subscribe([name], on_assign=lambda *all_: changed.append(all_), on_revoke=lambda *all_: changed.append(all_))
        checked = check(options)
        member.poll(3)
        assert not changed
        assert GroupAdmin({"bootstrap.servers": cluster.bootstrap_servers}).describe(group) == before
    assert checked.exit_code == 1
    assert [line[1] for line in checked.errors] == ["assignor"]
    assert "the group's member is classic, assignor cooperative-sticky" in checked.errors[0][2]
    advice = (
        "set kafka.partition.assignment.strategy=cooperative-sticky" if protocol == "classic" else "kafka.group.protocol=classic"
    )
    assert advice in checked.errors[0][2]


def test_the_group_refuses_what_the_finding_says(topic: MakeTopic, cluster: Cluster) -> None:
    """What the finding of the test above says of the classic protocol."""
    name = topic()
    with joined(cluster, f"group-of-{name}", name, 1, partition_assignment_strategy="cooperative-sticky"):
        other = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": f"group-of-{name}",
                "partition.assignment.strategy": "range",
                "log_level": 0,
            }
        )
        other.subscribe([name])
        message = other.poll(30)
        other.close()
    error = message.error() if message is not None else None
    assert error is not None
    assert error.name() == "INCONSISTENT_GROUP_PROTOCOL"


def test_members_with_range_may_offer_more_which_is_a_warning(
    topic: MakeTopic, cluster: Cluster, check: Check, plain: Mapping[str, str]
) -> None:
    name = topic()
    with joined(cluster, f"group-of-{name}", name, 1, group_instance_id="spare"):
        checked = check(query(name, plain, kafka_group_id=f"group-of-{name}", kafka_group_instance_id="spare"))
    assert checked.exit_code == 0, checked.output
    assert checked.level("assignor") == "warning"
    assert "all others offer cooperative-sticky too" in checked.of("assignor")[0][2]
    assert checked.level("instance id") == "warning"
    assert "a member at 127.0.0.1 uses it" in checked.of("instance id")[0][2]


def test_the_new_protocol_is_tried_without_a_member(
    topic: MakeTopic, cluster: Cluster, check: Check, plain: Mapping[str, str]
) -> None:
    name = topic()
    checked = check(query(name, plain, kafka_group_protocol="consumer"))
    assert checked.exit_code == 0, checked.output
    assert checked.level("protocol") == "ok"
    with pytest.raises(GroupNotFound):
        GroupAdmin({"bootstrap.servers": cluster.bootstrap_servers}).describe(name)


def test_without_a_broker_nothing_more_is_checked(check: Check) -> None:
    begin = time.monotonic()
    checked = check(query("orders", {"kafka.bootstrap.servers": "127.0.0.1:1"}))
    assert time.monotonic() - begin < 20
    assert checked.exit_code == 1
    assert [line[:2] for line in checked.lines] == [("ok", "options"), ("error", "brokers")]
    assert "Check kafka.bootstrap.servers" in checked.errors[0][2]


def test_a_topic_that_is_not_there_is_named(topic: MakeTopic, check: Check, plain: Mapping[str, str]) -> None:
    name = topic()
    checked = check(query(name, plain, subscribe=f"{name},no-such-topic"))
    assert checked.exit_code == 1
    assert [line[1] for line in checked.errors] == ["topics"]
    assert "'no-such-topic'" in checked.errors[0][2]
    assert "Check subscribe or subscribePattern" in checked.errors[0][2]


def test_a_pattern_that_matches_nothing_is_a_warning(check: Check, plain: Mapping[str, str]) -> None:
    options = query("any", plain)
    del options["subscribe"]
    checked = check({**options, "subscribePattern": "no-such-.*"})
    assert checked.exit_code == 0
    assert checked.level("topics") == "warning"
    assert not checked.of("fetch")


def test_each_mistake_in_the_file_is_a_line_and_no_secret_is_shown(check: Check) -> None:
    checked = check(
        {
            "kafka.bootstrap.servers": "localhost",
            "subscribe": "orders",
            "startingOfsets": "earliest",
            "handoff": "later",
            "kafka.sasl.jaas.config": "hunter2",
        }
    )
    assert checked.exit_code == 1
    assert {line[1] for line in checked.lines} == {"options"}
    assert len(checked.errors) == len(checked.lines) >= 5
    assert "hunter2" not in checked.output
    for problem in ("host:port", "kafka.group.id is missing", "Did you mean startingOffsets", "handoff = 'later'", "jaas"):
        assert problem in checked.output


def test_a_file_that_is_no_text_or_is_refused_by_the_client_is_an_error(
    check: Check, tmp_path: Path, plain: Mapping[str, str]
) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    shown = CliRunner().invoke(main, ["check", "--conf", str(tmp_path / "bytes")])
    assert shown.exit_code == 1
    assert "cannot be read: it is not UTF-8 text" in shown.output
    tls = {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "/no/such/ca.pem",
    }
    checked = check(query("orders", {**plain, **tls}))
    assert checked.exit_code == 1
    assert [line[1] for line in checked.errors] == ["options"]
    assert checked.errors[0][2].startswith("/no/such/ca.pem: there is no such file")


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
    assert checked.exit_code == 1
    assert "starts 2 at the group's commits; 1 offsets to read" in checked.of("start")[0][2]
    assert [line[1] for line in checked.errors] == ["data loss"]
    assert f"{name}-1" in checked.errors[0][2]
    assert f"{name}-0 [2, 4) of stream beta" in checked.of("claims")[0][2]
    assert "fails after 120 s (outstandingClaims.grace)" in checked.of("claims")[0][2]
    held = check(query(name, plain, kafka_group_id=f"group-of-{name}", failOnDataLoss="false", outstandingClaims="reread"))
    assert held.exit_code == 0
    assert held.level("data loss") == held.level("claims") == "warning"
    assert "reads them; records may be duplicated" in held.of("claims")[0][2]


def test_starting_offsets_that_leave_out_a_partition_are_an_error(
    topic: MakeTopic, check: Check, plain: Mapping[str, str]
) -> None:
    name = topic(partitions=2)
    checked = check(query(name, plain, startingOffsets=f'{{"{name}":{{"0":5}}}}'))
    assert checked.exit_code == 1
    assert [line[1] for line in checked.errors] == ["start"]
    assert f"{name}-1" in checked.errors[0][2]


def test_an_open_transaction_that_holds_records_back_is_a_warning(
    topic: MakeTopic, cluster: Cluster, check: Check, plain: Mapping[str, str]
) -> None:
    name = topic()
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"x", partition=0)
    assert producer.flush(30) == 0
    checked = check(query(name, plain, kafka_isolation_level="read_committed"))
    producer.abort_transaction(30)
    assert checked.exit_code == 0, checked.output
    assert checked.level("isolation") == "warning"
    assert f"block 1 offsets, in {name}-0" in checked.of("isolation")[0][2]
    closed = check(query(name, plain, kafka_isolation_level="read_committed"))
    assert closed.level("isolation") == "ok"
    assert "found no record in it" in closed.of("fetch")[0][2]


def test_a_session_that_the_brokers_refuse_is_an_error(
    topic: MakeTopic, cluster: Cluster, check: Check, plain: Mapping[str, str]
) -> None:
    name = topic()
    longer = {"kafka_session_timeout_ms": "1800001", "kafka_max_poll_interval_ms": "1800001"}
    checked = check(query(name, plain, **longer))
    assert checked.exit_code == 1
    assert [line[1] for line in checked.errors] == ["session"]
    assert "kafka.session.timeout.ms=1800001 is above group.max.session.timeout.ms (1800000)" in checked.errors[0][2]
    assert "Set it to 1000 to 1800000" in checked.errors[0][2]
    fits = check(query(name, plain))
    assert "kafka.session.timeout.ms=45000: the brokers accept 1000 to 1800000" in fits.of("session")[0][2]
    theirs = check(query(name, plain, kafka_group_protocol="consumer"))
    assert "group.consumer.session.timeout.ms is 6000" in theirs.of("session")[0][2]

    # What the finding says of the group.
    settings = {"session.timeout.ms": 1800001, "max.poll.interval.ms": 1800001, "log_level": 0}
    member = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": f"group-of-{name}", **settings})
    member.subscribe([name])
    message = member.poll(30)
    member.close()
    error = message.error() if message is not None else None
    assert error is not None
    assert error.name() == "INVALID_SESSION_TIMEOUT"


def test_commits_that_may_have_been_left_for_too_long(
    topic: MakeTopic, cluster: Cluster, check: Check, plain: Mapping[str, str]
) -> None:
    name, day_ms = topic(), 86_400_000
    group, now_ms = f"group-of-{name}", round(time.time() * 1000)
    options = query(name, plain, kafka_group_id=group)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})

    def left_at(offset: int, written_ms: int) -> Checked:
        """Write one more record, commit this offset, leave the group, and check."""
        send(producer, name, "x", partition=0, timestamp=written_ms)
        assert producer.flush(30) == 0
        with joined(cluster, group, name, 1, enable_auto_commit="false") as consumer:
            commit(consumer, name, 0, offset)
            assert "it has members" in check(options).of("retention")[0][2]
        return check(options)

    assert not check(options).of("retention"), "the group has no commits"
    old = left_at(1, now_ms - 9 * day_ms)
    assert old.level("retention") == "ok"
    assert "since when it is idle is not known" in old.of("retention")[0][2]
    unread = left_at(1, now_ms - day_ms)
    assert (unread.level("retention"), unread.exit_code) == ("warning", 0)
    assert "kept for 7 days without members" in unread.of("retention")[0][2]
    assert f"in {name}-0 for example" in unread.of("retention")[0][2]
    read = left_at(2, now_ms)
    assert read.level("retention") == "ok"
    assert "has read within this time" in read.of("retention")[0][2]


def test_more_members_than_partitions_is_a_warning(
    topic: MakeTopic, cluster: Cluster, check: Check, plain: Mapping[str, str]
) -> None:
    name = topic()
    options = query(name, plain, kafka_group_id=f"group-of-{name}", kafka_partition_assignment_strategy="range")
    with joined(cluster, f"group-of-{name}", name, 1) as first:
        alone = check(options)
        other = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": f"group-of-{name}"})
        other.subscribe([name])
        try:

            def both() -> bool:
                first.poll(0.1)
                other.poll(0.1)
                now = GroupAdmin({"bootstrap.servers": cluster.bootstrap_servers}).describe(f"group-of-{name}")
                return now.state == "stable" and len(now.members) == 2

            until(both, "both are members")
            checked = check(options)
        finally:
            other.close()
    assert alone.level("members") == "ok"
    assert "1 member for 1 partition; one more member would be a standby" in alone.of("members")[0][2]
    assert (checked.level("members"), checked.exit_code) == ("warning", 0)
    assert "2 members for 1 partition: 1 of them can have none" in checked.of("members")[0][2]


def test_as_json_the_same_findings_come_in_one_object(
    topic: MakeTopic, check: Check, plain: Mapping[str, str], admin: AdminClient
) -> None:
    name = topic()
    lines = check(query(name, plain))
    checked = json.loads(check(query(name, plain), "--json").output)
    assert checked.keys() == {"file", "errors", "warnings", "findings"}
    assert (checked["errors"], checked["warnings"]) == (0, 0)
    assert [(one["level"], one["check"], one["text"]) for one in checked["findings"]] == lines.lines
    wrong = check({"subscribe": "orders"}, "--json")
    assert wrong.exit_code == 1
    assert json.loads(wrong.output)["errors"] == 2
