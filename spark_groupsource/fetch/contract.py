"""Defines what every reader takes and returns, and the two parts in which readers differ.

A reader is a function of type `Reader` that does what the docstring of `choice.fetch` promises. The tests in tests/kafka/fetch/
run with every reader. The native and the pure reader differ only in their consumer, which fetches records, and their intake,
which turns them into batches. They share reading.py, bounds.py and consumer_cache.py.

The driver imports this module too, so it imports neither pyspark nor confluent-kafka nor pyarrow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from spark_groupsource.partition import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import KafkaError

BATCH_ROWS = 10_000
"""The maximum number of rows in a record batch."""

BATCH_BYTES = 7 * 1024 * 1024 // 8
"""The maximum size of the keys, values and headers in a record batch, in bytes, unless a single record is larger.

Including its other columns, such a batch takes about 1 MiB, so the JVM finds most of it in the CPU caches, even when it shares
the core with this process. glibc's allocator and Arrow's allocator in the JVM reuse the same memory. The batch's 32-bit offsets
cannot overflow, because only a single record can make a batch larger, and Kafka has no 2 GiB records.
"""

BUFFER_BYTES = 64 * 1024 * 1024
"""The default for `FetchSettings.buffer_bytes`."""


@dataclass(frozen=True)
class FetchSettings:
    """How to read ranges. The driver sends these to the executors, pickled with the reader. The `repr` shows no client settings.

    Args:
        client: All settings of the task's consumer, under librdkafka's names and including secrets. `options.client_settings`
            merges them on the driver. Tasks use them unchanged, except that a task with several partitions prefetches less and
            waits less.
        schema: The columns of the batches (arrow_schema.py). Nothing else is copied from a record.
        fail_on_data_loss: Whether lost records are an error. If not, the task logs a warning and reads the rest.
        poll_timeout_ms: The maximum wait for the next record, or for any progress, in ms.
        buffer_bytes: The maximum number of record bytes in memory at a time, unless a single record is larger.
    """

    client: Mapping[str, str] = field(repr=False)
    schema: pa.Schema
    fail_on_data_loss: bool = True
    poll_timeout_ms: int = 120_000
    buffer_bytes: int = BUFFER_BYTES

    @property
    def batch_bytes(self) -> int:
        """The maximum batch size, at most an eighth of the buffer, which also holds the messages and Spark's previous batch."""
        return min(BATCH_BYTES, self.buffer_bytes // 8)


@dataclass(frozen=True)
class FetchRange:
    """The offsets that a Spark task reads from one partition. Contains no secret, and can be pickled.

    Args:
        topic: The topic's name.
        partition: The partition's number.
        start: The first offset, inclusive.
        end: The end of the range, exclusive. If it equals the start, the range is empty.
        epoch: The log's leader epoch when the range was planned, so no record in the range has a later epoch. `None` if it is
            unknown.

    Raises:
        ValueError: The range starts below 0, or ends before it starts.
    """

    topic: str
    partition: int
    start: int
    end: int
    epoch: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"{self.topic}-{self.partition}: [{self.start}, {self.end}) is not a range of offsets")

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


Records = Generator["pa.RecordBatch", None, bool]
"""A range's records. The generator returns whether the range ended early because its log was truncated."""

Reader = Callable[[FetchRange, FetchSettings], Records]
"""Reads a range as described in `choice.fetch`."""


@dataclass(frozen=True)
class PartitionEvent:
    """An error or the end of the partition, which librdkafka returned instead of a record.

    Args:
        error: librdkafka's error.
        offset: The event's offset; below 0 if it is unknown.
    """

    error: KafkaError
    offset: int


@dataclass(frozen=True)
class Taken:
    """The result of one `Intake.take` call.

    Args:
        first: The offset of the first record found, or None. It may be at or beyond the end of the range. A record from another
            log does not count (see `Intake.take`).
        next: The offset after the last row taken in, or the end of the range if a record at or beyond it was found.
        full: Whether the batch is full. If so, call `batch` before the next `take`.
        event: The event that followed the rows, or None.
    """

    first: int | None
    next: int
    full: bool = False
    event: PartitionEvent | None = None

    @property
    def nothing(self) -> bool:
        """Whether the call found no record and no event."""
        return self.first is None and self.event is None and not self.full


