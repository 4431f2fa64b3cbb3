"""Turns confluent-kafka's messages into Arrow record batches."""

from __future__ import annotations

from collections.abc import Sequence
from operator import methodcaller
from typing import cast

import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from spark_groupsource.errors import SchemaError
from spark_groupsource.fetch.arrow_schema import LARGEST_TIMESTAMP_MS, as_type, column_names

_headers_of = methodcaller("headers")
"""Returns a message's headers. For a key that is not UTF-8, confluent-kafka 2.16 returns a broken list **and** sets an error.
Python checks for this only when the call goes through a C function, as here. Otherwise, the broken list would crash the
process."""

_TO_JAVA_TIMESTAMP_TYPE = -1
"""Converts librdkafka's timestamp type (0 not available, 1 create time, 2 log append time) to Java's, which Spark shows."""

_NO_TIMESTAMP_MS = -1
"""The timestamp for a record that has none (message format 0), as in Java's `RecordBatch.NO_TIMESTAMP`. librdkafka returns 0."""


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
