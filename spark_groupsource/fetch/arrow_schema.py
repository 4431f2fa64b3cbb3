"""The columns of a Kafka record, as types of Arrow.

Without a schema of the user they are those of Spark's own Kafka source (`KafkaRecordToRowConverter`). With one, spark/columns.py
makes the Arrow schema. Each field is then a column of this module by its name, in any case; `key` and `value` are binary or
string.
"""

from __future__ import annotations

import pyarrow as pa

HEADERS_TYPE = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
"""The column `headers`. Spark names the values of an array `element`; Arrow's own default is `item`."""

LARGEST_TIMESTAMP_MS = (2**63 - 1) // 1000
"""The largest timestamp in ms that fits into Spark's 64 bits of µs; its negative is the smallest. See `contract.fetch`."""

_RECORD_FIELDS = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("timestampType", pa.int32()),
]
_WITHOUT_HEADERS = pa.schema(_RECORD_FIELDS)
_WITH_HEADERS = pa.schema([*_RECORD_FIELDS, pa.field("headers", HEADERS_TYPE)])


def arrow_schema(include_headers: bool) -> pa.Schema:
    """Return all columns. With `include_headers` the last one is `headers`.

    It equals `to_arrow_schema(schema, timezone="UTC")` of PySpark for the default schema. From 4.2 on PySpark refuses batches
    with another schema.
    """
    return _WITH_HEADERS if include_headers else _WITHOUT_HEADERS


def column_names(schema: pa.Schema) -> list[str]:
    """Return which column of a record each field is, in lower case: `timestamptype`, for example."""
    return [name.lower() for name in schema.names]


def has_not_null(schema: pa.Schema) -> bool:
    """Return whether any column of this schema, or the value of a header, must not be null."""
    headers = [field.type.value_type for field in schema if pa.types.is_list(field.type)]
    return not all(field.nullable for field in [*schema, *(each.field(1) for each in headers)])


def null_not_allowed(batch: pa.RecordBatch) -> str | None:
    """Return the first column that has a null although its field is not nullable, or None if there is none.

    Kafka allows a null as key, as value and as the value of a header, and Spark shows a record without headers as null.
    """
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if not field.nullable and column.null_count:
            return str(field.name)
        if pa.types.is_list(field.type):
            value = field.type.value_type.field(1)
            if not value.nullable and column.values.field(1).null_count:
                return f"{field.name}.{value.name}"
    return None


def as_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return binary values as `kind`, which is binary or string. The bytes are neither copied nor checked to be UTF-8.

    Spark does the same for `CAST(value AS STRING)`: its strings may have any bytes.
    """
    return pa.Array.from_buffers(kind, len(column), column.buffers(), column.null_count)
