"""How a query writes: the finished settings that travel from the driver to the tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from spark_groupsource.kafka_settings.client_id import named
from spark_groupsource.sink.names import DEFAULT_PREFIX, Names
from spark_groupsource.sink.rules import NO_CHOICE, Choice


@dataclass(frozen=True)
class SinkSettings:
    """How to write. It is pickled with the writer, and its repr shows no client setting.

    Args:
        producer: All settings of a task's producer in librdkafka's names, secrets included.
        requests: Those of the client that reads and commits offsets.
        topic: The topic of every row. `None`: the column `topic` names it.
        exactly_once: Whether tasks write in transactions.
        prefix: The option `transactionalIdPrefix`.
        choice: The options `rewriteBatch` and `skipBatch`.
        longest_transaction_ms: The `transaction.timeout.ms` of a task that has outlasted the default. `None`: the user has set
        it.
    """

    producer: Mapping[str, str] = field(repr=False)
    requests: Mapping[str, str] = field(repr=False)
    topic: str | None = None
    exactly_once: bool = False
    prefix: str = DEFAULT_PREFIX
    choice: Choice = NO_CHOICE
    longest_transaction_ms: int | None = None

    def for_query(self, query: str) -> SinkSettings:
        """Return these settings, with clients that brokers know by the query's id."""
        return replace(self, producer=named(self.producer, query), requests=named(self.requests, query))

    def names(self, query: str) -> Names:
        """Return the names that a query has in Kafka.

        Args:
            query: Its id.
        """
        return Names.of(self.prefix, query, self.topic)
