"""The columns of a Kafka record with the types that they can have in Spark, and the source's own schema.

Spark asks for it in `load()`, in a process of its own that has not imported pyarrow. So this module does not import it either.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

TYPES: Mapping[str, tuple[DataType, ...]] = {
    "key": (BinaryType(), StringType()),
    "value": (BinaryType(), StringType()),
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "offset": (LongType(),),
    "timestamp": (TimestampType(),),
    "timestampType": (IntegerType(),),
    "headers": (_HEADERS,),
}
"""The types that each column can have. The first one is that of Spark's own Kafka source (`KafkaRecordToRowConverter`)."""


def default_schema(include_headers: bool) -> StructType:
    """Return the schema of Spark's own Kafka source. With `include_headers` the last column is `headers`."""
    names = [name for name in TYPES if include_headers or name != "headers"]
    return StructType([StructField(name, TYPES[name][0]) for name in names])
