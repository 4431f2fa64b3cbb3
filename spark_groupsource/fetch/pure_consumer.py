"""The pure reader, which uses confluent-kafka's consumer, and works wherever confluent-kafka does."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Mapping, Sequence
from operator import methodcaller
from typing import cast

import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ConfluentPartition

from spark_groupsource.brokers.client import librdkafka_log_of_tasks, make_client
from spark_groupsource.errors import SchemaError
from spark_groupsource.fetch.arrow_schema import LARGEST_TIMESTAMP_MS, as_type, column_names
from spark_groupsource.fetch.contract import (
    BATCH_ROWS,
    FetchRange,
    FetchSettings,
    Intake,
    PartitionEvent,
    Records,
    Taken,
    Throttling,
)
from spark_groupsource.fetch.reading import read_range
from spark_groupsource.partition import TopicPartition

_headers_of = methodcaller("headers")
"""Returns a message's headers. For a key that is not UTF-8, confluent-kafka 2.16 returns a broken list **and** sets an error.
Python checks for this only when the call goes through a C function, as here. Otherwise, the broken list would crash the
process."""

_TO_JAVA_TIMESTAMP_TYPE = -1
"""Converts librdkafka's timestamp type (0 not available, 1 create time, 2 log append time) to Java's, which Spark shows."""

_NO_TIMESTAMP_MS = -1
"""The timestamp for a record that has none (message format 0), as in Java's `RecordBatch.NO_TIMESTAMP`. librdkafka returns 0."""


def read(fetch_range: FetchRange, settings: FetchSettings) -> Records:
    """Read a range with the pure reader, as described in `spark_groupsource.fetch.choice.fetch`."""
    return read_range(fetch_range, settings, PureConsumer)


class PureConsumer:
    """A `FetchConsumer` that wraps confluent-kafka's consumer.

    Raises:
        OptionError: librdkafka refuses the settings.
        AuthenticationFailed: `kafka.oauth_cb` returns no token.
    """

    def __init__(self, client: Mapping[str, str]) -> None:
        # The callbacks must not refer to `self`: a cycle would keep the consumer's threads and sockets open.
        errors: dict[int, KafkaError] = {}
        self.errors = errors
        throttling = Throttling()
        self.throttling = throttling
        self.answered: set[TopicPartition] = set()
        self._assigned = False
        self.consumer = make_client(
            Consumer,
            client,
            lambda error: errors.__setitem__(error.code(), error),
            librdkafka_log_of_tasks,
            on_throttle=lambda event: throttling.note(event.throttle_time),
        )

    def bounds(self, partition: TopicPartition, timeout_s: float) -> tuple[int, int]:
        """See `FetchConsumer`."""
        found = self.consumer.get_watermark_offsets(ConfluentPartition(*partition), timeout=timeout_s, cached=False)
        if found is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return found

    def partition_error(self, partition: TopicPartition, timeout_s: float) -> KafkaError | None:
        """See `FetchConsumer`."""
        topic = self.consumer.list_topics(partition.topic, timeout_s).topics[partition.topic]
        if topic.error is None and partition.partition not in topic.partitions:
            return KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        error: KafkaError | None = topic.error
        return error

    def serve(self) -> None:
        """See `FetchConsumer`."""
        self.consumer.poll(0)

    def assign(self, partition: TopicPartition, offset: int) -> None:
        """See `FetchConsumer`."""
        self._assigned = True
        self.consumer.assign([ConfluentPartition(partition.topic, partition.partition, offset)])

    def unassign(self) -> None:
        """See `FetchConsumer`."""
        if self._assigned:
            self.consumer.unassign()
            self._assigned = False

    def position(self, partition: TopicPartition) -> int:
        """See `FetchConsumer`."""
        return self.consumer.position([ConfluentPartition(*partition)])[0].offset

    def intake(self, fetch_range: FetchRange, schema: pa.Schema, batch_bytes: int) -> Intake:
        """See `FetchConsumer`."""
        return _PureIntake(self.consumer, fetch_range, schema, batch_bytes)

    def close(self) -> None:
        """See `FetchConsumer`."""
        self.consumer.close()

    def abandon(self) -> None:
        """See `FetchConsumer`. A reference that is never released keeps Python from freeing the consumer, even at exit."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.consumer))


class _PureIntake:
    """An `Intake` for confluent-kafka's `Message` objects."""

    def __init__(self, consumer: Consumer, fetch_range: FetchRange, schema: pa.Schema, batch_bytes: int) -> None:
        self._consumer = consumer
        self._partition = TopicPartition(fetch_range.topic, fetch_range.partition)
        self._newest_epoch = fetch_range.epoch
        self._schema = schema
        self._with_headers = "headers" in column_names(schema)
        self._batch_bytes = batch_bytes
        self._fetched: deque[Message] = deque()
        self._rows: list[Message] = []
        self._bytes = 0

    def take(self, next_offset: int, end: int, wait_s: float) -> Taken:
        """See `Intake`."""
        if not self._fetched:
            self._fetch(min(BATCH_ROWS - len(self._rows), end - next_offset), wait_s)
        first = None
        # Ignore everything after the last record of the range, even an error.
        while self._fetched and next_offset < end:
            message = self._fetched[0]
            # Every message has an offset, except for an error that affects the whole partition.
            offset = -1 if (found := message.offset()) is None else found
            error = message.error()
            if error is not None:
                self._fetched.popleft()
                return Taken(first, next_offset, event=PartitionEvent(error, offset))
            if offset < next_offset:
                self._fetched.popleft()
                continue
            if offset < end and self._is_of_another_log(message):
                self._fetched.popleft()
                return Taken(first, next_offset, event=PartitionEvent(KafkaError(KafkaError._LOG_TRUNCATION), offset))
            if first is None:
                first = offset
            if offset >= end:
                self._fetched.clear()
                return Taken(first, end)
            more = size(message) + (headers_size(message) if self._with_headers else 0)
            if self._rows and self._bytes + more > self._batch_bytes:
                return Taken(first, next_offset, full=True)
            self._rows.append(self._fetched.popleft())
            self._bytes += more
            next_offset = offset + 1
            if len(self._rows) == BATCH_ROWS:
                return Taken(first, next_offset, full=True)
        return Taken(first, next_offset)

    def _fetch(self, most: int, wait_s: float) -> None:
        fetched = self._consumer.consume(most, 0)
        if not fetched and wait_s > 0:
            # Ask for only one record, because `consume` waits until it has as many records as it was asked for.
            fetched = self._consumer.consume(1, wait_s)
        self._fetched.extend(fetched)

    def forget_fetched(self) -> None:
        """See `Intake`."""
        self._fetched.clear()

    def batch(self) -> pa.RecordBatch | None:
        """See `Intake`."""
        if not self._rows:
            return None
        batch = to_record_batch(*self._partition, self._rows, self._schema)
        self._rows = []
        self._bytes = 0
        return batch

    def close(self) -> None:
        """See `Intake`."""
        self._fetched.clear()
        self._rows.clear()

    def _is_of_another_log(self, message: Message) -> bool:
        """Return whether the record has a later leader epoch than the log had when the range was planned."""
        epoch = None if self._newest_epoch is None else message.leader_epoch()
        return epoch is not None and self._newest_epoch is not None and epoch > self._newest_epoch


