"""The reader on librdkafka's C API: records go into Arrow buffers in C (_native.c), with no Python object for any.

Its consumer is made with the same settings as that of the pure reader and does the same calls, but it cannot call a Python
function for its tokens (`oauth_cb`).
"""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from spark_groupsource.brokers.client import refused_settings
from spark_groupsource.fetch.arrow_schema import HEADERS_TYPE, arrow_schema
from spark_groupsource.fetch.contract import FetchRange
from spark_groupsource.fetch.intake import Event, Intake, Taken
from spark_groupsource.fetch.native_api import (
    CONF_OK,
    CONSUMER,
    ErrorCallback,
    IntakeStruct,
    LogCallback,
    MetadataStruct,
    PartitionListStruct,
    native,
)
from spark_groupsource.fetch.reading import read_range
from spark_groupsource.fetch.settings import BATCH_ROWS, FetchSettings
from spark_groupsource.kafka_settings.tables import OAUTH_CALLBACK
from spark_groupsource.partition import TopicPartition

logger = logging.getLogger("spark_groupsource.fetch.librdkafka")

_NO_ERROR = 0
# For librdkafka's error texts.
_TEXT_BYTES = 512
# `enum section` of _native.c.
_SECTIONS = 16
# By syslog's severities, which librdkafka uses.
_LEVELS = (
    logging.CRITICAL,
    logging.CRITICAL,
    logging.CRITICAL,
    logging.ERROR,
    logging.WARNING,
    logging.INFO,
    logging.INFO,
    logging.DEBUG,
)


def read(fetch_range: FetchRange, settings: FetchSettings) -> Iterator[pa.RecordBatch]:
    """Hold the contract of `spark_groupsource.fetch.contract.fetch`; raises NativeUnavailable where there is no native reader."""
    return read_range(fetch_range, settings, NativeConsumer)


def takes(client: Mapping[str, Any]) -> bool:
    """Return whether a native consumer can have these settings."""
    return OAUTH_CALLBACK not in client


class NativeConsumer:
    """A consumer of librdkafka, as a `FetchConsumer`. Raises OptionError when librdkafka refuses the settings."""

    def __init__(self, client: Mapping[str, str]) -> None:
        self._kafka = native().kafka
        self.pid = os.getpid()
        # The callback must not refer to `self`: a cycle would keep it from being freed.
        told: dict[int, KafkaError] = {}
        self.told = told

        def tell(_handle: int | None, code: int, reason: bytes | None, _opaque: int | None) -> None:
            told[code] = KafkaError(code, _text(reason))

        # For as long as the consumer: librdkafka does not hold it.
        self._tell = ErrorCallback(tell)
        self._handle = self._new(client)
        # Logs, errors and records in one queue, which is served by whoever asks for records.
        self._kafka.set_log_queue(self._handle, None)
        self._kafka.poll_set_consumer(self._handle)
        self._queue = self._kafka.queue_get_consumer(self._handle)

    def bounds(self, partition: TopicPartition, timeout_s: float) -> tuple[int, int]:
        """See `FetchConsumer`."""
        low, high = ctypes.c_int64(), ctypes.c_int64()
        topic = partition.topic.encode()
        self._raise_for(
            self._kafka.query_watermark_offsets(
                self._handle, topic, partition.partition, ctypes.byref(low), ctypes.byref(high), int(timeout_s * 1000)
            )
        )
        return low.value, high.value

    def partition_error(self, partition: TopicPartition, timeout_s: float) -> KafkaError | None:
        """See `FetchConsumer`."""
        handle = self._kafka.topic_new(self._handle, partition.topic.encode(), None)
        if handle is None:
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG))
        found = ctypes.POINTER(MetadataStruct)()
        try:
            self._raise_for(self._kafka.metadata(self._handle, 0, handle, ctypes.byref(found), int(timeout_s * 1000)))
            told = [(one.err, one.partition_cnt) for one in found.contents.topics[: found.contents.topic_cnt]]
        finally:
            if found:
                self._kafka.metadata_destroy(found)
            self._kafka.topic_destroy(handle)
        for code, partitions in told:
            if code != _NO_ERROR:
                return KafkaError(code)
            if partition.partition >= partitions:
                return KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return None

    def serve(self) -> None:
        """See `FetchConsumer`."""
        message = self._kafka.consumer_poll(self._handle, 0)
        if message is not None:
            self._kafka.message_destroy(message)

    def assign(self, partition: TopicPartition, offset: int) -> None:
        """See `FetchConsumer`."""
        self._with_list(self._kafka.assign, partition, offset)

    def unassign(self) -> None:
        """See `FetchConsumer`."""
        self._raise_for(self._kafka.assign(self._handle, None))

    def position(self, partition: TopicPartition) -> int:
        """See `FetchConsumer`."""
        return self._with_list(self._kafka.position, partition, -1)

    def intake(self, partition: TopicPartition, include_headers: bool, batch_bytes: int) -> Intake:
        """See `FetchConsumer`."""
        return _NativeIntake(self._queue, partition, include_headers, batch_bytes)

    def close(self) -> None:
        """See `FetchConsumer`."""
        self._kafka.queue_destroy(self._queue)
        self._kafka.consumer_close(self._handle)
        self._kafka.destroy(self._handle)

    def abandon(self) -> None:
        """See `FetchConsumer`: Python frees nothing of it by itself."""

    def _new(self, client: Mapping[str, str]) -> int:
        conf = self._kafka.conf_new()
        try:
            for name, value in client.items():
                self._set(conf, name, value, client)
            # No other thread than ours then comes into the log callback.
            self._set(conf, "log.queue", "true", client)
            self._kafka.conf_set_error_cb(conf, self._tell)
            self._kafka.conf_set_log_cb(conf, _log)
            text = ctypes.create_string_buffer(_TEXT_BYTES)
            handle: int | None = self._kafka.new(CONSUMER, conf, text, _TEXT_BYTES)
            if handle is None:
                raise refused_settings(_text(text.value), client)
        except BaseException:
            self._kafka.conf_destroy(conf)
            raise
        # From here on the settings are the consumer's.
        return handle

    def _set(self, conf: int, name: str, value: str, client: Mapping[str, str]) -> None:
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        if self._kafka.conf_set(conf, name.encode(), value.encode(), text, _TEXT_BYTES) != CONF_OK:
            raise refused_settings(_text(text.value), client)

    def _with_list(self, call: Any, partition: TopicPartition, offset: int) -> int:
        partitions: ctypes._Pointer[PartitionListStruct] = self._kafka.topic_partition_list_new(1)
        try:
            only = self._kafka.topic_partition_list_add(partitions, partition.topic.encode(), partition.partition)
            only.contents.offset = offset
            self._raise_for(call(self._handle, partitions))
            found: int = only.contents.offset
            return found
        finally:
            self._kafka.topic_partition_list_destroy(partitions)

    def _raise_for(self, code: int) -> None:
        if code != _NO_ERROR:
            raise KafkaException(KafkaError(code, _text(self._kafka.err2str(code))))