class Intake(Protocol):
    """Collects records from one partition into batches. Close it before its consumer."""

    def take(self, next_offset: int, end: int, wait_s: float) -> Taken:
        """Take in the fetched records in `[next_offset, end)`, up to a full batch or an event.

        A record with a later leader epoch than the range is returned as an event with the error `_LOG_TRUNCATION`, because the
        log was truncated after the range was planned, and has grown again.

        Records before `next_offset` are dropped. If no record has been fetched, this call waits for one, and may then wait a few
        milliseconds for each record that follows. It never asks librdkafka for more records than the range has offsets.

        Args:
            next_offset: The first offset, inclusive.
            end: The end, exclusive.
            wait_s: The maximum wait for the first record, in s. 0 means not to wait.
        """

    def forget_fetched(self) -> None:
        """Drop the records that have been fetched but not taken in. Call this when their assignment ends."""

    def batch(self) -> pa.RecordBatch | None:
        """Return the collected rows as a batch, or None if there are none, and start the next batch."""

    def close(self) -> None:
        """Free all records."""


class Throttling:
    """Tracks how long the brokers will throttle a consumer's connections because the consumer has exceeded a quota."""

    def __init__(self) -> None:
        self._ends_at = 0.0

    def note(self, seconds: float) -> None:
        """Record the throttle time from a broker's response. During this time, the broker does not read from the connection."""
        self._ends_at = max(self._ends_at, time.monotonic() + seconds)

    @property
    def left_s(self) -> float:
        """The time until throttling ends, in seconds; 0 if there is none."""
        return max(0.0, self._ends_at - time.monotonic())


class FetchConsumer(Protocol):
    """A consumer that reads one partition at a time, for one task at a time."""

    errors: dict[int, KafkaError]
    """The errors that librdkafka has reported by callback since this dict was last cleared. It has only the latest for each
    code."""

    answered: set[TopicPartition]
    """The partitions whose leader has answered this consumer, with no error since then. Tasks for these begin with a Fetch."""

    throttling: Throttling
    """How long brokers will throttle this consumer. If a request times out meanwhile, the connection closes and its Fetch is
    lost."""

    def bounds(self, partition: TopicPartition, timeout_s: float) -> tuple[int, int]:
        """Ask the partition's leader where its log starts and ends (see `LogBounds`).

        Raises:
            KafkaException: The leader refuses, or does not answer in time.
        """

    def partition_error(self, partition: TopicPartition, timeout_s: float) -> KafkaError | None:
        """Ask a broker whether the topic or the partition has an error, and return the error, or None.

        The answer also refreshes librdkafka's cache of the partition's leader, to which `bounds` sends its request.

        Raises:
            KafkaException: The broker refuses, or does not answer in time.
        """

    def serve(self) -> None:
        """Serve the callbacks. Call this only while nothing is assigned, because this call drops any record that arrives."""

    def assign(self, partition: TopicPartition, offset: int) -> None:
        """Start fetching this partition, and no other, from `offset` (inclusive)."""

    def unassign(self) -> None:
        """Stop fetching, if anything is assigned."""

    def position(self, partition: TopicPartition) -> int:
        """Return the offset after the last one that the consumer has passed, with or without a record; below 0 if none."""

    def intake(self, fetch_range: FetchRange, schema: pa.Schema, batch_bytes: int) -> Intake:
        """Start taking in the records of this range.

        Args:
            fetch_range: The range.
            schema: The columns of the batches. Nothing else is copied from a record.
            batch_bytes: The maximum size of the keys, values and headers in a batch, in bytes, unless a single record is larger.
                Keys and values count even if they are not columns, because they stay in memory until the batch is built. Headers
                count only if they are a column.
        """

    def close(self) -> None:
        """Close the connections and stop the threads."""

    def abandon(self) -> None:
        """Ensure that a forked child never frees the parent's consumer, whose threads do not exist in the child."""


MakeConsumer = Callable[[Mapping[str, str]], FetchConsumer]
"""Creates a consumer from finished librdkafka settings. Raises OptionError if librdkafka refuses them."""


class SharedConsumer(FetchConsumer, Protocol):
    """A consumer that reads several partitions at the same time, each from its own queue, so `serve` never drops a record."""

    def assign_all(self, ranges: Sequence[FetchRange]) -> None:
        """Start fetching these ranges of different partitions, and nothing else.

        Raises:
            KafkaException: librdkafka refuses the assignment.
        """

    def own_intake(self, fetch_range: FetchRange, schema: pa.Schema, batch_bytes: int, rows: int) -> Intake:
        """Start taking in the records of one of the ranges.

        Args:
            fetch_range: The range.
            schema: See `intake`.
            batch_bytes: See `intake`.
            rows: The maximum number of rows in a batch.
        """


MakeShared = Callable[[Mapping[str, str]], SharedConsumer]
"""Creates a `SharedConsumer` from finished librdkafka settings. Raises OptionError if librdkafka refuses them."""
