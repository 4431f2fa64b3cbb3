"""Whether groups may be moving from one coordinator to another: a list of groups may lack those that do."""

from __future__ import annotations

from collections.abc import Collection

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from spark_groupsource.errors import BrokerUnavailable
from spark_groupsource.timeouts import REQUEST_TIMEOUT_S

OFFSETS_TOPIC = "__consumer_offsets"
"""Kafka's topic for groups. The leader of a partition coordinates the groups that are in it."""


def coordinators_move(admin: AdminClient, topics: Collection[str], doing: str) -> bool:
    """Return whether a broker is away, so that its groups may be on their way to other coordinators.

    A new leader of a partition lists its groups only when it has heard that it is the leader, and the old one may be silent, or
    list them no more. The other brokers answer without an error. Kafka moves groups also without a broker that is away, when a
    preferred leader is elected: that takes milliseconds, and is not noticed here.

    Args:
        admin: What is asked.
        topics: Topics of the user, which show it too.
        doing: What the answer is for, for the error.

    Raises:
        BrokerUnavailable: A partition of `__consumer_offsets` has no leader, so that nobody lists its groups.
    """
    asked = TopicCollection([OFFSETS_TOPIC, *topics])
    moving = False
    for topic, future in admin.describe_topics(asked, request_timeout=REQUEST_TIMEOUT_S).items():
        try:
            partitions = future.result().partitions
        except KafkaException:
            # The user may not describe it, or it does not exist. If no broker answers, none lists its groups either.
            continue
        leaderless = [partition.id for partition in partitions if partition.leader is None]
        if topic == OFFSETS_TOPIC and leaderless:
            raise BrokerUnavailable(
                f"{doing}: partition {leaderless[0]} of {OFFSETS_TOPIC} has no leader, so nobody lists the groups in it. "
                "Start the brokers that have its replicas."
            )
        moving |= any(partition.leader is None or len(partition.isr) < len(partition.replicas) for partition in partitions)
    return moving