class _NativeIntake:
    """An `Intake` that holds librdkafka's messages until they are copied."""

    def __init__(self, queue: int, partition: TopicPartition, include_headers: bool, batch_bytes: int) -> None:
        both = native()
        self._ours = both.ours
        self._pid = os.getpid()
        self._partition = partition
        self._include_headers = include_headers
        self._messages = (ctypes.c_void_p * BATCH_ROWS)()
        self._state = IntakeStruct(
            library=both.functions,
            queue=queue,
            messages=ctypes.addressof(self._messages),
            row_limit=BATCH_ROWS,
            byte_limit=batch_bytes,
            with_headers=include_headers,
        )
        # The same in every batch, which has a slice of them.
        self._topics = pa.repeat(pa.scalar(partition.topic, pa.string()), 0)
        self._partitions = pa.repeat(pa.scalar(partition.partition, pa.int32()), 0)

    def take(self, next_offset: int, end: int, wait_s: float) -> Taken:
        """See `Intake`."""
        state = self._state
        self._ours.take(state, next_offset, end, int(wait_s * 1000))
        first = None if state.first < 0 else state.first
        event = None
        if state.event:
            event = Event(KafkaError(state.event_error, _text(state.event_text)), state.event_offset)
        return Taken(first, state.next, bool(state.full), event)

    def forget_fetched(self) -> None:
        """See `Intake`."""
        self._ours.forget_fetched(self._state)

    def batch(self) -> pa.RecordBatch | None:
        """See `Intake`."""
        rows = self._state.rows
        if not rows:
            return None
        columns = self._columns(rows)
        if len(self._topics) < rows:
            self._topics = pa.repeat(pa.scalar(self._partition.topic, pa.string()), rows)
            self._partitions = pa.repeat(pa.scalar(self._partition.partition, pa.int32()), rows)
        columns[2:2] = [self._topics.slice(0, rows), self._partitions.slice(0, rows)]
        return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(self._include_headers))

    def close(self) -> None:
        """See `Intake`. In a forked child nothing is freed: it would need locks that another thread may have held."""
        if self._pid == os.getpid():
            self._ours.close(self._state)

    def _columns(self, rows: int) -> list[pa.Array]:
        """Return all columns but those that are the same in every row."""
        state = self._state
        headers = state.headers
        null_keys, null_values = state.null_keys, state.null_values
        without_headers, null_header_values, odd_keys = state.without_headers, state.null_header_values, state.odd_header_keys
        begins, sizes = (ctypes.c_int64 * _SECTIONS)(), (ctypes.c_int64 * _SECTIONS)()
        block = pa.allocate_buffer(self._ours.layout(state, begins, sizes))
        self._ours.fill(state, block.address, begins, sizes)
        parts = [block.slice(begin, size) for begin, size in zip(begins, sizes, strict=True)]

        def bitmap(section: int) -> pa.Buffer | None:
            return parts[section] if sizes[section] else None

        columns = [
            pa.Array.from_buffers(pa.binary(), rows, [bitmap(0), *parts[1:3]], null_keys),
            pa.Array.from_buffers(pa.binary(), rows, [bitmap(3), *parts[4:6]], null_values),
            pa.Array.from_buffers(pa.int64(), rows, [None, parts[6]], 0),
            pa.Array.from_buffers(pa.timestamp("us", tz="UTC"), rows, [None, parts[7]], 0),
            pa.Array.from_buffers(pa.int32(), rows, [None, parts[8]], 0),
        ]
        if self._include_headers:
            keys = pa.Array.from_buffers(pa.binary() if odd_keys else pa.string(), headers, [None, *parts[11:13]], 0)
            if odd_keys:
                # As Java reads them, hence Spark.
                keys = pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())
            values = pa.Array.from_buffers(pa.binary(), headers, [bitmap(13), *parts[14:16]], null_header_values)
            each = pa.Array.from_buffers(HEADERS_TYPE.value_type, headers, [None], 0, children=[keys, values])
            columns.append(pa.Array.from_buffers(HEADERS_TYPE, rows, [bitmap(9), parts[10]], without_headers, children=[each]))
        return columns


def _text(reason: bytes | None) -> str:
    return (reason or b"").decode("utf-8", "replace")


def _to_logger(_handle: int | None, level: int, facility: bytes, line: bytes) -> None:
    logger.log(_LEVELS[level] if 0 <= level < len(_LEVELS) else logging.DEBUG, "%s: %s", _text(facility), _text(line))


_log = LogCallback(_to_logger)
