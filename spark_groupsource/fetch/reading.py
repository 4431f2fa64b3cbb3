"""How both readers read one range: where it ends, what is lost, and how long to wait.

One consumer reads one partition at a time. Before its first range of a partition it asks for the bounds of the log. Later ranges
begin with their Fetch, which saves a request for each partition and micro-batch. The task then asks only if there is an error, an
early end, silence, or a gap at the start.

One of these shows that a range is at its end:

- the record before `end`, or a record at `end` or beyond, which is dropped;
- the end of the partition, at `end` or beyond;
- the consumer's position at `end`, which moves past transaction markers and aborted records.

A record of a later leader epoch than the log had when the range was planned ends the range before it: the log was cut off since,
and has grown again.

A gap between two records is no loss: the broker refuses a Fetch below its log start, which is an error and not a jump.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pyarrow as pa
from confluent_kafka import KafkaError

from spark_groupsource.brokers.client import diverging_offset
from spark_groupsource.errors import SchemaError
from spark_groupsource.fetch.arrow_schema import has_not_null, null_not_allowed
from spark_groupsource.fetch.bounds import NoAnswer, ask_bounds, raise_if_refused, wait_for_bounds
from spark_groupsource.fetch.consumer_cache import borrowed
from spark_groupsource.fetch.contract import FetchRange, Records
from spark_groupsource.fetch.intake import FetchConsumer, MakeConsumer, PartitionEvent, Taken
from spark_groupsource.fetch.lost_ranges import LogBounds, LostRange, cut_off, lost_ranges, remaining, report
from spark_groupsource.fetch.refusals import BOUNDS_IN_DOUBT, most_specific, refusal, response_too_large, throttled, timed_out
from spark_groupsource.fetch.settings import FetchSettings
from spark_groupsource.partition import TopicPartition
from spark_groupsource.timeouts import cut_believed_after_s

log = logging.getLogger(__name__)

TASK_WAIT_S = 0.5
"""The longest single wait in librdkafka, which no signal interrupts."""

TASK_FLOW_S = 0.005
"""The wait for the next record, while records flow."""

TASK_ASK_S = 1.0
"""The limit of a request for the log's bounds while the task waits for records."""

TASK_SILENCE_S = 5.0
"""After so long without a record, the task asks for the log's bounds: librdkafka reports a deleted topic late or never."""

TASK_EARLY_END_S = 0.25
"""The same at the end of the partition, if the range should not end there."""

TASK_FIRST_PAUSE_S = 0.1
"""The pause before another assignment, after an error that the log's bounds do not explain. It doubles each time."""

TASK_LONGEST_PAUSE_S = 5.0
"""The longest of these pauses."""


def read_range(fetch_range: FetchRange, settings: FetchSettings, make: MakeConsumer) -> Records:
    """Read a range as `spark_groupsource.fetch.choice.fetch` says, with a consumer that `make` makes."""
    if fetch_range.start < fetch_range.end:
        with borrowed(make, settings.client) as consumer:
            range_reading = _Reading(consumer, fetch_range, settings)
            try:
                yield from range_reading.batches()
            finally:
                range_reading.close()
        return range_reading.is_cut
    return False


def refuse_nulls(batch: pa.RecordBatch, fetch_range: FetchRange, next_offset: int) -> None:
    """Check that nothing is null in a batch that the schema says is not.

    Args:
        batch: Records of one partition.
        fetch_range: Their range.
        next_offset: The offset after them.

    Raises:
        SchemaError: Something is null.
    """
    column = null_not_allowed(batch)
    if column is not None:
        raise SchemaError(
            f"{reading(fetch_range)}: a record before offset {next_offset} has no {column}, and the schema says that it is NOT "
            "NULL. Kafka allows such records: remove NOT NULL from the schema."
        )


def reading(fetch_range: FetchRange) -> str:
    """Return what a task does, as its errors begin."""
    return f"Reading {fetch_range}"


