"""Limits a task's producer batches to the size that its topics accept.

The Java producer splits a batch that is too large for its topic. With librdkafka, all rows in such a batch are refused. So no
batch may be larger than the topic's `max.message.bytes`. This way, every row that is small enough by itself is written.
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
"""How long a task waits for its topics' `max.message.bytes`. Without an answer, its batches are small."""

TOPIC_LIMIT_KEPT_S = 300.0
"""How long a process relies on the answer. The process of a failed task exits, so the next attempt asks again."""

SETTING = "batch.size"
LARGEST = 1_000_000
"""The batch size if the user sets none: librdkafka's default, because a task has many rows to write."""
JAVAS = 16_384
"""The batch size if the user sets none and a topic's limit is unknown: the Java producer's default."""

_LIMIT = "max.message.bytes"


def fitting(wanted: int | None, limits: Collection[int | None]) -> int:
    """Return a batch size that all topics accept.

    Args:
        wanted: The user's `kafka.batch.size`.
        limits: Each topic's limit. `None`: unknown.
    """
    known = [limit for limit in limits if limit is not None]
    default = LARGEST if len(known) == len(limits) else JAVAS
    return max(1, min([default if wanted is None else wanted, *known]))


def with_batch_size(client: Mapping[str, str], topics: Collection[str]) -> dict[str, str]:
    """Return a producer's settings with a batch size that its topics accept.

    Args:
        client: The finished settings. A batch size in them is kept unless it is too large.
        topics: The rows' topics.

    Raises:
        OptionError, AuthenticationFailed: See `make_client`.
    """
    wanted = int(client[SETTING]) if SETTING in client else None
    return {**client, SETTING: str(fitting(wanted, topic_limits(client, topics).values()))}


def without_producers(client: Mapping[str, str]) -> dict[str, str]:
    """Return a producer's settings, reduced to those for a client that only sends requests."""
    return {name: value for name, value in client.items() if name not in PRODUCER_NAMES and name != "transactional.id"}


def topic_limits(client: Mapping[str, str], topics: Collection[str]) -> dict[str, int | None]:
    """Return each topic's `max.message.bytes`, or `None` where it is unknown.

    This process keeps answers for a few minutes, because each request would cost a task 10 to 20 ms.

    Args:
        client: A producer's finished settings.
        topics: The topics' names.

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
"""Each topic's limit and when it expires, by the settings of the client that asked for it, and the topic."""


def _asked(settings: Mapping[str, str], topics: Collection[str]) -> dict[str, int | None]:
    """Request the limits of topics. Topics whose limit should be requested again are missing from the result."""
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
                "The %s of topic %s is unknown (%s), so batches have at most %d bytes unless kafka.batch.size is set.",
                _LIMIT,
                resource.name,
                error.str(),
                JAVAS,
            )
    return found
