"""Defines the settings for a query that writes. They have their own module, so that unpickling them imports no client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from spark_groupsource.kafka_settings.client_id import named
from spark_groupsource.sink.names import DEFAULT_PREFIX, Names
from spark_groupsource.sink.rules import NO_CHOICE, Choice


@dataclass(frozen=True)
class SinkSettings:
    """How a query writes. Pickled together with the writer. The repr shows no client settings.

    Args:
        producer: All settings of a task's producer, under librdkafka's names and including secrets.
        requests: The settings for the clients that read and commit offsets.
        topic: The topic of every row. `None`: the `topic` column names it.
        exactly_once: Whether tasks write in transactions.
        prefix: The `transactionalIdPrefix` option.
        choice: The `rewriteBatch` and `skipBatch` options.
        longest_transaction_ms: The `transaction.timeout.ms` for a task that has outlasted the default. `None`: the user has set
            this timeout.
    """

    producer: Mapping[str, str] = field(repr=False)
    requests: Mapping[str, str] = field(repr=False)
    topic: str | None = None
    exactly_once: bool = False
    prefix: str = DEFAULT_PREFIX
    choice: Choice = NO_CHOICE
    longest_transaction_ms: int | None = None

    def for_query(self, query: str) -> SinkSettings:
        """Return these settings with the query's id in the client ids."""
        return replace(self, producer=named(self.producer, query), requests=named(self.requests, query))

    def names(self, query: str) -> Names:
        """Return a query's names in Kafka.

        Args:
            query: The query's id.
        """
        return Names.of(self.prefix, query, self.topic)
