"""The topic that a query writes to, read as it grows by a reader of committed records."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition

from spark_groupsource.brokers.client import librdkafka_log
from spark_groupsource.patience import Deadline
from tests.harness.evidence import Row

PARTITIONS = 3
AT_ONCE = 10_000
"""The most records in one call."""
SILENCE_S = 2.0
"""After so long without a record there is no other one for now."""
LONGEST_S = 10.0
"""The topic grows: what is left after that time is read by the next call."""


class Copies:
    """What one query has written. A record's value has the partition, the offset and the number that it was made of."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self.topic = topic
        settings = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "the account",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
        self._consumer = Consumer(settings, logger=librdkafka_log)
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])

    def new_rows(self) -> list[Row]:
        """Return what has been committed since the last call."""
        found: list[Row] = []
        deadline = Deadline(LONGEST_S)
        while not deadline.over and (messages := self._consumer.consume(AT_ONCE, SILENCE_S)):
            # An error is a broker that is away: the records are read later.
            values = [message.value() for message in messages if message.error() is None]
            found += (Row(*map(int, value.split())) for value in values if value is not None)
        return found
