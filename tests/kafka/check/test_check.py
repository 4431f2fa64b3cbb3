"""`groupkafka check`: an options file that is right, and each way in which it can be wrong, against real brokers."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from devtools.broker import Cluster
from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.cli.main import main
from spark_groupsource.errors import GroupNotFound
from spark_groupsource.handoff.plan_offset import PlanOffset
from tests.conftest import MakeTopic
from tests.kafka.check.conftest import Check, query
from tests.support.secured import WRONG, Secured


@pytest.mark.parametrize("login", ["SCRAM-SHA-512", "oauth_cb"])
def test_what_is_right_is_all_ok_and_leaves_no_trace(
    secured: Secured, secured_topic: Callable[[str], str], check: Check, login: str
) -> None:
    topic = secured_topic("open-")
    checked = check(query(topic, secured.login(login), startingOffsets="earliest"))
    assert checked.exit_code == 0, checked.output
    assert {line[0] for line in checked.lines} == {"ok"}
    assert [line[1] for line in checked.lines] == [
        *("options", "brokers", "security", "topics", "group", "protocol", "assignor", "settings", "reader"),
        *("checkpoint", "start", "fetch", "isolation", "claims"),
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
    assert checked.failed == ["topics", "topics"]
    assert f"looking up topic '{closed}'" in checked.errors[0][2]
    assert checked.errors[1][2].startswith(f"{seen}: this user may describe it, but not read it.")
    assert all("ACL READ on the topic" in line[2] for line in checked.errors)
    assert "has read 10 records" in checked.of("fetch")[0][2]


@pytest.mark.parametrize(
    ("group", "said"),
    [
        ("closed", ".*ACL READ on the group .kafka.group.id."),
        ("shown-group", "shown-group: this user may describe it, but not join it."),
    ],
)
def test_a_group_that_may_not_be_joined_is_reported(
    secured: Secured, secured_topic: Callable[[str], str], check: Check, group: str, said: str
) -> None:
    secured.allow_describing_group("shown-")
    checked = check(query(secured_topic("open-"), secured.login("SCRAM-SHA-256"), kafka_group_id=group))
    assert checked.failed == ["group"]
    assert re.match(said, checked.errors[0][2])


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
    assert checked.failed == ["topics"]
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
    assert checked.failed == ["options"]
    assert checked.errors[0][2].startswith("/no/such/ca.pem: there is no such file")


def test_starting_offsets_that_leave_out_a_partition_are_an_error(
    topic: MakeTopic, check: Check, plain: Mapping[str, str]
) -> None:
    name = topic(partitions=2)
    checked = check(query(name, plain, startingOffsets=f'{{"{name}":{{"0":5}}}}'))
    assert checked.failed == ["start"]
    assert f"{name}-1" in checked.errors[0][2]


def test_an_open_transaction_that_holds_records_back_is_a_warning(
    topic: MakeTopic, cluster: Cluster, check: Check, plain: Mapping[str, str]
) -> None:
    name = topic()
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name, "transaction.timeout.ms": 600_000}
    producer = Producer(settings)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"x", partition=0)
    assert producer.flush(30) == 0
    checked = check(query(name, plain, kafka_isolation_level="read_committed"))
    producer.abort_transaction(30)
    assert checked.exit_code == 0, checked.output
    assert checked.level("isolation") == "warning", checked.output
    assert f"block 1 offsets, in {name}-0" in checked.of("isolation")[0][2]
    closed = check(query(name, plain, kafka_isolation_level="read_committed"))
    assert closed.level("isolation") == "ok"
    assert "found no record in it" in closed.of("fetch")[0][2]


def test_the_checkpoint_of_a_query_is_found_and_that_of_another_group_is_an_error(
    topic: MakeTopic, check: Check, plain: Mapping[str, str], tmp_path: Path
) -> None:
    name, location = topic(), tmp_path / "checkpoint"
    new = check(query(name, plain, checkpointLocation=str(location)))
    assert (new.exit_code, new.level("checkpoint")) == (0, "ok")
    assert f"checkpointLocation = {location}: has no micro-batch yet" in new.of("checkpoint")[0][2]
    (location / "offsets").mkdir(parents=True)
    for group in (name, "another"):
        offset = PlanOffset.build(stream="5e7", plan=3, generation=1, member="m", group=group, ranges={})
        (location / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(offset.to_json())}")
        found = check(query(name, plain, checkpointLocation=f"file:{location}"))
        if group == name:
            assert (found.exit_code, found.level("checkpoint")) == (0, "ok")
            assert "micro-batch 0 is plan 3 of stream 5e7, and is not finished" in found.of("checkpoint")[0][2]
        else:
            assert (found.exit_code, found.level("checkpoint")) == (1, "error")
            assert f"is of group another, not of {name}. The query would fail" in found.of("checkpoint")[0][2]


@pytest.mark.parametrize("location", ["there-is-no-such-scheme://user:hunter2@host/a", "{tmp}/file"])
def test_a_checkpoint_that_cannot_be_read_is_a_warning_and_shows_no_password(
    topic: MakeTopic, check: Check, plain: Mapping[str, str], tmp_path: Path, location: str
) -> None:
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / "offsets").write_text("not a folder")
    found = check(query(topic(), plain, checkpointLocation=location.format(tmp=tmp_path)))
    assert (found.exit_code, found.level("checkpoint")) == (0, "warning")
    assert "cannot be read: " in found.of("checkpoint")[0][2]
    assert "The location must be readable on the driver's machine." in found.of("checkpoint")[0][2]
    assert "hunter2" not in found.output


def test_as_json_the_same_findings_come_in_one_object(topic: MakeTopic, check: Check, plain: Mapping[str, str]) -> None:
    name = topic()
    lines = check(query(name, plain))
    checked = json.loads(check(query(name, plain), "--json").output)
    assert checked.keys() == {"file", "errors", "warnings", "findings"}
    assert (checked["errors"], checked["warnings"]) == (0, 0)
    assert [(one["level"], one["check"], one["text"]) for one in checked["findings"]] == lines.lines
    wrong = check({"subscribe": "orders"}, "--json")
    assert wrong.exit_code == 1
    assert json.loads(wrong.output)["errors"] == 2
