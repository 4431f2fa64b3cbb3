"""Reads small ranges from several partitions in one pass, with one consumer that is assigned all of them.

A pass takes only records that are certain to be right: each range's records, in offset order, from the queue of its partition. A
range is complete when the pass gets one of these:

- the record just before `end`, or a record at or after `end`, which is dropped;
- the end of the partition, at or after `end`.

In every other case, the ordinary reader (reading.py) reads the rest of the range. That reader reads one range at a time, and
handles losses, refusals and waiting. Such cases are a gap before the first record, which may be a loss; a range without records;
a record from a log that was truncated and has grown again; any error; and silence. A pass does not use the consumer's position,
which may belong to an earlier assignment.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from spark_groupsource.fetch.consumer_cache import borrowed
from spark_groupsource.fetch.contract import BATCH_ROWS, FetchRange, FetchSettings, Intake, MakeShared, Reader, SharedConsumer
from spark_groupsource.fetch.reading import TASK_WAIT_S, batch_of

log = logging.getLogger(__name__)

TASK_SHARED_SILENCE_S = 2.0
"""How long a task that reads several partitions in one pass waits for a record before it reads them one by one to find out what
is wrong. Leaders answer within milliseconds, but a new connection may wait for `reconnect.backoff.ms`, which is 1 s by
default."""

_AHEAD_BYTES = 64 * 1024
"""The maximum number of bytes per partition in a response, and also the prefetch limit, unless a producer's batch is larger. A
long backlog may follow a small range, and every partition in a pass prefetches."""

_LARGEST_BATCH = 1024 * 1024
"""The largest producer batch that brokers accept by default. A Fetch returns at least one whole batch."""

_WAIT_MS = 2
"""How long a Fetch waits at the end of the logs, in ms. This is short, because the next pass has to wait for a Fetch in progress.
Records that arrive after a response also have to wait, but there are few, because a pass ends within milliseconds."""


def read_shared(
    ranges: Sequence[FetchRange], settings: FetchSettings, make: MakeShared, read_one: Reader
) -> Iterator[pa.RecordBatch]:
    """Read ranges in passes, as described in `spark_groupsource.fetch.choice.fetch_shared`.

    Args:
        ranges: The ranges, of different partitions.
        settings: How to read.
        make: Creates the consumer that reads all of the ranges.
        read_one: Reads a range that a pass has not finished.
    """
    unfinished: list[FetchRange] = []
    for portion in _portions(
        [fetch_range for fetch_range in ranges if fetch_range.start < fetch_range.end], settings.buffer_bytes
    ):
        one_pass = _Pass(portion, settings)
        yield from one_pass.batches(make)
        unfinished += one_pass.unfinished
    yield from read_one_by_one(unfinished, settings, read_one)


def read_one_by_one(ranges: Sequence[FetchRange], settings: FetchSettings, read_one: Reader) -> Iterator[pa.RecordBatch]:
    """Read ranges one at a time."""
    for fetch_range in ranges:
        yield from read_one(fetch_range, settings)


def for_passes(client: Mapping[str, str]) -> dict[str, str]:
    """Return the task's settings, changed for a consumer that reads in passes: it prefetches less and waits less."""
    most = {
        "max.partition.fetch.bytes": _AHEAD_BYTES,
        "queued.max.messages.kbytes": _AHEAD_BYTES // 1024,
        "fetch.wait.max.ms": _WAIT_MS,
    }
    return {**client, **{name: str(min(int(client[name]), value)) for name, value in most.items()}}


