"""The columns that a user may ask for with `.schema(...)`, and the Arrow schema that Spark then expects of a reader.

Spark passes a schema of the user to the reader as it is, and does not ask for the source's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, StructType

from spark_groupsource.errors import SchemaError
from spark_groupsource.fetch.arrow_schema import HEADERS_TYPE
from spark_groupsource.spark.default_schema import TYPES

_DDL = {
    "bigint": "LONG",
    # TIMESTAMP may mean TIMESTAMP_NTZ (spark.sql.timestampType).
    "timestamp": "TIMESTAMP_LTZ",
}
"""How to write a type, where that is not its `simpleString`."""

_ARROW = {
    "binary": pa.binary(),
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


def requested(schema: StructType, include_headers: bool) -> pa.Schema:
    """Return the columns to read, as Spark expects them in Arrow.

    Names are accepted in any case, since no two columns differ only in that, and stay as they are written. So does nullability,
    also that of the parts of a header.

    Args:
        schema: The user's schema, or `default_schema`.
        include_headers: The option `includeHeaders`. If it is set, the schema must have the headers.

    Raises:
        SchemaError: There is no such column, or not with this type. The text lists what there is.
    """
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
        yield "The schema has no column: name at least one, for example offset LONG."
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
        yield "includeHeaders is true, and the schema has no headers: add them to the schema, or remove the option."


def _arrow_type(kind: DataType) -> pa.DataType:
    if not isinstance(kind, ArrayType):
        return _ARROW[_text(kind)]
    assert isinstance(kind.elementType, StructType)  # noqa: S101 -- the only one in TYPES
    parts = [
        pa.field(part.name, default.type, nullable=part.nullable)
        for part, default in zip(kind.elementType, HEADERS_TYPE.value_type, strict=True)
    ]
    return pa.list_(pa.field(HEADERS_TYPE.value_field.name, pa.struct(parts), nullable=kind.containsNull))


def _allowed(name: str) -> str:
    return " or ".join(_ddl(kind) for kind in TYPES[name])


def _ddl(kind: DataType) -> str:
    """Return the type as one writes it: types in capitals, names as they are."""
    if isinstance(kind, ArrayType):
        return f"ARRAY<{_ddl(kind.elementType)}>"
    if isinstance(kind, StructType):
        return f"STRUCT<{', '.join(f'{part.name}: {_ddl(part.dataType)}' for part in kind)}>"
    return _DDL.get(_text(kind), kind.simpleString().upper())


def _text(kind: DataType) -> str:
    """Return the type without its nullability, and with the names of its parts in lower case."""
    return kind.simpleString().lower()
