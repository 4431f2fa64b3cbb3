"""`groupkafka check --sink`: what a task of the sink would be refused is found before."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from confluent_kafka.admin import ResourceType  # type: ignore[attr-defined]

from spark_groupsource.brokers import group_offsets
from spark_groupsource.errors import NotAuthorized
from tests.conftest import MakeTopic
from tests.kafka.cli.check.conftest import Check
from tests.support.committed import read_committed
from tests.support.secured import Secured
from tests.support.sink_queries import Query


def sink(login: Mapping[str, str], **more: str) -> dict[str, str]:
    return {"kafka.log_level": "0", **login, **{name.replace("_", "."): value for name, value in more.items()}}


def test_what_is_allowed_is_all_ok_and_writes_nothing_and_a_task_can_write_as_well(
    secured: Secured, secured_topic: Callable[[str], str], check: Check
) -> None:
    secured.allow_writing_once("once-")
    topic = secured_topic("once-")
    query = Query(secured.cluster, topic, **sink(secured.login("SCRAM-SHA-512"), transactionalIdPrefix="once-billing"))
    before = read_committed(secured.cluster, topic)
    checked = check(query.given, "--sink")
    assert checked.errors == []
    assert [line[1] for line in checked.lines] == [
        *("options", "brokers", "security", "topics", "batches", "groups", "transaction", "isolation")
    ]
    assert "deliveryGuarantee=exactly-once" in checked.of("options")[0][2]
    assert checked.level("batches") == "warning"
    assert "DESCRIBE_CONFIGS" in checked.of("batches")[0][2]
    assert "limited to 16384 bytes" in checked.of("batches")[0][2]
    assert read_committed(secured.cluster, topic) == before
    assert query.write(0, ["a"]).written == 1


def test_each_missing_acl_is_named(secured: Secured, secured_topic: Callable[[str], str], check: Check) -> None:
    topic = secured_topic("open-")  # it may be read, and so may groups; nothing may be written
    checked = check(sink(secured.login("SCRAM-SHA-512"), topic=topic, transactionalIdPrefix="closed-billing"), "--sink")
    assert checked.failed == ["topics", "groups", "transaction"]
    assert f"{topic}: the user needs the WRITE ACL on the topic." in checked.errors[0][2]
    assert "transactionalIdPrefix" in checked.errors[1][2]
    assert "ACLs WRITE and DESCRIBE on the transactional id" in checked.errors[2][2]


@pytest.mark.parametrize(("guarantee", "needed"), [("exactly-once", "WRITE and READ"), ("at-least-once", "WRITE")])
def test_a_topic_that_the_user_may_not_see_names_what_writing_needs(
    secured: Secured, secured_topic: Callable[[str], str], check: Check, guarantee: str, needed: str
) -> None:
    topic = secured_topic("unseen-")
    checked = check(sink(secured.login("SCRAM-SHA-512"), topic=topic, deliveryGuarantee=guarantee), "--sink")
    assert checked.of("topics") == [("error", "topics", f"{topic}: the user needs the {needed} ACL on the topic.")]


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        (ResourceType.TOPIC, "ACL WRITE on the topic, and for exactly-once also READ"),
        (ResourceType.GROUP, "READ ACL on the group .*groups begin with transactionalIdPrefix"),
        (ResourceType.TRANSACTIONAL_ID, "ACLs WRITE and DESCRIBE on the transactional id"),
    ],
    ids=["topic", "group", "transactional id"],
)
def test_a_task_names_the_acl_that_it_misses_and_shows_no_row(
    secured: Secured,
    secured_topic: Callable[[str], str],
    missing: ResourceType,
    named: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_offsets, "TRY_S", 1.0)
    prefix = f"no-{missing.name.lower()}-"
    secured.allow_writing_once(prefix, without=missing)
    topic = secured_topic(prefix)
    before = len(read_committed(secured.cluster, topic))
    query = Query(secured.cluster, topic, **sink(secured.login("SCRAM-SHA-512"), transactionalIdPrefix=f"{prefix}billing"))
    with pytest.raises(NotAuthorized, match=named):
        query.write(0, ["a"])
    assert len(read_committed(secured.cluster, topic)) == before


def test_at_least_once_needs_neither_groups_nor_transactional_ids(
    topic: MakeTopic, check: Check, plain: Mapping[str, str]
) -> None:
    name = topic(3)
    checked = check(sink(plain, topic=name, deliveryGuarantee="at-least-once"), "--sink")
    assert checked.errors == []
    assert [line[1] for line in checked.lines] == ["options", "brokers", "security", "topics", "batches"]
    assert f"{name} (3 partitions)" in checked.of("topics")[0][2]


@pytest.mark.parametrize(
    ("limit", "more", "said"),
    [
        ("5000", {}, "max.message.bytes is 5000, so batches of rows are limited to 5000 bytes. A row can be up to about 5000"),
        ("2000000", {}, "are limited to 1000000 bytes. A row can be up to about 1048576"),
        ("5000", {"kafka_batch_size": "3000"}, "are limited to 3000 bytes. A row can be up to about 5000"),
    ],
)
def test_the_size_of_batches_is_compared_with_what_the_topic_takes(
    topic: MakeTopic, check: Check, plain: Mapping[str, str], limit: str, more: Mapping[str, str], said: str
) -> None:
    checked = check(sink(plain, topic=topic(1, {"max.message.bytes": limit}), **more), "--sink")
    assert checked.level("batches") == "ok"
    assert said in checked.of("batches")[0][2]


def test_a_topic_that_is_not_there_and_a_transaction_that_is_too_long_are_named(check: Check, plain: Mapping[str, str]) -> None:
    checked = check(sink(plain, topic="no-such-topic", kafka_transaction_timeout_ms="90000000"), "--sink")
    assert checked.failed == ["topics", "transaction"]
    assert "no-such-topic" in checked.errors[0][2]
    assert "transaction.max.timeout.ms" in checked.errors[1][2]


def test_an_option_of_the_source_is_named(check: Check, plain: Mapping[str, str]) -> None:
    checked = check(sink(plain, topic="any", subscribe="orders"), "--sink")
    assert [line[:2] for line in checked.lines] == [("error", "options")]
    assert "subscribe" in checked.errors[0][2]
