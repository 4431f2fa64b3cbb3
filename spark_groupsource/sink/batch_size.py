"""How large the batches of a task's producer may be.

librdkafka does not split a batch that a topic finds too large, as Java's producer does: all its rows are refused. So no batch may
be larger than the topic's `max.message.bytes`, and only then each row is written that fits into the topic alone.
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
"""How long a task of the sink waits for the largest batch that its topics take. Without an answer its batches are small."""

TOPIC_LIMIT_KEPT_S = 300.0
"""How long a process believes this answer. A task that fails ends its process, so the next attempt asks anew."""

SETTING = "batch.size"
LARGEST = 1_000_000
"""The size without a setting of the user's: librdkafka's default. A task has many rows at once."""
JAVAS = 16_384
"""The same for a topic whose limit is not known: the default of Java's producer."""

_LIMIT = "max.message.bytes"


def fitting(wanted: int | None, limits: Collection[int | None]) -> int:
    """Return how large a batch may be.

    Args:
        wanted: The user's `kafka.batch.size`.
        limits: The limit of each topic. `None`: it is not known.
    """
    known = [limit for limit in limits if limit is not None]
    default = LARGEST if len(known) == len(limits) else JAVAS
    return max(1, min([default if wanted is None else wanted, *known]))


def with_batch_size(client: Mapping[str, str], topics: Collection[str]) -> dict[str, str]:
    """Return a producer's settings with the size of its batches.

    Args:
        client: The finished settings. What the user has set of the size stays, if it is not too large.
        topics: The topics of the rows.

    Raises:
        OptionError, AuthenticationFailed: See `make_client`.
    """
    wanted = int(client[SETTING]) if SETTING in client else None
    return {**client, SETTING: str(fitting(wanted, topic_limits(client, topics).values()))}


def without_producers(client: Mapping[str, str]) -> dict[str, str]:
    """Return a producer's settings for a client that only asks."""
    return {name: value for name, value in client.items() if name not in PRODUCER_NAMES and name != "transactional.id"}


def topic_limits(client: Mapping[str, str], topics: Collection[str]) -> dict[str, int | None]:
    """Return the `max.message.bytes` of each topic; `None` if the brokers do not say it.

    Answers are kept in this process for some minutes: each task would wait 10 to 20 ms for one.

    Args:
        client: The finished settings of a producer.
        topics: Names of topics.

    Raises:
        OptionError, AuthenticationFailed: See `make_client`.
    """
    settings = without_producers(client)
    whose = tuple(sorted(settings.items()))
    now = time.monotonic()
    for old in [key for key, (_, until) in _kept.items() if until <= now]:
        del _kept[old]
    unknown = sorted(topic for topic in topics if (whose, topic) not in _kept)
    asked = _asked(settings, unknown) if unknown else {}
    for topic, limit in asked.items():
        _kept[whose, topic] = limit, now + TOPIC_LIMIT_KEPT_S
    return {topic: _kept[whose, topic][0] if (whose, topic) in _kept else None for topic in topics}


def forget() -> None:
    """Forget all answers."""
    _kept.clear()


_kept: dict[tuple[tuple[tuple[str, str], ...], str], tuple[int | None, float]] = {}
"""The limit of each topic that was asked for with the same settings, and until when it is believed."""


def _asked(settings: Mapping[str, str], topics: Collection[str]) -> dict[str, int | None]:
    """Return what the brokers say of the topics. One is left out if it has to be asked for again."""
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
                "The %s of topic %s is not known (%s): batches of rows have at most %d bytes, unless kafka.batch.size is set",
                _LIMIT,
                resource.name,
                error.str(),
                JAVAS,
            )
    return found