def size(message: Message) -> int:
    """Return the number of bytes in the key and the value."""
    return len(message.key() or b"") + len(message.value() or b"")


def headers_size(message: Message) -> int:
    """Return the number of bytes in the headers, counting each character of a key as one byte."""
    return sum(len(key) + len(value or b"") for key, value in _headers(message) or ())


def to_record_batch(topic: str, partition: int, messages: Sequence[Message], schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with one row per message and the columns of `schema`. All messages must be from this partition."""

    def column(name: str, kind: pa.DataType) -> pa.Array:
        match name:
            case "key":
                return as_type(pa.array([message.key() for message in messages], pa.binary()), kind)
            case "value":
                return as_type(pa.array([message.value() for message in messages], pa.binary()), kind)
            case "topic":
                return pa.repeat(pa.scalar(topic, kind), len(messages))
            case "partition":
                return pa.repeat(pa.scalar(partition, kind), len(messages))
            case "offset":
                return pa.array([message.offset() for message in messages], kind)
            case "timestamp":
                return _timestamps([_time_ms(*message.timestamp()) for message in messages])
            case "timestamptype":
                return pa.array([message.timestamp()[0] + _TO_JAVA_TIMESTAMP_TYPE for message in messages], kind)
            case _:
                return pa.array([_headers(message) for message in messages], kind)

    columns = [column(name, field.type) for name, field in zip(column_names(schema), schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _time_ms(kind: int, time_ms: int) -> int:
    return _NO_TIMESTAMP_MS if kind == TIMESTAMP_NOT_AVAILABLE else time_ms


def _timestamps(times_ms: list[int]) -> pa.Array:
    """Convert timestamps to µs. A timestamp that does not fit becomes the nearest one that does."""
    try:
        return pa.array(times_ms, pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))
    except pa.ArrowInvalid:
        return _timestamps([max(-LARGEST_TIMESTAMP_MS, min(ms, LARGEST_TIMESTAMP_MS)) for ms in times_ms])


def _headers(message: Message) -> list[tuple[str, bytes | None]] | None:
    """Return the headers in order, including duplicate keys, or, as Spark does, None if there are none.

    Raises:
        SchemaError: A key is not UTF-8, which confluent-kafka cannot return. The native reader replaces such bytes.
    """
    try:
        headers = _headers_of(message)
    except (SystemError, UnicodeDecodeError):
        raise SchemaError(
            f"{message.topic()}-{message.partition()}: the record at offset {message.offset()} has a header whose key is not "
            "valid UTF-8. The query fails, because the pure Python reader cannot read such headers. The native reader can: "
            "install the package with its native library on the executors, or read without headers."
        ) from None
    # The declared type also allows a dict, but only messages that have not been produced yet have one.
    return cast("list[tuple[str, bytes | None]] | None", headers or None)
