"""Messages of confluent-kafka to an Arrow record batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pyarrow as pa
from confluent_kafka import Message

from spark_groupsource.fetch.arrow_schema import HEADERS_TYPE, LARGEST_TIMESTAMP_MS, arrow_schema

# librdkafka counts 0 not available, 1 create time, 2 log append time; Java's `TimestampType.id`, which is what Spark
# shows, is one less.
_TO_JAVA_TIMESTAMP_TYPE = -1


def size(message: Message) -> int:
    """Return the bytes of key and value."""
    return len(message.key() or b"") + len(message.value() or b"")


def headers_size(message: Message) -> int:
    """Return the bytes of the headers' keys (about: their characters) and values."""
    return sum(len(key) + len(value or b"") for key, value in _headers(message) or ())


def to_record_batch(topic: str, partition: int, messages: Sequence[Message], include_headers: bool) -> pa.RecordBatch:
    """Return one row per message, all of which are records of this topic and partition."""
    count = len(messages)
    timestamps = [message.timestamp() for message in messages]
    columns = [
        pa.array([message.key() for message in messages], pa.binary()),
        pa.array([message.value() for message in messages], pa.binary()),
        pa.repeat(pa.scalar(topic, pa.string()), count),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        pa.array([message.offset() for message in messages], pa.int64()),
        _timestamps([ms for _, ms in timestamps]),
        pa.array([kind + _TO_JAVA_TIMESTAMP_TYPE for kind, _ in timestamps], pa.int32()),
    ]
    if include_headers:
        columns.append(pa.array([_headers(message) for message in messages], HEADERS_TYPE))
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(include_headers))


def _timestamps(times_ms: list[int]) -> pa.Array:
    """Return the timestamps in µs; one that does not fit is the nearest that does."""
    try:
        return pa.array(times_ms, pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))
    except pa.ArrowInvalid:
        return _timestamps([max(-LARGEST_TIMESTAMP_MS, min(ms, LARGEST_TIMESTAMP_MS)) for ms in times_ms])


def _headers(message: Message) -> list[tuple[str, bytes | None]] | None:
    """Return the headers in their order, repeated keys too; None, as in Spark, and not an empty list, if there are none."""
    # A message that was consumed has this one of the forms that its type allows.
    return cast("list[tuple[str, bytes | None]] | None", message.headers() or None)
