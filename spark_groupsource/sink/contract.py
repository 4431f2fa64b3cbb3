"""The interface of the producers that the sink's tasks use, native or pure Python."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import pyarrow as pa
from confluent_kafka import KafkaError

from spark_groupsource.sink.token import Token, Written

FULL_QUEUE_POLL_S = 0.005
"""How long a full producer is polled before the next attempt. The pure Python producer is full when its queue is full, and the
native one when it holds too many bytes."""

FLUSH_S = (0.001, 0.1)
"""How long the first and the longest `flush` call wait for deliveries. Between calls, the task checks for refused rows.

Short first calls help the pure Python producer. It receives only failure reports, so librdkafka checks whether all rows have been
delivered only every 10 ms and at the end of a call."""


class Undelivered(NamedTuple):
    """The first row that was not delivered."""

    error: KafkaError
    topic: str
    partition: int
    """-1: no partition had been chosen yet."""
    size: int
    """The size of the key, the value and the headers, in bytes."""


class NotDelivered(Exception):
    """A row was not delivered."""

    def __init__(self, undelivered: Undelivered) -> None:
        super().__init__(undelivered.error.str())
        self.undelivered = undelivered


class Producer(Protocol):
    """A librdkafka producer, used by one task at a time. Times are in seconds."""

    errors: dict[int, KafkaError]
    """The latest error for each code, except for errors that belong to a request."""
    last: Token | None
    """The last token that the producer has committed under its transactional id."""

    def start_over(self) -> None:
        """Reset counts and reports for the next task. The previous task's rows must all have been delivered."""

    def connect(self, timeout_s: float) -> bool:
        """Wait for a broker connection, and return whether there is one. Without this, other calls wait longer for it."""

    def note_errors(self) -> None:
        """Add the errors that librdkafka has reported so far to `errors`."""

    def init_transactions(self, timeout_s: float) -> None:
        """Take the transactional id, which ends its open transaction and fences all earlier producers with this id.

        Raises:
            KafkaException: The id was not taken. If the error is retriable, call this again.
        """

    def begin_transaction(self) -> None:
        """Begin a transaction."""

    def count(self, rows: pa.RecordBatch) -> None:
        """Count rows without writing them."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Count rows and enqueue them.

        Args:
            rows: Columns from `rows_of` (columns.py).

        Raises:
            NotDelivered: A row was refused, or was not delivered.
        """

    @property
    def written(self) -> Written:
        """The number and the checksum of the rows that have been counted."""

    @property
    def topics(self) -> frozenset[str]:
        """The topics of the rows that have been counted."""

    def refuse_undelivered(self) -> None:
        """Check whether a row has been refused so far.

        Raises:
            NotDelivered: A row was refused, or was not delivered.
        """

    def flush(self) -> None:
        """Wait until every row has been delivered.

        Raises:
            NotDelivered: A row was not delivered.
        """

    def send_offset(self, group: str, topic: str, offset: int, metadata: str, timeout_s: float) -> None:
        """Commit an offset for the group and the topic's partition 0, as part of the transaction.

        Raises:
            KafkaException: See `init_transactions`.
        """

    def commit_transaction(self, timeout_s: float) -> None:
        """Commit the transaction.

        Raises:
            KafkaException: See `init_transactions`.
        """

    def abort_transaction(self, timeout_s: float) -> None:
        """Abort the transaction.

        Raises:
            KafkaException: See `init_transactions`.
        """

    def close(self) -> None:
        """Close the producer, and drop rows that have not been delivered yet."""

    def abandon(self) -> None:
        """Leak the producer in a forked child, where it must be neither used nor freed."""
