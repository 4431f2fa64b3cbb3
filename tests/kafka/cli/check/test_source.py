"""`groupkafka check` on real brokers: an options file that is right, mistakes in it, and what a query would read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer

from devtools.broker import Cluster
from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.errors import GroupNotFound
from spark_groupsource.handoff.commit_record import CommitRecord, OwedRange
from spark_groupsource.handoff.plan_offset import PlanOffset
from tests.conftest import MakeTopic, Produce
from tests.kafka.cli.check.conftest import Check, query
from tests.support.consumers import commit, joined
from tests.support.secured import Secured


@pytest.mark.parametrize("login", ["SCRAM-SHA-512", "oauth_cb"])
def test_what_is_right_is_all_ok_and_leaves_no_trace(
    secured: Secured, secured_topic: Callable[[str], str], check: Check, login: str
) -> None:
    topic = secured_topic("open-")
    checked = check(query(topic, secured.login(login), startingOffsets="earliest"))
    assert checked.exit_code == 0, checked.output
    assert {line[0] for line in checked.lines} == {"ok"}
    assert checked.summary == "0 errors, 0 warnings: the query can run"
    assert [line[1] for line in checked.lines] == [
        *("options", "brokers", "security", "topics", "group", "assignor", "settings", "reader"),
        *("start", "fetch", "isolation", "claims"),
    ]
    assert "were not compared with the brokers' settings" in checked.of("settings")[0][2]
    assert "requires the DESCRIBE_CONFIGS ACL on the cluster" in checked.of("settings")[0][2]
    mechanism = "OAUTHBEARER" if login == "oauth_cb" else login
    assert f"{mechanism}: the login is accepted, the brokers' certificate is trusted" in checked.of("security")[0][2]
    assert f"{topic} (1 partition): found, and may be read" in checked.of("topics")[0][2]
    assert "this user may join it" in checked.of("group")[0][2]
    assert "1 without a committed offset at the earliest (startingOffsets); 10 offsets to read" in checked.of("start")[0][2]
    assert f"reader read 10 records from {topic}-0 [0, 10)" in checked.of("fetch")[0][2]
    with pytest.raises(GroupNotFound):
        GroupAdmin({"bootstrap.servers": secured.cluster.bootstrap_servers}).describe(topic)


def test_each_mistake_in_the_file_is_a_line_and_no_secret_is_shown(check: Check) -> None:
    checked = check(
        {
            "kafka.bootstrap.servers": "localhost",
            "subscribe": "orders",
            "startingOfsets": "earliest",
            "failOnDataLoss": "later",
            "kafka.sasl.jaas.config": "hunter2",
        }
    )
    assert checked.exit_code == 1
    assert {line[1] for line in checked.lines} == {"options"}
    assert len(checked.errors) == len(checked.lines) >= 5
    assert "hunter2" not in checked.output
    for problem in ("host:port", "kafka.group.id is missing", "Did you mean startingOffsets", "failOnDataLoss = 'later'", "jaas"):
        assert problem in checked.output


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


def test_topics_without_acls_are_named_and_the_others_are_tried(
    secured: Secured, secured_topic: Callable[[str], str], check: Check
) -> None:
    readable, seen, closed = secured_topic("open-"), secured_topic("seen-"), secured_topic("closed-")
    checked = check(query("open-group", secured.login("SCRAM-SHA-256"), subscribe=f"{readable},{seen},{closed}"))
    assert checked.failed == ["topics", "topics"]
    assert f"looking up topic '{closed}'" in checked.errors[0][2]
    assert checked.errors[1][2].startswith(f"{seen}: this user may describe it, but not read it.")
    assert all("READ ACL on the topic" in line[2] for line in checked.errors)
    assert "reader read 10 records" in checked.of("fetch")[0][2]


def test_a_pattern_that_matches_nothing_is_a_warning(check: Check, plain: Mapping[str, str]) -> None:
    options = query("any", plain)
    del options["subscribe"]
    checked = check({**options, "subscribePattern": "no-such-.*"})
    assert checked.exit_code == 0
    assert checked.level("topics") == "warning"
    assert not checked.of("fetch")


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
    assert "would start 2 at the group's committed offsets; 1 offsets to read" in checked.of("start")[0][2]
    assert checked.failed == ["data loss"]
    assert f"{name}-1" in checked.errors[0][2]
    assert f"{name}-0 [2, 4) of stream beta" in checked.of("claims")[0][2]
    assert "will continue without them" in checked.of("claims")[0][2]
    held = check(query(name, plain, kafka_group_id=f"group-of-{name}", failOnDataLoss="false", heldClaims="reread"))
    assert held.exit_code == 0
    assert held.level("data loss") == held.level("claims") == "warning"
    assert "will read them; records may be duplicated" in held.of("claims")[0][2]


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
    assert "found no record in" in closed.of("fetch")[0][2]


def test_the_checkpoint_of_a_query_is_found_and_that_of_another_group_is_an_error(
    topic: MakeTopic, check: Check, plain: Mapping[str, str], tmp_path: Path
) -> None:
    name, location = topic(), tmp_path / "checkpoint"
    new = check(query(name, plain, checkpointLocation=str(location)))
    assert (new.exit_code, new.level("checkpoint")) == (0, "ok")
    assert f"checkpointLocation = {location}: its offsets folder has no micro-batch yet" in new.of("checkpoint")[0][2]
    (location / "offsets").mkdir(parents=True)
    for group in (name, "another"):
        offset = PlanOffset.build(stream="5e7", plan=3, generation=1, member="m", group=group, ranges={})
        (location / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(offset.to_json())}")
        found = check(query(name, plain, checkpointLocation=f"file:{location}"))
        if group == name:
            assert (found.exit_code, found.level("checkpoint")) == (0, "ok")
            assert "micro-batch 0 of stream 5e7 is not finished" in found.of("checkpoint")[0][2]
        else:
            assert (found.exit_code, found.level("checkpoint")) == (1, "error")
            assert f"belongs to the consumer group 'another', but kafka.group.id is {name!r}" in found.of("checkpoint")[0][2]


@pytest.mark.parametrize("location", ["there-is-no-such-scheme://user:hunter2@host/a", "{tmp}/file"])
def test_a_checkpoint_that_cannot_be_read_is_a_warning_and_shows_no_password(
    topic: MakeTopic, check: Check, plain: Mapping[str, str], tmp_path: Path, location: str
) -> None:
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / "offsets").write_text("not a folder")
    found = check(query(topic(), plain, checkpointLocation=location.format(tmp=tmp_path)))
    assert (found.exit_code, found.level("checkpoint")) == (0, "warning")
    assert "cannot be read: " in found.of("checkpoint")[0][2]
    assert "The driver's machine must be able to read this location." in found.of("checkpoint")[0][2]
    assert "hunter2" not in found.output
