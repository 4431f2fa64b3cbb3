"""Reads one range with either reader, and determines when the range is complete, what is lost, and how long to wait.

A consumer reads one partition at a time. Before a partition's first range, it asks for the log's bounds. A later range begins
directly with a Fetch, which saves one request per partition and micro-batch. The task then asks for the bounds only after an
error, an early end, silence, or a gap at the start.

A range is complete when the task finds one of these:

- the record just before `end`, or a record at or after `end`, which is dropped;
- the end of the partition, at or after `end`;
- the consumer's position at `end`, because the position moves past transaction markers and aborted records.

A record with a later leader epoch than the log had when the range was planned ends the range before that record, because the log
has been truncated in the meantime and has grown again.

A gap between two records is not a loss: for a Fetch below its log start, a broker returns an error instead of skipping records.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pyarrow as pa
from confluent_kafka import KafkaError

from spark_groupsource.brokers.client import diverging_offset
from spark_groupsource.errors import SchemaError
from spark_groupsource.fetch.arrow_schema import null_not_allowed
from spark_groupsource.fetch.bounds import ASK_BOUNDS_S, BOUNDS_PAUSE_S, NoAnswer, ask_bounds, raise_if_refused, wait_for_bounds
from spark_groupsource.fetch.consumer_cache import borrowed
from spark_groupsource.fetch.contract import (
    FetchConsumer,
    FetchRange,
    FetchSettings,
    Intake,
    MakeConsumer,
    PartitionEvent,
    Records,
    Taken,
)
from spark_groupsource.fetch.lost_ranges import LogBounds, LostRange, cut_off, lost_ranges, remaining, report
from spark_groupsource.fetch.refusals import BOUNDS_IN_DOUBT, most_specific, refusal, response_too_large, throttled, timed_out
from spark_groupsource.partition import TopicPartition
from spark_groupsource.patience import doubled
from spark_groupsource.timeouts import RETRY_INTERVAL_S, cut_believed_after_s

log = logging.getLogger(__name__)

TASK_WAIT_S = 0.5
"""The maximum length of a single wait in librdkafka. It is limited because signals cannot interrupt such a wait."""

TASK_FLOW_S = 0.005
"""The maximum wait for the next record while records are arriving."""

TASK_SILENCE_S = 5.0
"""How long a task waits for a record before it asks for the log's bounds, because librdkafka reports a deleted topic late or
never."""


def read_range(fetch_range: FetchRange, settings: FetchSettings, make: MakeConsumer) -> Records:
    """Read a range with a consumer created by `make`, as described in `spark_groupsource.fetch.choice.fetch`."""
    if fetch_range.start < fetch_range.end:
        with borrowed(make, settings.client) as consumer:
            range_reading = _Reading(consumer, fetch_range, settings)
            try:
                yield from range_reading.batches()
            finally:
                range_reading.close()
        return range_reading.is_cut
    return False


def batch_of(intake: Intake, fetch_range: FetchRange, next_offset: int) -> pa.RecordBatch | None:
    """Return an intake's batch, or None if it has no rows.

    Args:
        intake: The intake.
        fetch_range: The range of its records.
        next_offset: The offset after them.

    Raises:
        SchemaError: The batch has a null in a column that the schema declares as NOT NULL.
    """
    batch = intake.batch()
    column = None if batch is None else null_not_allowed(batch)
    if column is not None:
        raise SchemaError(
            f"{reading(fetch_range)}: a record before offset {next_offset} has no {column}, which the schema declares as NOT "
            "NULL. Kafka allows such records, but the query fails on this one. Remove NOT NULL from the schema."
        )
    return batch


def reading(fetch_range: FetchRange) -> str:
    """Return the beginning of a task's error messages."""
    return f"Reading {fetch_range}"


