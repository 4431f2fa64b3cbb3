"""The pure Python producer, which writes rows one by one with confluent-kafka, and its checksum of the rows.

The checksum equals the one in `native/_outlet.c`. It does not depend on row order. It detects accidental differences between
rows, and is not a defense against attackers.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka import TopicPartition as KafkaTopicPartition

from spark_groupsource.brokers.client import librdkafka_log_of_tasks, make_client
from spark_groupsource.errors import RecordRefused
from spark_groupsource.patience import doubled
from spark_groupsource.sink.columns import ANY_PARTITION, HEADERS, KEY, PARTITION, TOPIC, VALUE
from spark_groupsource.sink.failures import NotDelivered, Undelivered
from spark_groupsource.sink.token import Token, Written
from spark_groupsource.timeouts import FLUSH_S, FULL_QUEUE_POLL_S

_FACTOR = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1
_LANES = 4
_STRIDE = 8 * _LANES
"""The number of bytes that are mixed in one step: one word per lane."""

Header = tuple[str, "bytes | None"]


class _Row(NamedTuple):
    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[Header] | None


class PureProducer:
    """A `Producer` that uses confluent-kafka. Its arguments and errors are those of `make_producer`."""

    def __init__(self, client: Mapping[str, str], topic: str | None) -> None:
        errors: dict[int, KafkaError] = {}
        self.errors = errors
        undelivered: list[Undelivered] = []
        self._undelivered = undelivered

        def note(error: KafkaError) -> None:
            errors[error.code()] = error

        def reported(error: KafkaError | None, message: Message, in_headers: int = 0) -> None:
            if error is not None and not undelivered:
                size = len(message.key() or b"") + len(message.value() or b"") + in_headers
                partition = message.partition()
                undelivered.append(
                    Undelivered(error, message.topic() or "", ANY_PARTITION if partition is None else partition, size)
                )

        self._reported = reported
        # confluent-kafka itself reads the first of these settings, and expects a bool.
        settings = {**client, "delivery.report.only.error": True, "on_delivery": reported}
        self._producer = make_client(KafkaProducer, settings, note, librdkafka_log_of_tasks)
        self._topic = topic
        self._used: set[str] = set()
        self._written = Written(0, 0)
        self.last: Token | None = None

    def start_over(self) -> None:
        """See `Producer`."""
        self.note_errors()
        self.errors.clear()
        self._undelivered.clear()
        self._used.clear()
        self._written = Written(0, 0)

    def connect(self, timeout_s: float) -> bool:
        """See `Producer`."""
        try:
            self._producer.list_topics(self._topic, timeout=timeout_s)
        except KafkaException:
            return False
        return True

    def note_errors(self) -> None:
        """See `Producer`."""
        self._producer.poll(0)

    def init_transactions(self, timeout_s: float) -> None:
        """See `Producer`."""
        self._producer.init_transactions(timeout_s)

    def begin_transaction(self) -> None:
        """See `Producer`."""
        self._producer.begin_transaction()

    def count(self, rows: pa.RecordBatch) -> None:
        """See `Producer`."""
        for row in self._rows(rows):
            self._add(row)

    def write(self, rows: pa.RecordBatch) -> None:
        """See `Producer`."""
        for row in self._rows(rows):
            self._add(row)
            while not self._enqueued(row):
                self._producer.poll(FULL_QUEUE_POLL_S)
                self._refuse_undelivered()
        self._producer.poll(0)
        self._refuse_undelivered()

    @property
    def written(self) -> Written:
        """See `Producer`."""
        return self._written

    @property
    def topics(self) -> frozenset[str]:
        """See `Producer`."""
        return frozenset(self._used)

    def refuse_undelivered(self) -> None:
        """See `Producer`."""
        self._producer.poll(0)
        self._refuse_undelivered()

    def flush(self) -> None:
        """See `Producer`."""
        waits = doubled(*FLUSH_S)
        while self._producer.flush(next(waits)):
            self._refuse_undelivered()
        self._refuse_undelivered()

    def send_offset(self, group: str, topic: str, offset: int, metadata: str, timeout_s: float) -> None:
        """See `Producer`."""
        # Only a consumer can create group metadata. This one never connects.
        consumer = Consumer({"group.id": group, "bootstrap.servers": "", "log_level": "0"})
        try:
            member = consumer.consumer_group_metadata()
            offsets = [KafkaTopicPartition(topic, 0, offset, metadata=metadata)]
            self._producer.send_offsets_to_transaction(offsets, member, timeout_s)
        finally:
            consumer.close()

    def commit_transaction(self, timeout_s: float) -> None:
        """See `Producer`."""
        self._producer.commit_transaction(timeout_s)

    def abort_transaction(self, timeout_s: float) -> None:
        """See `Producer`."""
        self._producer.abort_transaction(timeout_s)

    def close(self) -> None:
        """See `Producer`."""
        with contextlib.suppress(KafkaException):  # after a fatal error, it refuses to purge, and has no rows left
            self._producer.purge()
            self._producer.poll(0)
        del self._producer

    def abandon(self) -> None:
        """See `Producer`."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._producer))

    def _rows(self, rows: pa.RecordBatch) -> Iterator[_Row]:
        columns = {name: rows.column(at).to_pylist() for at, name in enumerate(rows.schema.names)}
        none = [None] * rows.num_rows
        for topic, partition, key, value, headers in zip(
            columns.get(TOPIC) or [self._topic] * rows.num_rows,
            columns.get(PARTITION) or [ANY_PARTITION] * rows.num_rows,
            columns.get(KEY, none),
            columns[VALUE],
            columns.get(HEADERS, none),
            strict=True,
        ):
            pairs = None if headers is None else [(header["key"], header["value"]) for header in map(_lower, headers)]
            yield _Row(topic, partition, _bytes(key), _bytes(value), pairs)

    def _add(self, row: _Row) -> None:
        self._used.add(row.topic)
        checksum = added(self._written.checksum, row_hash(row.topic, row.partition, row.key, row.value, row.headers))
        self._written = Written(self._written.rows + 1, checksum)

    def _enqueued(self, row: _Row) -> bool:
        more: Any = {}
        if row.headers is not None:
            if any("\0" in name for name, _ in row.headers):
                # confluent-kafka would silently truncate the key at the NUL.
                raise RecordRefused(
                    "A row has a header whose key contains a NUL, which only the native producer can write. Install the "
                    "package with its native library on the executors, or remove such headers."
                )
            # The message in a delivery report has no headers, so pass their size along.
            more = {"headers": row.headers, "on_delivery": partial(self._reported, in_headers=_in_headers(row.headers))}
        try:
            self._producer.produce(row.topic, row.value, row.key, row.partition, **more)
        except BufferError:
            return False
        except KafkaException as refused:
            size = len(row.key or b"") + len(row.value or b"") + _in_headers(row.headers or ())
            raise NotDelivered(Undelivered(refused.args[0], row.topic, row.partition, size)) from None
        return True

    def _refuse_undelivered(self) -> None:
        if self._undelivered:
            raise NotDelivered(self._undelivered[0])


