"""Whether groups may be moving from one coordinator to another: a list of groups may lack those that do."""

from __future__ import annotations

from collections.abc import Collection

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from spark_groupsource.errors import BrokerUnavailable

OFFSETS_TOPIC = "__consumer_offsets"
"""Kafka's topic for groups. The leader of a partition coordinates the groups that are in it."""

LOOK_S = 3.0
"""How long a broker may take to describe topics. One that takes longer is in trouble itself."""

_NOT_SHOWN = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART}


def coordinators_move(admin: AdminClient, topics: Collection[str]) -> bool:
    """Return whether a broker is away, so that its groups may be on their way to other coordinators.

    A new leader of a partition lists its groups only when it has heard that it is the leader, and the old one may be silent, or
    list them no more. The other brokers answer without an error. Kafka moves groups also without a broker that is away, when a
    preferred leader is elected: that takes milliseconds, and is not noticed here.

    Args:
        admin: What is asked.
        topics: Topics of the user. They are looked at if the user may not describe `__consumer_offsets`.

    Raises:
        BrokerUnavailable: A partition of `__consumer_offsets` has no leader, so that nobody lists its groups.
    """
    asked = TopicCollection([OFFSETS_TOPIC, *topics])
    answers = admin.describe_topics(asked, request_timeout=LOOK_S)
    away: dict[str, bool] = {}
    for topic, answer in answers.items():
        try:
            partitions = answer.result().partitions
        except KafkaException as failed:
            if failed.args[0].code() in _NOT_SHOWN:
                continue
            return True
        leaderless = [partition.id for partition in partitions if partition.leader is None]
        if topic == OFFSETS_TOPIC and leaderless:
            raise BrokerUnavailable(
                f"partition {leaderless[0]} of {OFFSETS_TOPIC} has no leader, so nobody lists the groups that are in it. "
                "Start the brokers that have its replicas."
            )
        away[topic] = any(partition.leader is None or len(partition.isr) < len(partition.replicas) for partition in partitions)
    return away.get(OFFSETS_TOPIC, any(away.values()))