class _Reading:
    """One range being read."""

    def __init__(self, consumer: FetchConsumer, fetch_range: FetchRange, settings: FetchSettings) -> None:
        self._consumer = consumer
        self._range = fetch_range
        self._settings = settings
        self._partition = TopicPartition(fetch_range.topic, fetch_range.partition)
        self._has_not_null = has_not_null(settings.schema)
        self._intake = consumer.intake(fetch_range, settings.schema, settings.batch_bytes)
        self._doing = reading(fetch_range)
        self._next = fetch_range.start
        """The first offset that is not known to be read, without a record, or lost."""
        self._end = fetch_range.end
        """The end of the range, exclusive; lower if the log turns out to be cut. The range is finished when `_next` is here."""
        self._assigned_at = fetch_range.start
        """Where the current assignment begins."""
        self._begun = False
        """Whether the first record of this assignment has come, and the offsets before it were checked for losses."""
        self._position_is_ours = False
        """Whether the consumer's position is one of this assignment."""
        self._in_doubt = False
        """Whether an error came that the log's bounds may explain."""
        self.is_cut = False
        """Whether the log was cut off below the end of the range, as far as was found out."""
        self._last_error: KafkaError | None = None
        self._progress_at = 0.0
        """The time of the last progress (`time.monotonic`)."""
        self._ask_at = 0.0
        """When to ask for the log's bounds, if there is no progress until then."""
        self._pause_s = TASK_FIRST_PAUSE_S
        self._silences = 0
        """How often in a row no broker has answered."""
        self._progress()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the records of the range; see the module."""
        timeout_ms = self._settings.poll_timeout_ms
        # 1. Ask for the bounds, once for each consumer and partition: of a topic that does not exist librdkafka reports nothing,
        #    and the task would wait for its whole time. Before `assign`, since a Fetch that waits delays all other requests.
        if self._partition not in self._consumer.answered:
            client = self._settings.client
            self._leave_out_lost(wait_for_bounds(self._consumer, self._partition, self._end, timeout_ms, self._doing, client))
            # The leader had as long for its answer. The records have their own time.
            self._progress()
        # 2. Read until `_next` is at the end. Records, gaps and losses move it on; a cut log moves the end down.
        self._assign()
        while self._next < self._end:
            before = self._next
            taken = self._take()
            self._accept(taken)
            if taken.full and (batch := self._batch()) is not None:
                yield batch
                # The time that Spark took over the batch does not count.
                self._progress()
            elif self._next > before:
                self._progress()
            elif self._next < self._end and not self._throttled():
                self._no_progress()
        # 3. End the assignment before the last batch is given away. However long Spark takes over it, no Fetch is sent that
        #    nobody needs.
        self._consumer.unassign()
        if (batch := self._batch()) is not None:
            yield batch

    def close(self) -> None:
        """Free the records that were not yielded. They depend on the consumer, so this comes before it is closed."""
        self._intake.close()

    def _batch(self) -> pa.RecordBatch | None:
        batch = self._intake.batch()
        if batch is not None and self._has_not_null:
            refuse_nulls(batch, self._range, self._next)
        return batch

    def _assign(self) -> None:
        self._assigned_at = self._next
        self._begun = False
        self._position_is_ours = False
        self._in_doubt = False
        # Records of the assignment before, which may be of another log: their offsets would be taken for progress of this one.
        self._intake.forget_fetched()
        if self._next < self._end:
            self._consumer.assign(self._partition, self._next)

    def _take(self) -> Taken:
        # Wait long last: the rest of the range may be without records.
        taken = self._intake.take(self._next, self._end, TASK_FLOW_S)
        if taken.nothing and not self._moved_past_hidden():
            taken = self._intake.take(self._next, self._end, TASK_WAIT_S)
        return taken

    def _moved_past_hidden(self) -> bool:
        """Move to the consumer's position; return whether that is further than before."""
        # The position, not the last record's offset: of transaction markers and aborted records no message comes, so a range that
        # ends with them would wait for a record until the task fails.
        position = self._consumer.position(self._partition)
        if position < 0:
            self._position_is_ours = True
        # For a moment after `assign` the position is that of an earlier assignment, maybe beyond this range: records would be
        # left out. It counts once it was seen unset, or once a record or an event of this assignment has come.
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
                # The log was cut, or this leader is new and does not know the end yet. Only the bounds tell: ask soon.
                self._ask_at = min(self._ask_at, time.monotonic() + TASK_EARLY_END_S)
            return
        if event.offset >= self._end and event.offset == self._consumer.position(self._partition):
            # All before it has been passed, and the range ends there with a transaction marker or an aborted record. The position
            # alone proves nothing: behind a batch with a wrong checksum librdkafka continues at a wrong place.
            self._begin(self._end)
            self._next = self._end
            return
        # So the next task asks for the bounds first. Otherwise a deleted topic would cost it its whole time.
        self._consumer.answered.discard(self._partition)
        self._last_error = event.error
        if event.error.code() == KafkaError._LOG_TRUNCATION:
            # What is left of the range is of another log, and not what was planned. The next plan finds out where that begins.
            self._cut_off(self._next, event.offset)
            return
        cut_at = diverging_offset(event.error)
        # librdkafka may have kept this error from an earlier assignment, which had fetched beyond this range. So it counts only
        # after records of this one. Otherwise the range is asked for again, and the epochs of its records decide.
        if cut_at is not None and 0 <= cut_at < self._end and self._begun:
            self._cut_off(max(self._next, cut_at), cut_at)
            # What lies below is still there. librdkafka has stopped to fetch.
            self._assign()
            return
        if event.error.code() == KafkaError._AUTHENTICATION:
            # A request of any kind waited on a connection that was refused, maybe while this consumer was kept, under a token
            # that has been replaced since. A refusal that lasts ends in silence.
            self._ask_at = min(self._ask_at, time.monotonic() + TASK_EARLY_END_S)
            return
        if event.error.code() in BOUNDS_IN_DOUBT:
            self._in_doubt = True
            return
        refused = refusal(event.error, self._doing if event.offset < 0 else f"{self._doing}, at offset {event.offset}")
        if refused is not None:
            # With its connection other requests fail, which says less.
            raise response_too_large(self._consumer.errors, self._doing_at()) or refused

    def _cut_off(self, start: int, cut_at: int) -> None:
        """End the range at `start`: the log was cut off at `cut_at` or below, and has other records there since."""
        self._report([cut_off(start, self._end, cut_at)])
        self._end = start

    def _begin(self, first: int) -> None:
        """Check once per assignment that no record before its first one was deleted meanwhile.

        Args:
            first: The offset of the first record, or the first offset that is not known to be without one.
        """
        if self._begun:
            return
        self._begun = True
        # Only here a gap may be a loss. The bounds may have been asked for in an earlier task, and the log start may have moved
        # into the gap before the first Fetch. A gap between two records is none (see the module).
        if first > self._assigned_at:
            timeout_ms = self._settings.poll_timeout_ms
            try:
                bounds = ask_bounds(self._consumer, self._partition, 0, timeout_ms / 1000, self._doing, 0)
            except NoAnswer as silence:
                raise timed_out(self._doing, timeout_ms, silence.error, answers=False) from None
            self._note_answer(bounds)
            if bounds is not None:
                # A leader that was replaced may return an end that is too low. What has come from beyond it is not cut off.
                bounds = LogBounds(bounds.low, max(bounds.high, first))
            self._report(lost_ranges(self._assigned_at, first, bounds))

    def _throttled(self) -> bool:
        """Return whether the brokers throttle the consumer. Then the task asks nothing, and waits.

        The broker reads nothing from the connection meanwhile. A request would time out, and librdkafka would close the
        connection with its Fetch. On a new connection the broker throttles the next Fetch again.
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
            bounds = ask_bounds(self._consumer, self._partition, self._end, TASK_ASK_S, self._doing, believe_after_s)
        except NoAnswer as silence:
            answers = False
            self._last_error = silence.error
            self._silences += 1
            # A broker that stops may interrupt a handshake, which looks like a refusal. Only a later one is accepted.
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
        self._ask_at = time.monotonic() + (TASK_SILENCE_S if answers else TASK_ASK_S)
        if self._in_doubt:
            # The log has these offsets: its leader has moved, or the log was cut and has grown again.
            log.warning("%s: the leader refuses to read: %s. The task tries again.", self._doing_at(), self._last_error)
            time.sleep(self._pause_s)
            self._pause_s = min(2 * self._pause_s, TASK_LONGEST_PAUSE_S)
            self._assign()

    def _leave_out_lost(self, bounds: LogBounds | None) -> bool:
        """Report the lost part of the rest of the range, and skip it; return whether anything is lost."""
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
            # The topic's other partitions are probably deleted, too: their tasks would wait for records.
            answered.difference_update([each for each in answered if each.topic == self._partition.topic])

    def _report(self, found: list[LostRange]) -> None:
        report(self._range, found, self._settings.fail_on_data_loss)
        self.is_cut |= any(loss.is_cut for loss in found)

    def _progress(self) -> None:
        self._pause_s = TASK_FIRST_PAUSE_S
        self._silences = 0
        self._progress_at = time.monotonic()
        self._ask_at = self._progress_at + TASK_SILENCE_S

    def _doing_at(self) -> str:
        return f"{self._doing}, at offset {self._next}"
