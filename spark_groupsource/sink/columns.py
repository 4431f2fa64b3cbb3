"""Checks and converts the columns that the sink writes: those of Spark's own Kafka sink, by name, in any case and order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import DataType, StructType

from spark_groupsource.errors import RecordRefused, SchemaError

KEY, VALUE, TOPIC, PARTITION, HEADERS = "key", "value", "topic", "partition", "headers"

ANY_PARTITION = -1
"""The partition for a row that does not name one."""

_PLAIN = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())

_TEXT_OR_BYTES = "STRING or BINARY"
_HEADERS_DDL = "ARRAY<STRUCT<key: STRING, value: BINARY>>"
_ALLOWED = {KEY: _TEXT_OR_BYTES, VALUE: _TEXT_OR_BYTES, TOPIC: "STRING", PARTITION: "INT", HEADERS: _HEADERS_DDL}


def check_columns(schema: StructType, topic: str | None) -> None:
    """Check the columns of the rows to write. Columns with other names are ignored.

    Args:
        schema: The DataFrame's schema.
        topic: The `topic` option.

    Raises:
        SchemaError: A column is missing, or has a type that cannot be written. The message lists every problem.
    """
    problems = list(_problems(schema, topic))
    if problems:
        raise SchemaError(" ".join(problems))


def _problems(schema: StructType, topic: str | None) -> Iterator[str]:
    counts = Counter(name.lower() for name in schema.names)
    for name, count in counts.items():
        if count > 1 and name in _ALLOWED:
            yield f"There are {count} columns named {name} (names are not case-sensitive). Rename all but one of them."
    if VALUE not in counts:
        yield (
            f"The value column, which holds the records' values, is missing. Add it as {_TEXT_OR_BYTES}, for example with "
            'selectExpr("to_json(struct(*)) AS value").'
        )
    if topic is None and TOPIC not in counts:
        yield "No topic is set. Set the topic option, or add a topic column with each row's topic."
    for field in schema:
        name = field.name.lower()
        if name in _ALLOWED and not _fits(name, field.dataType):
            yield f"{field.name} cannot be {field.dataType.simpleString().upper()}: it must be {_ALLOWED[name]}."


def _fits(name: str, kind: DataType) -> bool:
    # Spark writes types in lower case and without blanks. A string may have any collation.
    text = re.sub(r" collate \w+", "", kind.simpleString()).lower()
    return any(text == allowed.replace(" ", "") for allowed in _ALLOWED[name].lower().split(" or "))


def rows_of(batch: pa.RecordBatch, topic: str | None) -> pa.RecordBatch:
    """Return the columns of a record batch that the sink writes: key, value, topic, partition and headers, if present.

    Args:
        batch: Rows whose columns `check_columns` has checked.
        topic: The `topic` option, which replaces the column.

    Raises:
        RecordRefused: A row has no topic, an invalid topic name, a negative partition, or a header without a key.
    """
    by_name = {name.lower(): batch.column(at) for at, name in enumerate(batch.schema.names)}
    if topic is not None:
        by_name.pop(TOPIC, None)
    elif by_name[TOPIC].null_count:
        raise RecordRefused("A row has no topic: its topic column is null. Set the topic option, or filter out such rows.")
    else:
        by_name[TOPIC] = _topics(by_name[TOPIC])
    if PARTITION in by_name:
        partitions = by_name[PARTITION]
        if (pc.min(partitions).as_py() or 0) < 0:
            raise RecordRefused("A row has a negative partition. Write null to let the key choose the partition.")
        by_name[PARTITION] = pc.fill_null(partitions, ANY_PARTITION)
    if HEADERS in by_name:
        keys = by_name[HEADERS].flatten().flatten()[0]
        if keys.null_count:
            raise RecordRefused("A row has a header whose key is null. Kafka does not allow that: remove such headers.")
        by_name[HEADERS] = _plain_headers(by_name[HEADERS])
    for name in (KEY, VALUE):
        if name in by_name:
            by_name[name] = _plain(by_name[name])
    names = [name for name in _ALLOWED if name in by_name]
    return pa.RecordBatch.from_arrays([by_name[name] for name in names], names=names)


def topics_of(rows: pa.RecordBatch) -> tuple[str, ...]:
    """Return the topics in rows from `rows_of`; empty if the `topic` option is set."""
    return tuple(pc.unique(rows.column(TOPIC)).to_pylist()) if TOPIC in rows.schema.names else ()


def _topics(column: pa.Array) -> pa.Array:
    """Return the `topic` column as plain strings.

    Raises:
        RecordRefused: A topic has an invalid name.
    """
    column = column.cast(pa.string()) if column.type != pa.string() else column
    # Compare bytes, because a string that is not valid UTF-8 cannot be decoded.
    for name in pc.unique(column.cast(pa.binary())).to_pylist():
        if not re.fullmatch(rb"[A-Za-z0-9._-]{1,249}", name) or name in (b".", b".."):
            shown = name[:80].decode("utf-8", "replace")
            raise RecordRefused(
                f"A row has the topic {shown!r}, which is not a valid topic name. A topic name has 1 to 249 letters, digits, "
                "'.', '_' and '-'. Correct the topic column, or filter out such rows."
            )
    return column


def _plain(column: pa.Array) -> pa.Array:
    """Return a string or binary column with offset and data buffers. A platform may send views or dictionaries."""
    return column if column.type in _PLAIN else column.cast(pa.large_binary())


def _plain_headers(column: pa.Array) -> pa.Array:
    """Return the `headers` column as lists whose keys and values have offset and data buffers (see `_plain`)."""
    kind = column.type
    if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and all(part.type in _PLAIN for part in kind.value_type):
        return column
    key, value = kind.value_type
    return column.cast(pa.list_(pa.struct([(key.name, pa.large_string()), (value.name, pa.large_binary())])))
