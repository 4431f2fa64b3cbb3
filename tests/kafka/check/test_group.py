"""`groupkafka check` on a group: its kind, its ACL and its members."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import pytest

from devtools.broker import Cluster
from spark_groupsource.brokers.group_admin import GroupAdmin
from tests.conftest import MakeTopic
from tests.kafka.check.conftest import Check, query
from tests.support.consumers import joined, plain_member
from tests.support.other_groups import ConnectGroup, ShareGroup, StreamsGroup
from tests.support.secured import Secured
from tests.support.waiting import until


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
    assert "all others offer cooperative-sticky too" in checked.of("assignor")[0][2]
    assert checked.level("instance id") == "warning"
    assert "a member at 127.0.0.1 uses it" in checked.of("instance id")[0][2]


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
    assert "2 members for 1 partition: 1 of them can have none" in checked.of("members")[0][2]
