"""The native producer: C code (`native/_outlet.c`) passes Arrow buffers to librdkafka, with no Python object per row."""

from __future__ import annotations

import ctypes
import secrets
from collections import deque
from collections.abc import Callable, Mapping
from ctypes import c_char_p, c_int64, c_void_p
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException

from spark_groupsource.native.client import NativeClient, decoded
from spark_groupsource.native.libraries import load_libraries
from spark_groupsource.native.structs import PRODUCER, ColumnStruct, OutletStruct, RowsStruct
from spark_groupsource.patience import doubled
from spark_groupsource.sink.columns import HEADERS, KEY, PARTITION, TOPIC, VALUE
from spark_groupsource.sink.failures import NotDelivered, Undelivered
from spark_groupsource.sink.token import Token, Written
from spark_groupsource.timeouts import FLUSH_S, FULL_QUEUE_POLL_S

FULL_QUEUE_S = 1.0
"""The longest time that one call to fill the producer's queue may take, in seconds. Python handles signals only between calls."""

_MESSAGES_BYTES = 512 * 80
"""Room for `MOST_AT_ONCE` librdkafka messages."""

_DROP = 0x1 | 0x2
"""The `rd_kafka_purge` flags for rows that are queued and rows that are in flight."""


class NativeProducer(NativeClient):
    """A `Producer` that calls librdkafka directly. Its arguments and errors are those of `make_producer`."""

    def __init__(self, client: Mapping[str, str], topic: str | None) -> None:
        both = load_libraries()
        self._ours = both.ours
        self._messages = ctypes.create_string_buffer(_MESSAGES_BYTES)
        self._outlet = OutletStruct(library=both.producer_functions, messages=ctypes.addressof(self._messages))
        self._outlet.without_key = secrets.randbits(32)
        super().__init__(PRODUCER, client)
        self._outlet.handle = self._handle
        # Our own partitioner spreads rows without a key over the partitions, unless the user has chosen another one.
        self._spreads = (client.get("partitioner"), client.get("sticky.partitioning.linger.ms")) == ("murmur2_random", "0")
        self._topic = topic
        self._handles: dict[str, int] = {}
        self._kept: deque[tuple[c_int64, pa.RecordBatch]] = deque()
        """Record batches, each with the number of its rows that have not been reported yet."""
        self._kept_bytes = 0
        self._most_bytes = 2 * 1024 * int(client["queue.buffering.max.kbytes"])
        self._used: set[str] = set()
        self.last: Token | None = None

    def start_over(self) -> None:
        """See `Producer`."""
        self.note_errors()
        self.errors.clear()
        self._kept.clear()
        self._kept_bytes = 0
        self._used.clear()
        self._outlet.added = self._outlet.checksum = self._outlet.failed = 0

    def init_transactions(self, timeout_s: float) -> None:
        """See `Producer`."""
        self._check(self._kafka.init_transactions(self._handle, _ms(timeout_s)))

    def note_errors(self) -> None:
        """See `Producer`."""
        self._kafka.poll(self._handle, 0)

    def begin_transaction(self) -> None:
        """See `Producer`."""
        self._check(self._kafka.begin_transaction(self._handle))

    def count(self, rows: pa.RecordBatch) -> None:
        """See `Producer`."""
        self._with(rows, lambda given: self._ours.add(self._outlet, given))

    def write(self, rows: pa.RecordBatch) -> None:
        """See `Producer`."""
        while self._kept_bytes > self._most_bytes and len(self._kept) > 1:
            # Drop every batch whose rows have all been reported, not only the oldest: one slow partition may hold up the oldest.
            self._kafka.poll(self._handle, _ms(FULL_QUEUE_POLL_S))
            self._refuse_undelivered()
            self._kept = deque(kept for kept in self._kept if kept[0].value)
            self._kept_bytes = sum(kept.nbytes for _, kept in self._kept)
        # librdkafka does not copy the values. It would read freed memory if the batch were freed before its last row was
        # reported.
        unreported = c_int64(rows.num_rows)
        self._kept.append((unreported, rows))
        self._kept_bytes += rows.nbytes

        def produce(given: RowsStruct) -> None:
            given.unreported = ctypes.addressof(unreported)
            row = 0
            while row < given.count:
                row = self._ours.produce(self._outlet, given, row, _ms(FULL_QUEUE_S))
                self._refuse_undelivered()

        self._with(rows, produce)
        self._let_go()

    @property
    def written(self) -> Written:
        """See `Producer`."""
        return Written(self._outlet.added, self._outlet.checksum)

    @property
    def topics(self) -> frozenset[str]:
        """See `Producer`."""
        return frozenset(self._used)

    def refuse_undelivered(self) -> None:
        """See `Producer`."""
        self._kafka.poll(self._handle, 0)
        self._refuse_undelivered()

    def flush(self) -> None:
        """See `Producer`."""
        waits = doubled(*FLUSH_S)
        while self._kafka.flush(self._handle, _ms(next(waits))):
            self._refuse_undelivered()
        self._let_go()

    def send_offset(self, group: str, topic: str, offset: int, metadata: str, timeout_s: float) -> None:
        """See `Producer`."""
        # The size includes the final NUL, as in confluent-kafka: librdkafka copies this many bytes, and reads up to the NUL.
        text = ctypes.create_string_buffer(metadata.encode())
        partitions = self._kafka.topic_partition_list_new(1)
        member = self._kafka.consumer_group_metadata_new(group.encode())
        try:
            only = self._kafka.topic_partition_list_add(partitions, topic.encode(), 0).contents
            only.offset = offset
            only.metadata, only.metadata_size = ctypes.addressof(text), len(text)
            try:
                self._check(self._kafka.send_offsets_to_transaction(self._handle, partitions, member, _ms(timeout_s)))
            finally:
                # Otherwise, the list would free the string, which Python owns.
                only.metadata, only.metadata_size = None, 0
        finally:
            self._kafka.consumer_group_metadata_destroy(member)
            self._kafka.topic_partition_list_destroy(partitions)

    def commit_transaction(self, timeout_s: float) -> None:
        """See `Producer`."""
        self._check(self._kafka.commit_transaction(self._handle, _ms(timeout_s)))

    def abort_transaction(self, timeout_s: float) -> None:
        """See `Producer`."""
        self._check(self._kafka.abort_transaction(self._handle, _ms(timeout_s)))

    def close(self) -> None:
        """See `Producer`."""
        # First purge, and serve the reports. A row without a report still points to its record batch and counter, both of which
        # are freed together with this object.
        self._kafka.purge(self._handle, _DROP)
        self._kafka.poll(self._handle, 0)
        for handle in self._handles.values():
            self._kafka.topic_destroy(handle)
        self._kafka.destroy(self._handle)

    def _prepare(self, conf: int) -> None:
        self._kafka.conf_set_opaque(conf, ctypes.addressof(self._outlet))
        self._kafka.conf_set_dr_msg_cb(conf, ctypes.cast(self._ours.delivered, c_void_p))

    def _with(self, rows: pa.RecordBatch, call: Callable[[RowsStruct], None]) -> None:
        """Call a function with the rows' addresses, which are valid only during the call."""
        if not rows.num_rows:
            return
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        given = RowsStruct(count=rows.num_rows)
        if TOPIC in columns:
            encoded = pc.dictionary_encode(columns[TOPIC])
            names = encoded.dictionary.to_pylist()
            indices = encoded.indices
            given.topic = indices.buffers()[1].address + indices.offset * 4
        else:
            assert self._topic is not None  # noqa: S101 -- check_columns has refused rows without a topic
            names = [self._topic]
        handles = (c_void_p * len(names))(*map(self._topic_handle, names))
        texts = (c_char_p * len(names))(*(name.encode() for name in names))
        given.topics, given.topic_names = ctypes.addressof(handles), ctypes.addressof(texts)
        for name in (KEY, VALUE):
            if name in columns:
                setattr(given, name, _column(columns[name]))
        if PARTITION in columns:
            partitions = columns[PARTITION]
            given.partitions = partitions.buffers()[1].address + partitions.offset * 4
        if HEADERS in columns:
            headers = columns[HEADERS]
            given.headers = _column(headers)
            parts = headers.values.flatten()
            given.header_key, given.header_value = _column(parts[0]), _column(parts[1])
        call(given)

    def _topic_handle(self, name: str) -> int:
        self._used.add(name)
        if name not in self._handles:
            conf = self._topic_conf() if self._spreads else None
            handle = self._kafka.topic_new(self._handle, name.encode(), conf)
            if handle is None:
                if conf is not None:
                    self._kafka.topic_conf_destroy(conf)
                raise NotDelivered(Undelivered(KafkaError(KafkaError._UNKNOWN_TOPIC), name, -1, 0))
            self._handles[name] = handle
        return self._handles[name]

    def _topic_conf(self) -> int:
        """Return topic settings with our own partitioner."""
        conf: int = self._kafka.default_topic_conf_dup(self._handle)
        self._kafka.topic_conf_set_opaque(conf, ctypes.addressof(self._outlet))
        self._kafka.topic_conf_set_partitioner_cb(conf, ctypes.cast(self._ours.partition, c_void_p))
        return conf

    def _let_go(self) -> None:
        """Drop record batches, oldest first, up to the first one with rows that have not been delivered."""
        self._refuse_undelivered()
        while self._kept and not self._kept[0][0].value:
            self._kept_bytes -= self._kept.popleft()[1].nbytes

    def _refuse_undelivered(self) -> None:
        outlet = self._outlet
        if outlet.failed:
            error = KafkaError(outlet.error, decoded(self._kafka.err2str(outlet.error)))
            raise NotDelivered(Undelivered(error, decoded(outlet.error_topic), outlet.error_partition, outlet.error_size))

    def _check(self, failed: int | None) -> None:
        """Raise and free a librdkafka error, if there is one."""
        if failed is None:
            return
        kafka: Any = self._kafka
        error = KafkaError(
            kafka.error_code(failed),
            decoded(kafka.error_string(failed)),
            fatal=bool(kafka.error_is_fatal(failed)),
            retriable=bool(kafka.error_is_retriable(failed)),
            txn_requires_abort=bool(kafka.error_txn_requires_abort(failed)),
        )
        kafka.error_destroy(failed)
        raise KafkaException(error)


def _column(array: pa.Array) -> ColumnStruct:
    """Return the buffer addresses of a column of strings, bytes or lists."""
    valid, offsets, *data = array.buffers()
    wide = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type) or pa.types.is_large_list(array.type)
    is_list = pa.types.is_list(array.type) or pa.types.is_large_list(array.type)
    return ColumnStruct(
        valid=valid.address if valid is not None else None,
        offsets=offsets.address,
        data=None if is_list or data[0] is None else data[0].address,
        start=array.offset,
        wide=wide,
    )


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
