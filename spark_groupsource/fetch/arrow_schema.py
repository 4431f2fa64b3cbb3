"""Defines a Kafka record's columns as Arrow types, and checks batches against a schema.

If the user sets no schema, the columns are the same as in Spark's own Kafka source (`KafkaRecordToRowConverter`). Otherwise,
spark/columns.py builds the Arrow schema. Each field has the name of a column in this module, in upper or lower case, and `key`
and `value` are binary or string.
"""

from __future__ import annotations

import pyarrow as pa

HEADERS_TYPE = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
"""The type of the `headers` column. Spark calls an array's values `element`, while Arrow's default is `item`."""

LARGEST_TIMESTAMP_MS = (2**63 - 1) // 1000
"""The largest timestamp in ms that fits in Spark's 64-bit µs; its negative is the smallest. See `choice.fetch`."""

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
    """Return the schema with all columns, ending with `headers` if they are included.

    The schema equals PySpark's `to_arrow_schema(schema, timezone="UTC")` for the default schema. PySpark 4.2 and later refuse
    batches with any other schema.
    """
    return _WITH_HEADERS if include_headers else _WITHOUT_HEADERS


def column_names(schema: pa.Schema) -> list[str]:
    """Return the name of each field's record column, in lower case, such as `timestamptype`."""
    return [name.lower() for name in schema.names]


def null_not_allowed(batch: pa.RecordBatch) -> str | None:
    """Return the name of the first column that has a null but must not have one, or None if there is no such column.

    Kafka allows null keys, values and header values, and Spark shows null headers for a record without headers.
    """
    for at, field in enumerate(batch.schema):
        if not field.nullable and batch.column(at).null_count:
            return str(field.name)
        if pa.types.is_list(field.type):
            value = field.type.value_type.field(1)
            if not value.nullable and batch.column(at).values.field(1).null_count:
                return f"{field.name}.{value.name}"
    return None


def as_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return binary values as `kind`, which is binary or string, without copying the bytes or checking for valid UTF-8.

    Spark's `CAST(value AS STRING)` does the same: its strings may contain any bytes.
    """
    return pa.Array.from_buffers(kind, len(column), column.buffers(), column.null_count)
