"""Refuses a missing output topic on the driver, before any task starts.

A task would notice the missing topic only after a minute, because librdkafka waits for a topic to appear. Or the task would find
no token, and fail with advice about expired offsets.
"""

from __future__ import annotations

import time

from confluent_kafka import KafkaError, KafkaException

from spark_groupsource.brokers.admin_client import make_admin_client
from spark_groupsource.brokers.advertised import refuse_unreachable
from spark_groupsource.brokers.broker_errors import TOPIC_ERRORS
from spark_groupsource.brokers.client import LastError
from spark_groupsource.errors import TopicNotFound
from spark_groupsource.patience import Deadline
from spark_groupsource.sink.batch_size import without_producers
from spark_groupsource.sink.settings import SinkSettings

TOPIC_APPEARS_S = 3.0
"""How long the driver keeps asking for a missing topic. All brokers know a new topic within this time."""

TOPIC_TRY_S = 5.0
"""How long the driver waits for a connection, and then for the answer. If there is no answer, the driver leaves the check to the
tasks, whose errors show why no broker answers."""

TOPIC_KNOWN_S = 30.0
"""How long the driver relies on the answer. Asking in every micro-batch would take time, and topics are rarely deleted."""

_FOUND: dict[tuple[str | None, str], float] = {}
"""When this process last found each topic, by broker addresses and topic name."""

_CREATED = KafkaError.LEADER_NOT_AVAILABLE


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
        admin.describe_cluster(request_timeout=TOPIC_TRY_S).result()
    except KafkaException:
        refuse_unreachable(without_producers(settings.producer))
        return
    for _ in Deadline(TOPIC_APPEARS_S).attempts():
        try:
            error = admin.list_topics(topic, timeout=TOPIC_TRY_S).topics[topic].error
        except KafkaException:
            return
        if error is None:
            _FOUND[place] = time.monotonic()
            return
        if error.code() not in TOPIC_ERRORS | {_CREATED, KafkaError.TOPIC_EXCEPTION}:
            return
    raise TopicNotFound(
        f"The output topic {topic} does not exist, or was deleted. Nothing has been written to it. Create it, or check its name. "
        "If it was deleted, the offsets of an exactly-once query were deleted with it. Once the topic exists again, such a "
        "query fails with BatchUnknown, and you choose between rewriteBatch and skipBatch."
    )
