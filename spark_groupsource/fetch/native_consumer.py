"""The native reader, which calls librdkafka's C API. native/_intake.c turns records into Arrow without Python objects.

Its consumer has the same settings as the pure reader's consumer, and makes the same calls. Arrow's C data interface imports the
record batches.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from spark_groupsource.fetch.arrow_schema import column_names
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
from spark_groupsource.native.client import NativeClient, decoded
from spark_groupsource.native.libraries import load_libraries
from spark_groupsource.native.structs import (
    CONSUMER,
    NO_ERROR,
    ArrayStruct,
    IntakeStruct,
    MetadataStruct,
    PartitionListStruct,
    ThrottleCallback,
)
from spark_groupsource.partition import TopicPartition

log = logging.getLogger(__name__)

_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestamptype", "headers")
"""The columns in `enum column` in native/_intake.c, in the same order."""


def read(fetch_range: FetchRange, settings: FetchSettings) -> Records:
    """Read a range with the native reader, as described in `spark_groupsource.fetch.choice.fetch`.

    Raises:
        NativeUnavailable: This process cannot use the native reader.
    """
    return read_range(fetch_range, settings, NativeConsumer)


class NativeConsumer(NativeClient):
    """A `FetchConsumer` that calls librdkafka's consumer directly.

    Raises:
        OptionError: librdkafka refuses the settings.
        AuthenticationFailed: `kafka.oauth_cb` returns no token.
    """

    def __init__(self, client: Mapping[str, str]) -> None:
        throttling = Throttling()
        self.throttling = throttling

        def note(_handle: int | None, _broker: bytes | None, _id: int, throttle_ms: int, _opaque: int | None) -> None:
            throttling.note(throttle_ms / 1000)

        self._note_throttling = ThrottleCallback(note)
        super().__init__(CONSUMER, client)
        self.answered: set[TopicPartition] = set()
        self._assigned = False
        self._connected = False
        # After this call, requests for records also serve the callbacks.
        self._kafka.poll_set_consumer(self._handle)
        self._queue = self._kafka.queue_get_consumer(self._handle)

    def bounds(self, partition: TopicPartition, timeout_s: float) -> tuple[int, int]:
        """See `FetchConsumer`."""
        low, high = ctypes.c_int64(), ctypes.c_int64()
        topic = partition.topic.encode()
        if not self._connected:
            # Leave half of the time for the request, because its error shows what is wrong.
            timeout_s /= 2
            self.connect(timeout_s)
            self._connected = True
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
            topics = [(topic.err, topic.partition_cnt) for topic in found.contents.topics[: found.contents.topic_cnt]]
        finally:
            if found:
                self._kafka.metadata_destroy(found)
            self._kafka.topic_destroy(handle)
        for code, partitions in topics:
            if code != NO_ERROR:
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
        self._assigned = True
        self._with_list(self._kafka.assign, partition, offset)

    def unassign(self) -> None:
        """See `FetchConsumer`."""
        if self._assigned:
            self._raise_for(self._kafka.assign(self._handle, None))
            self._assigned = False

    def position(self, partition: TopicPartition) -> int:
        """See `FetchConsumer`."""
        return self._with_list(self._kafka.position, partition, -1)

    def intake(self, fetch_range: FetchRange, schema: pa.Schema, batch_bytes: int) -> Intake:
        """See `FetchConsumer`."""
        return NativeIntake(self._queue, fetch_range, schema, batch_bytes, BATCH_ROWS)

    def close(self) -> None:
        """See `FetchConsumer`."""
        self._kafka.queue_destroy(self._queue)
        self._kafka.consumer_close(self._handle)
        self._kafka.destroy(self._handle)

    def _prepare(self, conf: int) -> None:
        """See `NativeClient`."""
        self._kafka.conf_set_throttle_cb(conf, self._note_throttling)

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


class NativeIntake:
    """An `Intake` that keeps librdkafka's messages until they are copied into a batch.

    Args:
        queue: The queue of messages, all from the range's partition.
        fetch_range: The range.
        schema: See `FetchConsumer.intake`.
        batch_bytes: See `FetchConsumer.intake`.
        rows: The maximum number of rows in a batch.
    """

    def __init__(self, queue: int, fetch_range: FetchRange, schema: pa.Schema, batch_bytes: int, rows: int) -> None:
        libraries = load_libraries()
        self._ours = libraries.ours
        self._pid = os.getpid()
        self._schema = schema
        self._names = column_names(schema)
        if "headers" in self._names and not libraries.key_sizes:
            _warn_of_cut_keys()
        order = [_COLUMNS.index(name) for name in self._names]
        topic = fetch_range.topic.encode()
        self._messages = (ctypes.c_void_p * rows)()
        self._state = IntakeStruct(
            library=libraries.functions,
            queue=queue,
            messages=ctypes.addressof(self._messages),
            row_limit=rows,
            byte_limit=batch_bytes,
            newest_epoch=-1 if fetch_range.epoch is None else fetch_range.epoch,
            columns=sum(1 << column for column in order),
            column_count=len(order),
            key_sizes=libraries.key_sizes,
            topic=topic,
            topic_size=len(topic),
            partition=fetch_range.partition,
        )
        self._state.order[: len(order)] = order

    def take(self, next_offset: int, end: int, wait_s: float) -> Taken:
        """See `Intake`."""
        state = self._state
        self._ours.take(state, next_offset, end, int(wait_s * 1000))
        first = None if state.first < 0 else state.first
        event = None
        if state.event:
            event = PartitionEvent(KafkaError(state.event_error, decoded(state.event_text)), state.event_offset)
        return Taken(first, state.next, bool(state.full), event)

    def forget_fetched(self) -> None:
        """See `Intake`."""
        self._ours.forget_fetched(self._state)

    def batch(self) -> pa.RecordBatch | None:
        """See `Intake`. String columns are not checked for valid UTF-8 (see `as_type`).

        Raises:
            MemoryError: There is not enough memory for the batch.
        """
        if not self._state.rows:
            return None
        # Read this first, because the C code sets it to 0.
        odd_header_keys = self._state.odd_header_keys
        array = ArrayStruct()
        if not self._ours.batch(self._state, array):
            raise MemoryError(f"not enough memory for a batch of {self._state.bytes} bytes of records")
        if odd_header_keys:
            return self._with_text_keys(ctypes.addressof(array))
        return pa.RecordBatch._import_from_c(ctypes.addressof(array), self._schema)

    def close(self) -> None:
        """See `Intake`. A forked child frees nothing, because another thread in the parent may have held the necessary locks."""
        if self._pid == os.getpid():
            self._ours.close(self._state)

    def _with_text_keys(self, array: int) -> pa.RecordBatch:
        """Return the batch with invalid UTF-8 in header keys replaced, as in Java and therefore in Spark."""
        at = self._names.index("headers")
        field = self._schema.field(at)
        _, value = field.type.value_type
        with_binary_keys = field.with_type(pa.list_(pa.struct([pa.field("key", pa.binary()), value])))
        batch = pa.RecordBatch._import_from_c(array, self._schema.set(at, with_binary_keys))
        lists = batch.column(at)
        keys = pa.array([key.decode("utf-8", "replace") for key in lists.values.field(0).to_pylist()], pa.string())
        headers = pa.Array.from_buffers(field.type.value_type, len(keys), [None], 0, children=[keys, lists.values.field(1)])
        texts = pa.Array.from_buffers(field.type, len(lists), lists.buffers()[:2], lists.null_count, children=[headers])
        return batch.set_column(at, field, texts)


@functools.cache
def _warn_of_cut_keys() -> None:
    """Warn, once per process, that header keys are truncated at their first NUL."""
    log.warning(
        "Header keys are truncated at their first NUL, because this package cannot determine a key's length in this version of "
        "librdkafka. Keys without a NUL are complete. To read the others, install a later version of spark-groupsource."
    )
