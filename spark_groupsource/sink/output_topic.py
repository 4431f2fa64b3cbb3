"""Whether the topic of the option `topic` exists, asked at the driver before a task begins.

A task would learn it after a minute (librdkafka waits for a topic to appear), or find no token there and give advice about
tokens.
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
"""How long the driver asks again for a topic that no broker knows. One that was created just now is known to all soon."""

TOPIC_TRY_S = 5.0
"""How long the driver waits for a connection, and then for the answer. Then the tasks ask, and say why no broker answers."""

TOPIC_KNOWN_S = 30.0
"""How long the driver relies on that answer. A topic is not deleted often, and each micro-batch would pay for the question."""

_FOUND: dict[tuple[str | None, str], float] = {}
"""When this process has found a topic, by the brokers' addresses and its name."""

_CREATED = KafkaError.LEADER_NOT_AVAILABLE


def refuse_missing(settings: SinkSettings, topic: str | None) -> None:
    """Refuse a topic that does not exist. Where brokers create topics by themselves, this creates it, as a row would.

    Brokers that do not answer are left to the tasks, which have more patience, unless their addresses cannot be reached.

    Args:
        settings: How the query writes.
        topic: The topic; `None` if rows name theirs.

    Raises:
        TopicNotFound: The brokers have had no such topic for some seconds.
        BrokerUnavailable: As `refuse_unreachable` does.
    """
    place = settings.producer.get("bootstrap.servers"), topic or ""
    if topic is None or time.monotonic() - _FOUND.get(place, -TOPIC_KNOWN_S) < TOPIC_KNOWN_S:
        return
    # To librdkafka this is a producer. A consumer would ask the brokers not to create the topic.
    admin = make_admin_client(without_producers(settings.producer), LastError())
    try:
        # Connect first: a question that goes to the bootstrap server may be lost, and is sent again after 500 ms.
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
        f"The topic {topic}, which is to be written to, does not exist, or was deleted. Nothing has been written to it. Create "
        "it, or check its name. If it was deleted and created again, the query's offsets were deleted with it: the query then "
        "says which choices there are."
    )
