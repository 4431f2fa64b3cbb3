"""A librdkafka that is played, for the native reader's C: any sequence of messages, and the rows that should come of them.

Every message has memory of its own that is freed as soon as librdkafka would, so that a sanitizer sees each byte read beyond it.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from spark_groupsource.fetch import native_consumer
from spark_groupsource.fetch.arrow_schema import arrow_schema, as_type
from spark_groupsource.fetch.contract import FetchRange
from spark_groupsource.fetch.native_consumer import NativeIntake
from spark_groupsource.native.libraries import Libraries, load_libraries
from spark_groupsource.native.structs import FunctionsStruct

NOT_FOUND = -156
HEAD_SIZE = struct.calcsize("@NP")
BAD_HEADERS = KafkaError._BAD_MSG
Headers = list[tuple[bytes, "bytes | None"]]


@dataclass(frozen=True)
class Record:
    """A message, or an event if it has an error."""

    offset: int
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = field(default_factory=list)
    time_ms: int = 0
    time_type: int = 1
    error: int = 0
    bad_headers: bool = False
    epoch: int = -1


class MessageStruct(ctypes.Structure):
    _fields_ = [
        ("err", ctypes.c_int32),
        ("topic", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("value", ctypes.c_void_p),
        ("value_size", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_size", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    ]


class Played:
    """Gives `records` by `consume_batch_queue`, at most as many at a time as `portions` says, and knows what is not freed."""

    def __init__(self, records: list[Record], portions: Iterator[int]) -> None:
        self.waiting = list(records)
        self.portions = portions
        self.waits: list[tuple[int, int]] = []
        self.living: dict[int, tuple[Record, list[Any]]] = {}
        self.asked: set[str] = set()
        self._bytes_of_headers: dict[int, list[tuple[Any, Any, int]]] = {}
        c_void_p, c_int, c_size_t, pointer = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.POINTER
        callbacks: dict[str, tuple[Callable[..., Any], Any, tuple[Any, ...]]] = {
            "consume_batch_queue": (self._consume, ctypes.c_ssize_t, (c_void_p, c_int, pointer(c_void_p), c_size_t)),
            "message_destroy": (self._destroy, None, (c_void_p,)),
            "message_errstr": (self._errstr, c_void_p, (c_void_p,)),
            "message_timestamp": (self._timestamp, ctypes.c_int64, (c_void_p, pointer(ctypes.c_int32))),
            "message_leader_epoch": (lambda message: self.living[message][0].epoch, ctypes.c_int32, (c_void_p,)),
            "message_headers": (self._headers, c_int, (c_void_p, pointer(c_void_p))),
            "header_cnt": (self._header_cnt, c_size_t, (c_void_p,)),
            "header_get_all": (
                self._header,
                c_int,
                (c_void_p, c_size_t, pointer(c_void_p), pointer(c_void_p), pointer(c_size_t)),
            ),
        }
        self._kept = {name: ctypes.CFUNCTYPE(kind, *arguments)(call) for name, (call, kind, arguments) in callbacks.items()}
        self.functions = FunctionsStruct(**{name: ctypes.cast(call, c_void_p) for name, call in self._kept.items()})
        self._text = ctypes.create_string_buffer(b"an error")

    def _consume(self, _queue: int, timeout_ms: int, into: Any, most: int) -> int:
        self.waits.append((timeout_ms, most))
        now = self.waiting[: min(most, next(self.portions))]
        del self.waiting[: len(now)]
        for index, record in enumerate(now):
            into[index] = self._message(record)
        return len(now)

    def _message(self, record: Record) -> int:
        # Of just the size, so that one byte more is beyond them; an empty one has an address all the same.
        parts = [
            None if part is None else ctypes.create_string_buffer(part, max(1, len(part))) for part in (record.key, record.value)
        ]
        key, value = (None if part is None else ctypes.addressof(part) for part in parts)
        message = MessageStruct(
            err=record.error,
            value=value,
            value_size=len(record.value or b""),
            key=key,
            key_size=len(record.key or b""),
            offset=record.offset,
        )
        address = ctypes.addressof(message)
        self.living[address] = (record, [message, *parts])
        self._bytes_of_headers[address] = [
            (
                # As librdkafka has it: two numbers before it, of which the first one is its size.
                ctypes.create_string_buffer(struct.pack("@NP", len(name), 0) + name, HEAD_SIZE + len(name) + 1),
                None if value is None else ctypes.create_string_buffer(value, max(1, len(value))),
                len(value or b""),
            )
            for name, value in record.headers
        ]
        return address

    def _destroy(self, message: int) -> None:
        del self.living[message]
        del self._bytes_of_headers[message]

    def _errstr(self, message: int) -> int:
        assert self.living[message][0].error
        return ctypes.addressof(self._text)

    def _timestamp(self, message: int, kind: Any) -> int:
        self.asked.add("timestamp")
        record, _ = self.living[message]
        kind[0] = record.time_type
        return record.time_ms

    def _headers(self, message: int, headers: Any) -> int:
        self.asked.add("headers")
        record, _ = self.living[message]
        if record.bad_headers:
            return BAD_HEADERS
        if not record.headers:
            return NOT_FOUND
        headers[0] = message
        return 0

    def _header_cnt(self, headers: int) -> int:
        return len(self._bytes_of_headers[headers])

    def _header(self, headers: int, index: int, name: Any, value: Any, size: Any) -> int:
        name_buffer, value_buffer, value_size = self._bytes_of_headers[headers][index]
        name[0] = ctypes.addressof(name_buffer) + HEAD_SIZE
        value[0] = None if value_buffer is None else ctypes.addressof(value_buffer)
        size[0] = value_size
        return 0


BATCH_BYTES = 100
BATCH_ROWS = 7
ALL = arrow_schema(include_headers=True)


def intake_of(played: Played, schema: pa.Schema = ALL, *, key_sizes: bool = True, epoch: int | None = None) -> NativeIntake:
    real = load_libraries()
    both = Libraries(real.kafka, real.ours, played.functions, real.producer_functions, key_sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native_consumer, "load_libraries", lambda: both)
        return NativeIntake(1, FetchRange("t", 3, 0, 1, epoch), schema, BATCH_BYTES, BATCH_ROWS)


def row_of(record: Record, schema: pa.Schema) -> dict[str, Any]:
    time_ms = record.time_ms if record.time_type else -1
    headers = [{"key": name.decode("utf-8", "replace"), "value": value} for name, value in record.headers]
    row: dict[str, Any] = {
        "key": record.key,
        "value": record.value,
        "topic": "t",
        "partition": 3,
        "offset": record.offset,
        "timestamp": datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=time_ms),
        "timestampType": record.time_type - 1,
        "headers": headers or None,
    }
    return {name: row[name] for name in schema.names}


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows, with texts as bytes: they need not be UTF-8."""
    columns = [as_type(column, pa.binary()) if column.type == pa.string() else column for column in batch.columns]
    compared = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
    compared.validate(full=True)
    rows: list[dict[str, Any]] = compared.to_pylist()
    return [{**row, "topic": row["topic"].decode()} if "topic" in row else row for row in rows]