class _Reading:
    """Reads one range and tracks its progress."""

    def __init__(self, consumer: FetchConsumer, fetch_range: FetchRange, settings: FetchSettings) -> None:
        self._consumer = consumer
        self._range = fetch_range
        self._settings = settings
        self._partition = TopicPartition(fetch_range.topic, fetch_range.partition)
        self._intake = consumer.intake(fetch_range, settings.schema, settings.batch_bytes)
        self._doing = reading(fetch_range)
        self._next = fetch_range.start
        """The next offset to read. All offsets before it have been read, are lost, or are known to have no record."""
        self._end = fetch_range.end
        """The end of the range, exclusive; lowered if the log was truncated. The range is complete when `_next` reaches it."""
        self._assigned_at = fetch_range.start
        """The offset at which the current assignment starts."""
        self._begun = False
        """Whether this assignment's first record has arrived, and the offsets before it have been checked for losses."""
        self._position_is_ours = False
        """Whether the consumer's position belongs to this assignment."""
        self._in_doubt = False
        """Whether there has been an error that the log's bounds may explain."""
        self.is_cut = False
        """Whether the log was found to be truncated below the end of the range."""
        self._last_error: KafkaError | None = None
        self._progress_at = 0.0
        """The time of the last progress (`time.monotonic`)."""
        self._ask_at = 0.0
        """When to ask for the log's bounds if there is no progress by then."""
        self._pauses_s = doubled(RETRY_INTERVAL_S, TASK_SILENCE_S)
        """The pauses before a new assignment after an error that the log's bounds do not explain."""
        self._silences = 0
        """How many times in a row no broker has answered."""
        self._progress()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the range's records (see the module docstring)."""
        timeout_ms = self._settings.poll_timeout_ms
        # 1. Ask for the bounds, once per consumer and partition, because librdkafka does not report that a topic does not exist,
        #    so the task would wait for nothing. Ask before `assign`, because a waiting Fetch delays all other requests.
        if self._partition not in self._consumer.answered:
            client = self._settings.client
            self._leave_out_lost(wait_for_bounds(self._consumer, self._partition, self._end, timeout_ms, self._doing, client))
            # The leader may have used up the full time limit to answer. The records get their own time limit.
            self._progress()
        # 2. Read until `_next` reaches the end. Records, gaps and losses move `_next` up; a truncated log moves the end down.
        self._assign()
        while self._next < self._end:
            previous = self._next
            taken = self._take()
            self._accept(taken)
            if taken.full and (batch := batch_of(self._intake, self._range, self._next)) is not None:
                yield batch
                # Do not count the time that Spark spends on the batch.
                self._progress()
            elif self._next > previous:
                self._progress()
            elif self._next < self._end and not self._throttled():
                self._no_progress()
        # 3. End the assignment before yielding the last batch, so that no unneeded Fetch is sent while Spark processes the batch.
        self._consumer.unassign()
        if (batch := batch_of(self._intake, self._range, self._next)) is not None:
            yield batch

    def close(self) -> None:
        """Free the records that have not been yielded. Call this before closing the consumer, because they depend on it."""
        self._intake.close()

    def _assign(self) -> None:
        self._assigned_at = self._next
        self._begun = False
        self._position_is_ours = False
        self._in_doubt = False
        # Drop records from the previous assignment, which may come from another log, and whose offsets would look like progress.
        self._intake.forget_fetched()
        if self._next < self._end:
            self._consumer.assign(self._partition, self._next)

    def _take(self) -> Taken:
        # Check the position before a long wait: if the rest of the range has no records, none will arrive.
        taken = self._intake.take(self._next, self._end, TASK_FLOW_S)
        if taken.nothing and not self._moved_past_hidden():
            taken = self._intake.take(self._next, self._end, TASK_WAIT_S)
        return taken

    def _moved_past_hidden(self) -> bool:
        """Move `_next` up to the consumer's position, and return whether this was progress."""
        # Use the position, not the offset of the last record. librdkafka returns no messages for transaction markers and aborted
        # records, so a task whose range ends with them would wait for a record until it fails.
        position = self._consumer.position(self._partition)
        if position < 0:
            self._position_is_ours = True
        # For a moment after `assign`, the position is still the one from an earlier assignment, perhaps beyond this range, and
        # trusting it would skip records. Trust it only after it has been seen unset, or after a record or event from this
        # assignment has arrived.
        if not self._position_is_ours or position <= self._next:
            return False
        self._begin(min(position, self._end))
        self._next = min(position, self._end)
        return True

    def _accept(self, taken: Taken) -> None:
        if taken.first is not None:
            self._position_is_ours = True
            self._begin(min(taken.first, self._end))
            self._next = taken.next
        if taken.event is not None:
            self._accept_event(taken.event)

    def _accept_event(self, event: PartitionEvent) -> None:
        if event.error.code() == KafkaError._PARTITION_EOF:
            self._position_is_ours = True
            if event.offset >= self._end:
                self._begin(self._end)
                self._next = self._end
            else:
                # Either the log was truncated, or a new leader does not have the end yet. Ask for the bounds soon to find out.
                self._ask_at = min(self._ask_at, time.monotonic() + BOUNDS_PAUSE_S)
            return
        if event.offset >= self._end and event.offset == self._consumer.position(self._partition):
            # The consumer has passed all records before the event, and the range ends with a transaction marker or an aborted
            # record. The position alone does not prove this: after a batch with a wrong checksum, librdkafka continues at a wrong
            # offset.
            self._begin(self._end)
            self._next = self._end
            return
        # Make the next task ask for the bounds first: if the topic has been deleted, it would otherwise wait out its full time
        # limit.
        self._consumer.answered.discard(self._partition)
        self._last_error = event.error
        if event.error.code() == KafkaError._LOG_TRUNCATION:
            # The rest of the range belongs to a different log than the planned one. The next plan finds out where that log
            # begins.
            self._cut_off(self._next, event.offset)
            return
        cut_at = diverging_offset(event.error)
        # librdkafka may have kept this error from an earlier assignment that fetched beyond this range, so the error counts only
        # after a record from this assignment. Before that, the range is fetched again, and its records' epochs decide.
        if cut_at is not None and 0 <= cut_at < self._end and self._begun:
            self._cut_off(max(self._next, cut_at), cut_at)
            # The records below the cut still exist, but librdkafka has stopped fetching.
            self._assign()
            return
        if event.error.code() == KafkaError._AUTHENTICATION:
            # The broker refused a connection, perhaps while this consumer was not in use, and with a token that has since been
            # replaced. If the broker still refuses, the task fails because of the silence that follows.
            self._ask_at = min(self._ask_at, time.monotonic() + BOUNDS_PAUSE_S)
            return
        if event.error.code() in BOUNDS_IN_DOUBT:
            self._in_doubt = True
            return
        refused = refusal(event.error, self._doing if event.offset < 0 else f"{self._doing}, at offset {event.offset}")
        if refused is not None:
            # A response that was too large may have caused this error, because it closes the connection.
            raise response_too_large(self._consumer.errors, self._doing_at()) or refused

    def _cut_off(self, start: int, cut_at: int) -> None:
        """End the range at `start`, because the log was truncated at `cut_at` or below, and now has different records there."""
        self._report([cut_off(start, self._end, cut_at)])
        self._end = start

    def _begin(self, first: int) -> None:
        """Check, once per assignment, that no record before the first one was deleted in the meantime.

        Args:
            first: The offset of the first record, or the first offset that may have one.
        """
        if self._begun:
            return
        self._begun = True
        # Only a gap at the start can be a loss: the bounds may be from an earlier task, and the log start may have moved into the
        # gap before the first Fetch. A gap between two records is not a loss (see the module docstring).
        if first > self._assigned_at:
            timeout_ms = self._settings.poll_timeout_ms
            try:
                bounds = ask_bounds(self._consumer, self._partition, 0, timeout_ms / 1000, self._doing, 0)
            except NoAnswer as silence:
                raise timed_out(self._doing, timeout_ms, silence.error, answers=False) from None
            self._note_answer(bounds)
            if bounds is not None:
                # A replaced leader may return an end that is too low, but a record beyond it proves that the log is longer.
                bounds = LogBounds(bounds.low, max(bounds.high, first))
            self._report(lost_ranges(self._assigned_at, first, bounds))

    def _throttled(self) -> bool:
        """Return whether brokers throttle the consumer, so that the task must wait without sending a request.

        A broker that throttles reads nothing from the connection. A request would time out, and librdkafka would close the
        connection and lose its Fetch. On a new connection, the broker would throttle the next Fetch again.
        """
        if not self._consumer.throttling.left_s:
            return False
        now = time.monotonic()
        timeout_ms = self._settings.poll_timeout_ms
        if now >= self._progress_at + timeout_ms / 1000:
            raise throttled(self._doing_at(), timeout_ms)
        self._ask_at = max(self._ask_at, now + TASK_SILENCE_S)
        return True

    def _no_progress(self) -> None:
        large = response_too_large(self._consumer.errors, self._doing_at())
        if large is not None:
            raise large
        now = time.monotonic()
        timeout_ms = self._settings.poll_timeout_ms
        overdue = now >= self._progress_at + timeout_ms / 1000
        if not (overdue or self._in_doubt or now >= self._ask_at):
            return
        answers = True
        try:
            believe_after_s = cut_believed_after_s(timeout_ms)
            bounds = ask_bounds(self._consumer, self._partition, self._end, ASK_BOUNDS_S, self._doing, believe_after_s)
        except NoAnswer as silence:
            answers = False
            self._last_error = silence.error
            self._silences += 1
            # A broker that is shutting down may interrupt a handshake, which looks like a refusal, so only a second refusal
            # counts.
            if self._silences > 1:
                raise_if_refused(self._consumer, self._doing_at())
            elif not overdue:
                self._consumer.errors.clear()
        else:
            self._silences = 0
            if self._leave_out_lost(bounds):
                self._progress()
                self._assign()
                return
        if overdue:
            raise_if_refused(self._consumer, self._doing_at())
            raise timed_out(self._doing_at(), timeout_ms, self._last_error or most_specific(self._consumer.errors), answers)
        self._ask_at = time.monotonic() + (TASK_SILENCE_S if answers else ASK_BOUNDS_S)
        if self._in_doubt:
            # The log has these offsets, so either its leader has moved, or the log was truncated and has grown again.
            log.warning("%s: the leader rejected the read: %s. The task will retry.", self._doing_at(), self._last_error)
            time.sleep(next(self._pauses_s))
            self._assign()

    def _leave_out_lost(self, bounds: LogBounds | None) -> bool:
        """Report and skip the lost offsets in the rest of the range, and return whether there were any."""
        self._note_answer(bounds)
        found = lost_ranges(self._next, self._end, bounds)
        self._report(found)
        self._next, self._end = remaining(found, self._next, self._end)
        return bool(found)

    def _note_answer(self, bounds: LogBounds | None) -> None:
        answered = self._consumer.answered
        if bounds is not None:
            answered.add(self._partition)
        else:
            # The topic's other partitions have probably been deleted too, so their tasks must ask for the bounds instead of
            # waiting.
            answered.difference_update([partition for partition in answered if partition.topic == self._partition.topic])

    def _report(self, found: list[LostRange]) -> None:
        report(self._range, found, self._settings.fail_on_data_loss)
        self.is_cut |= any(loss.is_cut for loss in found)

    def _progress(self) -> None:
        self._pauses_s = doubled(RETRY_INTERVAL_S, TASK_SILENCE_S)
        self._silences = 0
        self._progress_at = time.monotonic()
        self._ask_at = self._progress_at + TASK_SILENCE_S

    def _doing_at(self) -> str:
        return f"{self._doing}, at offset {self._next}"
