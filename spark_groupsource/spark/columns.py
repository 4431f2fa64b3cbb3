"""Defines the columns of a Kafka record in Spark: the source's own schema, and the columns that `.schema(...)` may ask for.

Spark asks for the source's schema in `load()`, in a separate process that has not imported pyarrow. So this module imports
pyarrow only to make an Arrow schema. Spark passes a user's schema to the reader unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

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

from spark_groupsource.errors import SchemaError

if TYPE_CHECKING:
    import pyarrow as pa


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
"""The types that each column can have. The first one is the type in Spark's own Kafka source (`KafkaRecordToRowConverter`)."""

_DDL = {
    "bigint": "LONG",
    # TIMESTAMP may mean TIMESTAMP_NTZ (spark.sql.timestampType).
    "timestamp": "TIMESTAMP_LTZ",
}
"""The DDL names of types whose `simpleString` differs."""


def default_schema(include_headers: bool) -> StructType:
    """Return the schema of Spark's own Kafka source. With `include_headers`, the last column is `headers`."""
    names = [name for name in TYPES if include_headers or name != "headers"]
    return StructType([StructField(name, TYPES[name][0]) for name in names])


def requested(schema: StructType, include_headers: bool) -> pa.Schema:
    """Return the columns to read, in the Arrow types that Spark expects.

    Column names are not case-sensitive, because no two columns differ only in case, and they keep the user's spelling.
    Nullability is also kept, even for the fields of a header.

    Args:
        schema: The user's schema, or `default_schema`.
        include_headers: The `includeHeaders` option. If it is set, the schema must include the `headers` column.

    Raises:
        SchemaError: There is no such column, or it cannot have this type. The message lists the columns and their types.
    """
    import pyarrow as pa

    problems = list(_problems(schema, include_headers))
    if problems:
        raise SchemaError(
            f"{' '.join(problems)} A schema may have these columns, in any order: "
            f"{', '.join(f'{name} {_allowed(name)}' for name in TYPES)}."
        )
    return pa.schema([pa.field(field.name, _arrow_type(field.dataType), nullable=field.nullable) for field in schema])


def _problems(schema: StructType, include_headers: bool) -> Iterator[str]:
    known = {name.lower(): name for name in TYPES}
    counts = Counter(name.lower() for name in schema.names)
    if not counts:
        yield "The schema has no columns: name at least one, for example offset LONG."
    for field in schema:
        name = known.get(field.name.lower())
        if name is None:
            yield f"There is no column {field.name}."
        elif _text(field.dataType) not in map(_text, TYPES[name]):
            yield f"{field.name} cannot be {_ddl(field.dataType)}: write {field.name} {_allowed(name)}."
    for lower, count in counts.items():
        if count > 1:
            yield f"The schema has {known.get(lower, lower)} more than once (names are not case-sensitive)."
    if include_headers and "headers" not in counts:
        yield "includeHeaders is true, but the schema has no headers column. Add the column, or remove the option."


def _arrow_type(kind: DataType) -> pa.DataType:
    import pyarrow as pa

    from spark_groupsource.fetch.arrow_schema import HEADERS_TYPE

    if not isinstance(kind, ArrayType):
        arrow: Mapping[str, pa.DataType] = {
            "binary": pa.binary(),
            "string": pa.string(),
            "int": pa.int32(),
            "bigint": pa.int64(),
            "timestamp": pa.timestamp("us", tz="UTC"),
        }
        return arrow[_text(kind)]
    assert isinstance(kind.elementType, StructType)  # noqa: S101 -- the only one in TYPES
    parts = [
        pa.field(part.name, default.type, nullable=part.nullable)
        for part, default in zip(kind.elementType, HEADERS_TYPE.value_type, strict=True)
    ]
    return pa.list_(pa.field(HEADERS_TYPE.value_field.name, pa.struct(parts), nullable=kind.containsNull))


def _allowed(name: str) -> str:
    return " or ".join(_ddl(kind) for kind in TYPES[name])


def _ddl(kind: DataType) -> str:
    """Return the type as users write it in DDL: types in upper case, names unchanged."""
    if isinstance(kind, ArrayType):
        return f"ARRAY<{_ddl(kind.elementType)}>"
    if isinstance(kind, StructType):
        return f"STRUCT<{', '.join(f'{part.name}: {_ddl(part.dataType)}' for part in kind)}>"
    return _DDL.get(_text(kind), kind.simpleString().upper())


def _text(kind: DataType) -> str:
    """Return the type without its nullability, and with its field names in lower case."""
    return kind.simpleString().lower()
