"""confluent-kafka's messages to an Arrow record batch."""

from __future__ import annotations

from collections.abc import Sequence
from operator import methodcaller
from typing import cast

import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from spark_groupsource.errors import SchemaError
from spark_groupsource.fetch.arrow_schema import LARGEST_TIMESTAMP_MS, as_type, column_names

_headers_of = methodcaller("headers")
"""Of a key that is not UTF-8 confluent-kafka 2.16 returns a broken list **and** sets an error. Python looks at both only where it
calls through a function in C, as here: elsewhere the process would die of the list."""

_TO_JAVA_TIMESTAMP_TYPE = -1
"""In librdkafka 0 is not available, 1 create time, 2 log append time. Spark shows Java's `TimestampType.id`, one less."""

_NO_TIMESTAMP_MS = -1
"""The time of a record without one, of Kafka's message format 0: as Java's `RecordBatch.NO_TIMESTAMP`. librdkafka returns 0."""


def size(message: Message) -> int:
    """Return how many bytes the key and the value have."""
    return len(message.key() or b"") + len(message.value() or b"")


def headers_size(message: Message) -> int:
    """Return how many bytes the headers have; of their keys, the characters are counted."""
    return sum(len(key) + len(value or b"") for key, value in _headers(message) or ())


def to_record_batch(topic: str, partition: int, messages: Sequence[Message], schema: pa.Schema) -> pa.RecordBatch:
    """Return one row for each message, with the columns of `schema`. All messages must be records of this topic and partition."""

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
    """Return the timestamps in µs. One that does not fit becomes the nearest that does."""
    try:
        return pa.array(times_ms, pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))
    except pa.ArrowInvalid:
        return _timestamps([max(-LARGEST_TIMESTAMP_MS, min(ms, LARGEST_TIMESTAMP_MS)) for ms in times_ms])


def _headers(message: Message) -> list[tuple[str, bytes | None]] | None:
    """Return the headers in their order, duplicated keys included. If there are none, return None as Spark does.

    Raises:
        SchemaError: A key is not UTF-8, which confluent-kafka cannot say. The native reader replaces what is not.
    """
    try:
        headers = _headers_of(message)
    except (SystemError, UnicodeDecodeError):
        raise SchemaError(
            f"{message.topic()}-{message.partition()}: the record at offset {message.offset()} has a header whose key is not "
            "UTF-8. The pure reader cannot read such headers, and the native reader can: install the package with its native "
            "library on the executors, or read without headers."
        ) from None
    # The type also allows a dict, which only a message to be produced may have.
    return cast("list[tuple[str, bytes | None]] | None", headers or None)
