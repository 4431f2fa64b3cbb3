"""What a reader is made of: a consumer, and the intake that makes batches of what it has fetched.

The two readers differ in these; everything above them (reading.py, bounds.py, consumers.py) is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from confluent_kafka import KafkaError

from spark_groupsource.partition import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class PartitionEvent:
    """What came in the place of a record: an error, or the end of the partition.

    Args:
        error: what librdkafka says.
        offset: where in the partition; below 0 when that is not known.
    """

    error: KafkaError
    offset: int


@dataclass(frozen=True)
class Taken:
    """What one look at the fetched records gave.

    Args:
        first: the offset of the first record seen, which may be one at the end of the range or beyond; None for no record.
        next: the offset after the last row taken in; the range's end once a record at it or beyond was seen.
        full: whether the rows make a whole batch, which must be had before the next look.
        event: what stopped the look, after the rows.
    """

    first: int | None
    next: int
    full: bool = False
    event: PartitionEvent | None = None

    @property
    def nothing(self) -> bool:
        """Whether there was nothing to see."""
        return self.first is None and self.event is None and not self.full


class Intake(Protocol):
    """The batch under way of one partition. Closed at the end, before the consumer is."""

    def take(self, next_offset: int, end: int, wait_s: float) -> Taken:
        """Take in what has been fetched of `[next_offset, end)`, up to a whole batch or an event.

        Drops what lies before `next_offset`. With nothing there, waits up to `wait_s` for one record, and for no more.
        Asks for no more records than the range has offsets.
        """

    def forget_fetched(self) -> None:
        """Drop what was fetched and not looked at: it is of an assignment that ends."""

    def batch(self) -> pa.RecordBatch | None:
        """Return the rows taken in, None if there is none, and begin the next batch."""

    def close(self) -> None:
        """Drop everything."""


class FetchConsumer(Protocol):
    """A consumer that reads one partition at a time, in the hands of one task at a time.

    `errors` has those that librdkafka reported by callback: the last of each code, since they were last cleared. `pid` is the
    process that made it, the only one that may touch it.
    """

    errors: dict[int, KafkaError]
    pid: int

    def bounds(self, partition: TopicPartition, timeout_s: float) -> tuple[int, int]:
        """Ask the partition's leader for its low and high offset (see `LogBounds`); raises KafkaException."""

    def partition_error(self, partition: TopicPartition, timeout_s: float) -> KafkaError | None:
        """Ask a broker what is the matter with the topic or the partition, None if nothing is; raises KafkaException."""

    def serve(self) -> None:
        """Serve the callbacks; only while nothing is assigned, or a record would be thrown away."""

    def assign(self, partition: TopicPartition, offset: int) -> None:
        """Begin to fetch this partition, and no other, from `offset` (inclusive)."""

    def unassign(self) -> None:
        """Stop fetching."""

    def position(self, partition: TopicPartition) -> int:
        """Return the offset after the last one passed, records or not; below 0 while there is none."""

    def intake(self, partition: TopicPartition, include_headers: bool, batch_bytes: int) -> Intake:
        """Begin to take in the records of this partition, in batches of at most so many bytes or of one record."""

    def close(self) -> None:
        """End its connections and threads."""

    def abandon(self) -> None:
        """In a forked child, see to it that what the parent made is never freed: its threads are not here."""


# Makes a consumer of finished librdkafka settings; raises OptionError when it refuses them.
MakeConsumer = Callable[[Mapping[str, str]], FetchConsumer]
