"""What the tasks of the sink need of a producer, native or not."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import pyarrow as pa
from confluent_kafka import KafkaError

from spark_groupsource.sink.token import Token, Written

FULL_QUEUE_POLL_S = 0.005
"""How long a producer is polled before the next attempt: the pure Python one while its queue is full, the native one while it
keeps much."""

FLUSH_S = (0.001, 0.1)
"""How long a task waits for deliveries in its first call, and in a later one. In between it looks for rows that were refused.
To the pure Python producer only failures are reported: then librdkafka looks every 10 ms whether all are there, and when a call
ends."""


class Undelivered(NamedTuple):
    """The first row that could not be written."""

    error: KafkaError
    topic: str
    partition: int
    """-1: none was chosen yet."""
    size: int
    """Of key, value and headers, in bytes."""


class NotDelivered(Exception):
    """A row could not be written."""

    def __init__(self, undelivered: Undelivered) -> None:
        super().__init__(undelivered.error.str())
        self.undelivered = undelivered


class Producer(Protocol):
    """A producer of librdkafka that one task uses at a time. Times are in seconds."""

    errors: dict[int, KafkaError]
    """The last error of each code that belongs to no request."""
    last: Token | None
    """The token that it has committed last under its transactional id."""

    def start_over(self) -> None:
        """Forget what was counted and reported, for the next task. All rows of the one before are delivered."""

    def connect(self, timeout_s: float) -> bool:
        """Wait for a connection to a broker, best effort: other calls would wait longer for it. Returns whether there is one."""

    def note_errors(self) -> None:
        """Note in `errors` what librdkafka has reported so far."""

    def init_transactions(self, timeout_s: float) -> None:
        """Take the transactional id: end its open transaction, and fence every earlier producer of it.

        Raises:
            KafkaException: It was not taken. If the error is retriable, call this again.
        """

    def begin_transaction(self) -> None:
        """Begin a transaction."""

    def count(self, rows: pa.RecordBatch) -> None:
        """Count rows without writing them."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Count rows and enqueue them.

        Args:
            rows: Columns of `rows_of` (columns.py).

        Raises:
            NotDelivered: A row was refused or not delivered.
        """

    @property
    def written(self) -> Written:
        """What was counted."""

    @property
    def topics(self) -> frozenset[str]:
        """The topics of the rows that were counted."""

    def refuse_undelivered(self) -> None:
        """Look whether a row has been refused by now.

        Raises:
            NotDelivered: A row was not delivered.
        """

    def flush(self) -> None:
        """Wait until every row is delivered.

        Raises:
            NotDelivered: A row was not delivered.
        """

    def send_offset(self, group: str, topic: str, offset: int, metadata: str, timeout_s: float) -> None:
        """Commit an offset of partition 0 of the topic for the group, within the transaction.

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
        """Close the producer. What it has not delivered is dropped."""

    def abandon(self) -> None:
        """Never use or free the producer, in a forked child."""
