"""Limits the batches of a task's producer to the size that its topics accept.

Java's producer splits a batch that is too large for its topic. With librdkafka, all rows of such a batch are refused. So no batch
may be larger than the topic's `max.message.bytes`. Then every row that fits into the topic by itself is written.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

from spark_groupsource.brokers.admin_client import make_admin_client
from spark_groupsource.brokers.client import LastError
from spark_groupsource.kafka_settings.tables import PRODUCER_NAMES

log = logging.getLogger(__name__)

TOPIC_LIMIT_S = 3.0
"""How long a task waits for the `max.message.bytes` of its topics. Without an answer, its batches are small."""

TOPIC_LIMIT_KEPT_S = 300.0
"""How long a process relies on the answer. A task that fails ends its process, so the next attempt asks again."""

SETTING = "batch.size"
LARGEST = 1_000_000
"""The size if the user sets none: librdkafka's default, because a task has many rows to write."""
JAVAS = 16_384
"""The same if the limit of a topic is not known: the default of Java's producer."""

_LIMIT = "max.message.bytes"


def fitting(wanted: int | None, limits: Collection[int | None]) -> int:
    """Return the size of a batch that fits into all topics.

    Args:
        wanted: The user's `kafka.batch.size`.
        limits: The limit of each topic. `None`: not known.
    """
    known = [limit for limit in limits if limit is not None]
    default = LARGEST if len(known) == len(limits) else JAVAS
    return max(1, min([default if wanted is None else wanted, *known]))


def with_batch_size(client: Mapping[str, str], topics: Collection[str]) -> dict[str, str]:
    """Return a producer's settings with the size of its batches.

    Args:
        client: The finished settings. A size in them is kept if it is not too large.
        topics: The topics of the rows.

    Raises:
        OptionError, AuthenticationFailed: See `make_client`.
    """
    wanted = int(client[SETTING]) if SETTING in client else None
    return {**client, SETTING: str(fitting(wanted, topic_limits(client, topics).values()))}


def without_producers(client: Mapping[str, str]) -> dict[str, str]:
    """Return a producer's settings for a client that only sends requests."""
    return {name: value for name, value in client.items() if name not in PRODUCER_NAMES and name != "transactional.id"}


def topic_limits(client: Mapping[str, str], topics: Collection[str]) -> dict[str, int | None]:
    """Return the `max.message.bytes` of each topic; `None` if it is not known.

    Answers are kept in this process for some minutes, because each of them would cost a task 10 to 20 ms.

    Args:
        client: The finished settings of a producer.
        topics: Names of topics.

    Raises:
        OptionError, AuthenticationFailed: See `make_client`.
    """
    settings = without_producers(client)
    asker = tuple(sorted(settings.items()))
    now = time.monotonic()
    for old in [key for key, (_, until) in _kept.items() if until <= now]:
        del _kept[old]
    unknown = sorted(topic for topic in topics if (asker, topic) not in _kept)
    asked = _asked(settings, unknown) if unknown else {}
    for topic, limit in asked.items():
        _kept[asker, topic] = limit, now + TOPIC_LIMIT_KEPT_S
    return {topic: _kept[asker, topic][0] if (asker, topic) in _kept else None for topic in topics}


_kept: dict[tuple[tuple[tuple[str, str], ...], str], tuple[int | None, float]] = {}
"""The limit of each topic, by the settings of the client that asked for it, and the time until which it is used."""


def _asked(settings: Mapping[str, str], topics: Collection[str]) -> dict[str, int | None]:
    """Ask for the limits of topics. Topics that should be asked for again are missing in the result."""
    admin = make_admin_client(settings, LastError())
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    found: dict[str, int | None] = {}
    for resource, future in admin.describe_configs(resources, request_timeout=TOPIC_LIMIT_S).items():
        try:
            found[resource.name] = int(future.result()[_LIMIT].value)
        except KafkaException as refused:
            error: KafkaError = refused.args[0]
            if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                found[resource.name] = None
            log.info(
                "The %s of topic %s is not known (%s), so batches have at most %d bytes, unless kafka.batch.size is set.",
                _LIMIT,
                resource.name,
                error.str(),
                JAVAS,
            )
    return found
