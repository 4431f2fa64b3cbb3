"""`groupkafka check` on real brokers: whether a query may join its group, and what the brokers' settings mean for it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping

import pytest
from confluent_kafka import Producer

from devtools.broker import Cluster
from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.errors import GroupNotFound
from tests.conftest import NOT_FENCED, MakeTopic
from tests.kafka.cli.check.conftest import Check, Checked, query
from tests.support.consumers import commit_as_another_client, joined, plain_member
from tests.support.other_groups import ConnectGroup, ShareGroup, StreamsGroup
from tests.support.producing import send
from tests.support.secured import Secured
from tests.support.waiting import until


@pytest.mark.parametrize(
    ("group", "said"),
    [
        ("closed", ".*READ ACL on the group .kafka.group.id."),
        ("shown-group", "shown-group: this user may describe this group, but not join it."),
    ],
)
def test_a_group_that_may_not_be_joined_is_reported(
    secured: Secured, secured_topic: Callable[[str], str], check: Check, group: str, said: str
) -> None:
    secured.allow_describing_group("shown-")
    checked = check(query(secured_topic("open-"), secured.login("SCRAM-SHA-256"), kafka_group_id=group))
    assert checked.failed == ["group"]
    assert re.match(said, checked.errors[0][2])
    assert checked.lines[-1][1] == "group", "nothing more is checked"


@pytest.mark.parametrize("kind", [ShareGroup, StreamsGroup, ConnectGroup])
def test_a_group_that_is_no_consumer_group_is_an_error_that_names_its_kind(
    topic: MakeTopic,
    cluster: Cluster,
    check: Check,
    plain: Mapping[str, str],
    kind: type[ShareGroup | StreamsGroup | ConnectGroup],
) -> None:
    name = topic()
    kind(cluster, name, name)
    checked = check(query(name, plain))
    assert checked.failed == ["group"]
    assert kind.kind in checked.errors[0][2]


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
        member.poll(1.5)
        assert not changed
        assert GroupAdmin({"bootstrap.servers": cluster.bootstrap_servers}).describe(group) == before
    assert checked.failed == ["assignor"]
    assert "the group's member is classic, assignor cooperative-sticky" in checked.errors[0][2]
    advice = (
        "set kafka.partition.assignment.strategy=cooperative-sticky" if protocol == "classic" else "kafka.group.protocol=classic"
    )
    assert advice in checked.errors[0][2]


def test_members_with_range_may_offer_more_which_is_a_warning(
    topic: MakeTopic, cluster: Cluster, check: Check, plain: Mapping[str, str]
) -> None:
    name = topic()
    with joined(cluster, f"group-of-{name}", name, 1, group_instance_id="spare"):
        checked = check(query(name, plain, kafka_group_id=f"group-of-{name}", kafka_group_instance_id="spare"))
    assert checked.exit_code == 0, checked.output
    assert checked.level("assignor") == "warning"
    assert "all other members offer cooperative-sticky too" in checked.of("assignor")[0][2]
    assert checked.level("instance id") == "warning"
    assert "a member at 127.0.0.1 is using it" in checked.of("instance id")[0][2]


def test_more_members_than_partitions_is_a_warning(
    topic: MakeTopic, cluster: Cluster, check: Check, plain: Mapping[str, str]
) -> None:
    name = topic()
    options = query(name, plain, kafka_group_id=f"group-of-{name}", kafka_partition_assignment_strategy="range")
    with joined(cluster, f"group-of-{name}", name, 1) as first:
        alone = check(options)

        def both() -> bool:
            first.poll(0.1)
            now = GroupAdmin({"bootstrap.servers": cluster.bootstrap_servers}).describe(f"group-of-{name}")
            return now.state == "stable" and len(now.members) == 2

        with plain_member(cluster, f"group-of-{name}", name, {}):
            until(both, "both are members")
            checked = check(options)
    assert alone.level("members") == "ok"
    assert "1 member for 1 partition; one more member would be a standby" in alone.of("members")[0][2]
    assert (checked.level("members"), checked.exit_code) == ("warning", 0)
    assert "2 members for 1 partition: 1 of the members cannot get a partition" in checked.of("members")[0][2]


def test_the_new_protocol_is_tried_without_a_member(
    topic: MakeTopic,
    cluster: Cluster,
    check: Check,
    plain: Mapping[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = topic()
    checked = check(query(name, plain, kafka_group_protocol="consumer"))
    assert checked.exit_code == 0, checked.output
    assert checked.level("protocol") == "ok"
    assert "the brokers support kafka.group.protocol=consumer" in checked.of("protocol")[0][2]
    assert "FATAL" not in caplog.text, "the refusal was asked for"
    with pytest.raises(GroupNotFound):
        GroupAdmin({"bootstrap.servers": cluster.bootstrap_servers}).describe(name)


@pytest.mark.versions
def test_brokers_on_which_the_new_protocol_is_disabled(check: Check) -> None:
    with Cluster(config={"group.coordinator.rebalance.protocols": "classic", **NOT_FENCED}) as older:
        older.create_topic("orders")
        plain = {"kafka.bootstrap.servers": older.bootstrap_servers}
        checked = check(query("orders", plain))
        assert checked.exit_code == 0, checked.output
        assert not checked.of("protocol")
        needed = check(query("orders", plain, kafka_group_protocol="consumer"))
        assert needed.failed == ["protocol"]
        assert "Set it to classic" in needed.errors[0][2]


def test_a_session_that_the_brokers_refuse_is_an_error(topic: MakeTopic, check: Check, plain: Mapping[str, str]) -> None:
    name = topic()
    longer = {"kafka_session_timeout_ms": "1800001", "kafka_max_poll_interval_ms": "1800001"}
    checked = check(query(name, plain, **longer))
    assert checked.failed == ["session"]
    assert "kafka.session.timeout.ms=1800001 is above the brokers' group.max.session.timeout.ms (1800000)" in checked.errors[0][2]
    assert "Set it to 1000 to 1800000" in checked.errors[0][2]
    fits = check(query(name, plain))
    assert "kafka.session.timeout.ms=45000: the brokers accept 1000 to 1800000" in fits.of("session")[0][2]
    theirs = check(query(name, plain, kafka_group_protocol="consumer"))
    assert "group.consumer.session.timeout.ms is 6000" in theirs.of("session")[0][2]


def test_commits_that_may_have_been_left_for_too_long(
    topic: MakeTopic, cluster: Cluster, check: Check, plain: Mapping[str, str]
) -> None:
    name, day_ms = topic(), 86_400_000
    group, now_ms = f"group-of-{name}", round(time.time() * 1000)
    options = query(name, plain, kafka_group_id=group)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})

    def left_at(offset: int, written_ms: int) -> Checked:
        """Write one more record, commit this offset without a member, and check."""
        send(producer, name, "x", partition=0, timestamp=written_ms)
        assert producer.flush(30) == 0
        commit_as_another_client(cluster, group, name, offset)
        return check(options)

    assert not check(options).of("retention"), "the group has no commits"
    old = left_at(1, now_ms - 9 * day_ms)
    assert old.level("retention") == "ok"
    assert "it is not known how long the group has been idle" in old.of("retention")[0][2]
    unread = left_at(1, now_ms - day_ms)
    assert (unread.level("retention"), unread.exit_code) == ("warning", 0)
    assert "expire after 7 days without members" in unread.of("retention")[0][2]
    assert f"for example in {name}-0" in unread.of("retention")[0][2]
    read = left_at(2, now_ms)
    assert read.level("retention") == "ok"
    assert "has read within this time" in read.of("retention")[0][2]
    with joined(cluster, group, name, 1):
        assert "the group has members" in check(options).of("retention")[0][2]
