"""Defines the two parts of a reader: a consumer that fetches records, and an intake that turns them into batches.

The native and the pure reader differ only in these parts. They share reading.py, bounds.py and consumer_cache.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from confluent_kafka import KafkaError

from spark_groupsource.fetch.contract import FetchRange
from spark_groupsource.partition import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class PartitionEvent:
    """An error, or the end of the partition, that librdkafka returned instead of a record.

    Args:
        error: librdkafka's error.
        offset: The offset of the event; below 0 if it is not known.
    """

    error: KafkaError
    offset: int


@dataclass(frozen=True)
class Taken:
    """The outcome of one `Intake.take`.

    Args:
        first: The offset of the first record found, or None. It may be at the end of the range, or beyond it. A record of another
            log does not count (see `Intake.take`).
        next: The offset after the last row taken in, or the end of the range if a record at the end or beyond was found.
        full: Whether the rows make a full batch. If so, call `batch` before the next `take`.
        event: The event that followed the rows, or None.
    """

    first: int | None
    next: int
    full: bool = False
    event: PartitionEvent | None = None

    @property
    def nothing(self) -> bool:
        """Whether nothing was found."""
        return self.first is None and self.event is None and not self.full


class Intake(Protocol):
    """Collects records of one partition into batches. Close it before its consumer."""

    def take(self, next_offset: int, end: int, wait_s: float) -> Taken:
        """Take in the fetched records of `[next_offset, end)`, up to a whole batch or an event.

        A record with a later leader epoch than the range is returned as an event with the error `_LOG_TRUNCATION`, because the
        log was cut off after the range was planned, and has grown again.

        Records before `next_offset` are dropped. If no record has been fetched, this waits for one, and may then wait a few ms
        for each of the following records. It never asks librdkafka for more records than the range has offsets.

        Args:
            next_offset: The first offset, inclusive.
            end: The last offset, exclusive.
            wait_s: The longest wait for the first record, in s. 0 means no wait.
        """

    def forget_fetched(self) -> None:
        """Drop the records that were fetched but not taken in. Call this when their assignment ends."""

    def batch(self) -> pa.RecordBatch | None:
        """Return the rows taken in as a batch, or None if there are none, and begin the next batch."""

    def close(self) -> None:
        """Free all records."""


class Throttling:
    """Remembers for how long brokers will not answer on this consumer's connections, because it has exceeded a quota."""

    def __init__(self) -> None:
        self._ends_at = 0.0

    def note(self, seconds: float) -> None:
        """Note the throttle time from a broker's response, during which the broker does not read from the connection."""
        self._ends_at = max(self._ends_at, time.monotonic() + seconds)

    @property
    def left_s(self) -> float:
        """The seconds until throttling ends; 0 if there is none."""
        return max(0.0, self._ends_at - time.monotonic())


class FetchConsumer(Protocol):
    """A consumer that reads one partition at a time, for one task at a time."""

    errors: dict[int, KafkaError]
    """The errors that librdkafka has reported by callback since this was last cleared, only the last of each code."""

    answered: set[TopicPartition]
    """The partitions whose leader has answered this consumer, without an error since. For these, tasks begin with a Fetch."""

    throttling: Throttling
    """How long brokers throttle this consumer. A request that times out meanwhile closes the connection, and ends its Fetch."""

    pid: int
    """The process that made the consumer. No other process may use it."""

    def bounds(self, partition: TopicPartition, timeout_s: float) -> tuple[int, int]:
        """Ask the partition's leader where its log starts and ends (see `LogBounds`).

        Raises:
            KafkaException: The leader refuses, or does not answer in time.
        """

    def partition_error(self, partition: TopicPartition, timeout_s: float) -> KafkaError | None:
        """Ask a broker whether the topic and the partition have an error, and return it, or None.

        The answer also refreshes librdkafka's cache of the partition's leader, which `bounds` asks.

        Raises:
            KafkaException: The broker refuses, or does not answer in time.
        """

    def serve(self) -> None:
        """Serve the callbacks. Call it only while nothing is assigned, because a record would be dropped."""

    def assign(self, partition: TopicPartition, offset: int) -> None:
        """Begin to fetch this partition, and no other, from `offset` (inclusive)."""

    def unassign(self) -> None:
        """Stop fetching, if anything is assigned."""

    def position(self, partition: TopicPartition) -> int:
        """Return the offset after the last one that the consumer has passed, with or without a record; below 0 for none."""

    def intake(self, fetch_range: FetchRange, schema: pa.Schema, batch_bytes: int) -> Intake:
        """Begin to take in the records of this range.

        Args:
            fetch_range: The range.
            schema: The columns of the batches. Nothing else of a record is copied.
            batch_bytes: The most bytes of keys, values and headers in a batch, unless a single record is larger. Keys and values
                count even if they are not columns, because they stay in memory until the batch is made. Headers count only if
                they are a column.
        """

    def close(self) -> None:
        """End the connections and threads."""

    def abandon(self) -> None:
        """Make sure that a forked child never frees the parent's consumer, because its threads do not exist in the child."""


MakeConsumer = Callable[[Mapping[str, str]], FetchConsumer]
"""Makes a consumer from finished settings for librdkafka. It raises OptionError if librdkafka refuses them."""


class SharedConsumer(FetchConsumer, Protocol):
    """A consumer that reads several partitions at a time, each from its own queue, so `serve` never drops a record."""

    def assign_all(self, ranges: Sequence[FetchRange]) -> None:
        """Begin to fetch these ranges of different partitions, and nothing else.

        Raises:
            KafkaException: librdkafka refuses the assignment.
        """

    def own_intake(self, fetch_range: FetchRange, schema: pa.Schema, batch_bytes: int, rows: int) -> Intake:
        """Begin to take in the records of one of the ranges.

        Args:
            fetch_range: The range.
            schema: See `intake`.
            batch_bytes: See `intake`.
            rows: The most rows of a batch.
        """


MakeShared = Callable[[Mapping[str, str]], SharedConsumer]
"""Makes a `SharedConsumer` from finished settings for librdkafka. It raises OptionError if librdkafka refuses them."""