def _portions(ranges: Sequence[FetchRange], buffer_bytes: int) -> list[Sequence[FetchRange]]:
    """Split the ranges into passes, each small enough that the largest batch of every range fits in memory at the same time."""
    most = max(1, buffer_bytes // _LARGEST_BATCH)
    return [ranges[first : first + most] for first in range(0, len(ranges), most)]


class _Pass:
    """Reads several ranges with one assignment."""

    def __init__(self, ranges: Sequence[FetchRange], settings: FetchSettings) -> None:
        self._ranges = ranges
        self._settings = settings
        self._together = _Together(settings.batch_bytes)
        self._overdue_at = 0.0
        """When the pass stops waiting for brokers that throttle its consumer, unless it makes progress."""
        self._silent_at = 0.0
        """When the silence will have lasted too long, unless the pass makes progress."""
        self._silent = False
        """Whether the silence has lasted too long. The pass then takes the records that have arrived, and stops waiting."""
        self.unfinished: list[FetchRange] = []
        """The ranges that the ordinary reader has to read."""

    def batches(self, make: MakeShared) -> Iterator[pa.RecordBatch]:
        """Yield the records that the pass finds. Afterwards, `unfinished` contains the rest."""
        with borrowed(make, for_passes(self._settings.client)) as consumer:
            # Serve the callbacks here, because nothing polls this consumer: its records come from the partitions' own queues.
            consumer.serve()
            try:
                consumer.assign_all(self._ranges)
            except KafkaException as refused:
                log.info("failed to assign several partitions together, so they will be read one by one: %s", refused.args[0])
                self.unfinished = list(self._ranges)
                return
            self._progress()
            for fetch_range in self._ranges:
                yield from self._full_batches(consumer, fetch_range)
            consumer.serve()
        # Return the consumer before the last batch is yielded, so that no unneeded Fetch is sent while Spark works on the batch.
        if (batch := self._together.batch()) is not None:
            yield batch

    def _full_batches(self, consumer: SharedConsumer, fetch_range: FetchRange) -> Iterator[pa.RecordBatch]:
        """Take in one range, and yield each batch as it fills up."""
        rows = min(fetch_range.end - fetch_range.start, BATCH_ROWS)
        intake = consumer.own_intake(fetch_range, self._settings.schema, self._settings.batch_bytes, rows)
        try:
            for batch in self._batches_of(consumer, intake, fetch_range):
                if (full := self._together.add(batch)) is not None:
                    yield full
                    # Do not count the time that Spark spends on the batch.
                    self._progress()
        finally:
            intake.close()

    def _batches_of(self, consumer: SharedConsumer, intake: Intake, fetch_range: FetchRange) -> Iterator[pa.RecordBatch]:
        """Yield one range's records as long as they are certain to be right, and add the rest of the range to `unfinished`."""
        done = fetch_range.start
        while done < fetch_range.end:
            taken = intake.take(done, fetch_range.end, self._wait_s())
            if taken.first is not None:
                if done == fetch_range.start < taken.first:
                    # The gap may be a loss, which only the ordinary reader can determine. That reader begins at the start, so the
                    # rows taken in here are dropped. Otherwise, they would be duplicated.
                    self.unfinished.append(fetch_range)
                    return
                done = taken.next
                self._progress()
            if taken.full and (batch := batch_of(intake, fetch_range, done)) is not None:
                yield batch
            elif taken.event is not None:
                ended = taken.event.error.code() == KafkaError._PARTITION_EOF and taken.event.offset >= fetch_range.end
                # An end without any record is also a gap at the start: the records may have been deleted.
                if not ended or done == fetch_range.start:
                    break
                done = fetch_range.end
            elif taken.first is None and self._is_silent(consumer):
                break
        if (batch := batch_of(intake, fetch_range, done)) is not None:
            yield batch
        if done < fetch_range.end:
            self.unfinished.append(replace(fetch_range, start=done))

    def _progress(self) -> None:
        self._silent_at = time.monotonic() + TASK_SHARED_SILENCE_S
        self._overdue_at = time.monotonic() + self._settings.poll_timeout_ms / 1000

    def _is_silent(self, consumer: SharedConsumer) -> bool:
        consumer.serve()
        if consumer.throttling.left_s and time.monotonic() < self._overdue_at:
            self._silent_at = time.monotonic() + TASK_SHARED_SILENCE_S
        self._silent = self._silent or time.monotonic() >= self._silent_at
        return self._silent

    def _wait_s(self) -> float:
        return 0.0 if self._silent else min(TASK_WAIT_S, max(0.0, self._silent_at - time.monotonic()))


class _Together:
    """Combines small batches into larger ones, because each batch takes Spark a few milliseconds.

    Args:
        batch_bytes: The maximum size of a batch, in bytes.
    """

    def __init__(self, batch_bytes: int) -> None:
        self._batch_bytes = batch_bytes
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """Add a batch. If it does not fit with the earlier batches, return those combined into one batch."""
        # Do not use `nbytes` here, because computing it takes as long as reading the range.
        full, size = None, batch.get_total_buffer_size()
        if self._rows + batch.num_rows > BATCH_ROWS or self._bytes + size > self._batch_bytes:
            full = self.batch()
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._bytes += size
        return full

    def batch(self) -> pa.RecordBatch | None:
        """Return the collected batches combined into one, or None if there are none, and start collecting again."""
        batches, self._batches, self._rows, self._bytes = self._batches, [], 0, 0
        if len(batches) < 2:
            return batches[0] if batches else None
        (combined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
        return combined