def _bytes(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content


def _in_headers(headers: Iterable[Header]) -> int:
    """Return the headers' total size in bytes."""
    return sum(len(name.encode()) + len(content or b"") for name, content in headers)


def _lower(header: Mapping[str, Any]) -> dict[str, Any]:
    return {name.lower(): content for name, content in header.items()}


def row_hash(topic: str, partition: int, key: bytes | None, value: bytes | None, headers: Sequence[Header] | None = None) -> int:
    """Return one row's 64-bit hash. A checksum is the sum of its rows' hashes, modulo 2^64."""
    found = _with_bytes(_FACTOR, topic.encode())
    found = _mixed(found, partition & _MASK)
    found = _with_bytes(_with_bytes(found, key), value)
    for name, content in headers or ():
        found = _with_bytes(_with_bytes(found, name.encode()), content)
    # Mix twice. After one mix, the top bit of the last word changes many hashes by the same amount, so if two rows swapped this
    # bit, the sum would stay the same.
    return _mixed(_mixed(found, 0), 0)


def added(checksum: int, one: int) -> int:
    """Return the checksum after adding one more row's hash."""
    return (checksum + one) & _MASK


def _with_bytes(found: int, content: bytes | None) -> int:
    if content is None:
        return _mixed(found, _MASK)
    found = _mixed(found, len(content))
    whole = len(content) - len(content) % _STRIDE
    if whole:
        lanes = [(found + lane) & _MASK for lane in range(_LANES)]
        for at in range(0, whole, 8):
            lane = at // 8 % _LANES
            lanes[lane] = _mixed(lanes[lane], int.from_bytes(content[at : at + 8], "little"))
        for each in lanes:
            found = _mixed(found, each)
    for at in range(whole, len(content), 8):
        found = _mixed(found, int.from_bytes(content[at : at + 8], "little"))
    return found


def _mixed(found: int, word: int) -> int:
    found = ((found ^ word) * _FACTOR) & _MASK
    return found ^ (found >> 32)
