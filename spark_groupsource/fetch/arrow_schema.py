"""The columns of a Kafka record in Spark, as DDL for Spark and as a schema for Arrow.

Both are those of Spark's own Kafka source (`KafkaRecordToRowConverter`).
"""

from __future__ import annotations

import pyarrow as pa

RECORD_DDL = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
HEADERS_DDL = "headers array<struct<key string, value binary>>"

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


def spark_schema(include_headers: bool) -> str:
    """Return the schema as Spark's DDL. With `include_headers` the last column is `headers`."""
    return f"{RECORD_DDL}, {HEADERS_DDL}" if include_headers else RECORD_DDL


def arrow_schema(include_headers: bool) -> pa.Schema:
    """Return the schema of every batch.

    It equals `to_arrow_schema(schema, timezone="UTC")` of PySpark. From 4.3 on PySpark refuses batches with another schema.
    """
    return _WITH_HEADERS if include_headers else _WITHOUT_HEADERS
