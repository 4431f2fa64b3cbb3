"""What an AdminClient says of a group: one that exists, one that begins or has ended, and one of another kind."""

from __future__ import annotations

from contextlib import closing, suppress

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from devtools.broker import Cluster
from spark_groupsource.brokers.broker_errors import COORDINATOR_ERRORS
from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.errors import GroupNotFound, NotAConsumerGroup
from spark_groupsource.partition import TopicPartition
from spark_groupsource.patience import Deadline
from tests.conftest import MakeTopic
from tests.support.consumers import joined
from tests.support.other_groups import ShareGroup, StreamsGroup
from tests.support.waiting import GENEROUS_S


@pytest.fixture
def admin(cluster: Cluster) -> GroupAdmin:
    return GroupAdmin({"bootstrap.servers": cluster.bootstrap_servers})


def test_the_members_of_a_group_and_one_that_it_does_not_have(topic: MakeTopic, cluster: Cluster, admin: GroupAdmin) -> None:
    name = topic()
    group = f"group-of-{name}"
    with joined(cluster, group, name, 1):
        (member_id,) = admin.members(group)
        member = admin.member(group, member_id)
        assert member is not None
        assert member.partitions == {TopicPartition(name, 0)}
        assert admin.member(group, "nobody") is None


def test_a_group_that_has_offsets_only_has_no_members_and_one_without_offsets_is_not_found(
    topic: MakeTopic, admin: GroupAdmin
) -> None:
    name = topic()
    group = f"group-of-{name}"
    with pytest.raises(GroupNotFound, match=group):
        admin.describe(group)
    admin.alter_offsets(group, {TopicPartition(name, 0): 0})
    assert admin.describe(group).members == ()
    assert admin.members(group) == frozenset()
    assert admin.offsets(group).keys() == {TopicPartition(name, 0)}


def test_a_group_is_deleted_with_its_offsets_and_one_that_is_not_there_is_deleted_already(
    topic: MakeTopic, admin: GroupAdmin
) -> None:
    name = topic()
    group = f"group-of-{name}"
    admin.alter_offsets(group, {TopicPartition(name, 0): 3})
    admin.delete(group)
    assert admin.groups(group) == []
    assert admin.offsets(group) == {}
    admin.delete(group)


@pytest.mark.parametrize("kind", [ShareGroup, StreamsGroup])
def test_a_group_of_a_new_kind_is_refused_whatever_is_asked_of_it(
    topic: MakeTopic, cluster: Cluster, admin: GroupAdmin, kind: type[ShareGroup | StreamsGroup]
) -> None:
    name = topic()
    group = f"group-of-{name}"
    kind(cluster, group, name)
    for ask in (admin.describe, admin.members, lambda group: admin.member(group, "nobody")):
        with pytest.raises(NotAConsumerGroup, match=kind.kind):
            ask(group)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_that_comes_into_being_meanwhile_is_a_consumer_group(
    topic: MakeTopic, cluster: Cluster, admin: GroupAdmin, protocol: str
) -> None:
    name = topic()
    for number in range(10):
        group = f"group-{number}-of-{name}"

        def has_a_member(group: str = group) -> bool:
            with suppress(GroupNotFound):
                return bool(admin.describe(group).members)
            return False

        settings = {"group.protocol": protocol, "group.id": group, "bootstrap.servers": cluster.bootstrap_servers}
        with closing(Consumer(settings)) as consumer:
            consumer.subscribe([name])
            deadline = Deadline(GENEROUS_S)
            while not has_a_member():  # without a pause, to meet the moment
                consumer.poll(0)
                assert not deadline.over


@pytest.mark.parametrize("code", sorted(COORDINATOR_ERRORS), ids=lambda code: KafkaError(code).name())
def test_a_coordinator_that_is_loading_is_asked_again(admin: GroupAdmin, code: int) -> None:
    loading = [KafkaError(code)] * 3

    def answer() -> list[str]:
        if loading:
            raise KafkaException(loading.pop())
        return admin.groups("no-such-group")

    assert admin._ask(answer, "listing", "orders") == []
