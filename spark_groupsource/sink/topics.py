"""Asks the brokers about a query's topics before it writes: does a topic exist, and how large may a batch be?

**Does the topic exist?** The driver asks before any task starts. A task would notice a missing topic only after a minute, because
librdkafka waits for a topic to appear. Or the task would find no token, and fail with advice about expired offsets.

**How large may a batch be?** The Java producer splits a batch that is too large for its topic. With librdkafka, all rows in such
a batch are refused. So no batch may be larger than the topic's `max.message.bytes`. This way, every row that is small enough by
itself is written.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

from spark_groupsource.brokers.admin_client import make_admin_client
from spark_groupsource.brokers.advertised import refuse_unreachable
from spark_groupsource.brokers.broker_errors import TOPIC_ERRORS
from spark_groupsource.brokers.client import LastError
from spark_groupsource.brokers.client_pool import digest
from spark_groupsource.errors import TopicNotFound
from spark_groupsource.kafka_settings.tables import PRODUCER_NAMES
from spark_groupsource.patience import Deadline
from spark_groupsource.sink.settings import SinkSettings
from spark_groupsource.timeouts import CONNECT_S

log = logging.getLogger(__name__)

TOPIC_ASKED_S = 3.0
"""How long the driver keeps asking for a missing topic, and a task waits for its topics' `max.message.bytes`. All brokers know a
new topic within this time. A task that gets no answer uses small batches."""

TOPIC_KNOWN_S = 30.0
"""How long the driver assumes that a topic still exists. Asking in every micro-batch takes time; topics are rarely deleted."""

TOPIC_LIMIT_KEPT_S = 300.0
"""How long a process caches a topic's `max.message.bytes`. A failed task's process exits, so the next attempt asks again."""

SETTING = "batch.size"
LARGEST = 1_000_000
"""The batch size if the user sets none: librdkafka's default, because a task has many rows to write."""
JAVAS = 16_384
"""The batch size if the user sets none and a topic's limit is unknown: the Java producer's default."""

_LIMIT = "max.message.bytes"

_FOUND: dict[tuple[str | None, str], float] = {}
"""When this process last found each topic, by broker addresses and topic name."""


def refuse_missing(settings: SinkSettings, topic: str | None) -> None:
    """Refuse a topic that does not exist. If brokers create topics automatically, this call creates it, as a row would.

    If the brokers do not answer, the check is left to the tasks, which wait longer. But if the brokers' advertised addresses are
    unreachable, the tasks cannot reach them either, so an error is raised right away.

    Args:
        settings: How the query writes.
        topic: The topic; `None` if rows name their topics.

    Raises:
        TopicNotFound: The topic is still missing after a few seconds.
        BrokerUnavailable: See `refuse_unreachable`.
    """
    place = settings.producer.get("bootstrap.servers"), topic or ""
    if topic is None or time.monotonic() - _FOUND.get(place, -TOPIC_KNOWN_S) < TOPIC_KNOWN_S:
        return
    # librdkafka makes this client a producer, which lets the brokers create the topic. A consumer would ask them not to.
    admin = make_admin_client(without_producers(settings.producer), LastError())
    try:
        # Connect first: a request to the bootstrap server may be lost, and is only sent again after 500 ms.
        admin.describe_cluster(request_timeout=CONNECT_S).result()
    except KafkaException:
        refuse_unreachable(without_producers(settings.producer))
        return
    for _ in Deadline(TOPIC_ASKED_S).attempts():
        try:
            error = admin.list_topics(topic, timeout=CONNECT_S).topics[topic].error
        except KafkaException:
            return
        if error is None:
            _FOUND[place] = time.monotonic()
            return
        # A topic that was just created has no leader.
        if error.code() not in TOPIC_ERRORS | {KafkaError.LEADER_NOT_AVAILABLE, KafkaError.TOPIC_EXCEPTION}:
            return
    raise TopicNotFound(
        f"The output topic {topic} does not exist, or was deleted. Nothing has been written to it. Create it, or check its "
        "name. If it was deleted, the offsets of an exactly-once query were deleted with it. Once the topic exists again, such "
        "a query will fail with BatchUnknown, and you will have to choose between rewriteBatch and skipBatch."
    )


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

    This process caches answers for a few minutes, because each request would take a task 10 to 20 ms.

    Args:
        client: A producer's finished settings.
        topics: The topics' names.

    Raises:
        OptionError, AuthenticationFailed: See `make_client`.
    """
    settings = without_producers(client)
    asker, now = digest(settings), time.monotonic()
    for expired in [key for key, (_, asked_at) in _kept.items() if now - asked_at >= TOPIC_LIMIT_KEPT_S]:
        del _kept[expired]
    found = {topic: _kept[asker, topic][0] for topic in topics if (asker, topic) in _kept}
    if unknown := [topic for topic in topics if topic not in found]:
        asked = _asked(settings, unknown)
        _kept.update({(asker, topic): (limit, now) for topic, limit in asked.items()})
        found = {**dict.fromkeys(topics), **found, **asked}
    return found


_kept: dict[tuple[str, str], tuple[int | None, float]] = {}
"""Each topic's limit and when the brokers were asked for it, by the settings of the client that asked, and the topic."""


def _asked(settings: Mapping[str, str], topics: Collection[str]) -> dict[str, int | None]:
    """Request topics' limits. Topics whose limit should be requested again are missing from the result."""
    admin = make_admin_client(settings, LastError())
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    found: dict[str, int | None] = {}
    for resource, future in admin.describe_configs(resources, request_timeout=TOPIC_ASKED_S).items():
        try:
            found[resource.name] = int(future.result()[_LIMIT].value)
        except KafkaException as refused:
            error: KafkaError = refused.args[0]
            if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                found[resource.name] = None
            log.info(
                "The %s of topic %s is unknown (%s), so batches are limited to %d bytes unless kafka.batch.size is set.",
                _LIMIT,
                resource.name,
                error.str(),
                JAVAS,
            )
    return found
