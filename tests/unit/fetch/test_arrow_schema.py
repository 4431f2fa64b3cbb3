"""The schema of the batches is, to the last detail, what PySpark expects."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spark_groupsource.errors import SchemaError
from spark_groupsource.fetch.arrow_schema import arrow_schema
from spark_groupsource.fetch.pure_arrow import to_record_batch
from spark_groupsource.spark.columns import default_schema, requested

# Not parsed from DDL: that needs a running Spark.
HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
RECORD = [
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
]
SPARK_SCHEMAS = {False: StructType(RECORD), True: StructType([*RECORD, StructField("headers", ArrayType(HEADER))])}
ALL = (
    "A schema may have these columns, in any order: key BINARY or STRING, value BINARY or STRING, topic STRING, partition INT, "
    "offset LONG, timestamp TIMESTAMP_LTZ, timestampType INT, headers ARRAY<STRUCT<KEY:STRING,VALUE:BINARY>>."
)


@pytest.mark.parametrize("include_headers", [False, True])
def test_the_default_is_the_schema_of_sparks_own_source(include_headers: bool) -> None:
    expected = to_arrow_schema(SPARK_SCHEMAS[include_headers], timezone="UTC")

    assert default_schema(include_headers) == SPARK_SCHEMAS[include_headers]
    for found in (arrow_schema(include_headers), requested(default_schema(include_headers), include_headers)):
        assert found.equals(expected, check_metadata=True)
        assert str(found) == str(expected)


def in_some_case(name: str) -> st.SearchStrategy[str]:
    return st.sampled_from([name, name.lower(), name.upper(), name.title()])


@st.composite
def users_schemas(draw: st.DrawFn) -> StructType:
    """Columns that there are, in any order and case, nullable or not."""
    fields = []
    for field in draw(st.lists(st.sampled_from(SPARK_SCHEMAS[True].fields), min_size=1, unique_by=lambda field: field.name)):
        kind: DataType = field.dataType
        if field.name in ("key", "value"):
            kind = draw(st.sampled_from([BinaryType(), StringType()]))
        elif field.name == "headers":
            parts = [StructField(draw(in_some_case(part.name)), part.dataType, draw(st.booleans())) for part in HEADER]
            kind = ArrayType(StructType(parts), draw(st.booleans()))
        fields.append(StructField(draw(in_some_case(field.name)), kind, draw(st.booleans())))
    return StructType(fields)


@settings(deadline=None)  # the first import takes longer
@given(users_schemas())
def test_columns_that_are_asked_for_come_as_pyspark_expects_them(schema: StructType) -> None:
    expected = to_arrow_schema(schema, timezone="UTC")

    found = requested(schema, include_headers=False)

    assert found.equals(expected, check_metadata=True)
    assert str(found) == str(expected)
    assert to_record_batch("t", 0, [], found).schema.equals(expected, check_metadata=True)


@pytest.mark.parametrize(
    ("fields", "problems"),
    [
        ([("valu", StringType())], "There is no column valu."),
        ([("offset", IntegerType())], "offset cannot be INT: write offset LONG."),
        ([("Value", LongType())], "Value cannot be LONG: write Value BINARY or STRING."),
        ([("value", StringType("UNICODE_CI"))], "value cannot be STRING COLLATE UNICODE_CI: write value BINARY or STRING."),
        ([("timestamp", TimestampNTZType())], "timestamp cannot be TIMESTAMP_NTZ: write timestamp TIMESTAMP_LTZ."),
        (
            [("headers", ArrayType(StringType()))],
            "headers cannot be ARRAY<STRING>: write headers ARRAY<STRUCT<KEY:STRING,VALUE:BINARY>>.",
        ),
        (
            [("value", StringType()), ("VALUE", BinaryType())],
            "The schema has value more than once (names are not case-sensitive).",
        ),
        ([], "The schema has no column: name at least one, for example offset LONG."),
        (
            [("key", IntegerType()), ("no", StringType())],
            "key cannot be INT: write key BINARY or STRING. There is no column no.",
        ),
    ],
)
def test_anything_else_is_an_error_that_lists_what_there_is(fields: list[tuple[str, DataType]], problems: str) -> None:
    with pytest.raises(SchemaError) as refused:
        requested(StructType([StructField(*field) for field in fields]), include_headers=False)

    assert str(refused.value) == f"{problems} {ALL}"


def test_headers_that_are_asked_for_by_the_option_and_not_by_the_schema_are_an_error() -> None:
    with pytest.raises(SchemaError, match="includeHeaders is true, and the schema has no headers"):
        requested(StructType([StructField("value", StringType())]), include_headers=True)

    assert requested(SPARK_SCHEMAS[True], include_headers=False) == arrow_schema(True)
