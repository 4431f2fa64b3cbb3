"""The schema of the batches is, to the last detail, what PySpark expects."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, BinaryType, DataType, StringType, StructField, StructType

from spark_groupsource.errors import SchemaError
from spark_groupsource.fetch.arrow_schema import arrow_schema, null_not_allowed
from spark_groupsource.fetch.pure_consumer import to_record_batch
from spark_groupsource.spark.columns import default_schema, requested
from spark_groupsource.spark.datasource import GroupKafkaDataSource
from tests.support.options import BASE


def columns(**kinds: str | DataType) -> StructType:
    """Not parsed from DDL: that needs a running Spark."""
    schema = StructType()
    for name, kind in kinds.items():
        schema.add(name, kind)
    return schema


HEADER = columns(key="string", value="binary")
RECORD = {"key": "binary", "value": "binary", "topic": "string", "partition": "integer", "offset": "long"}
TIME = {"timestamp": "timestamp", "timestampType": "integer"}
SPARK_SCHEMAS = {False: columns(**RECORD, **TIME), True: columns(**RECORD, **TIME, headers=ArrayType(HEADER))}
ALL = (
    "A schema may have these columns, in any order: key BINARY or STRING, value BINARY or STRING, topic STRING, partition INT, "
    "offset LONG, timestamp TIMESTAMP_LTZ, timestampType INT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>."
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


@given(users_schemas())
def test_columns_that_are_asked_for_come_as_pyspark_expects_them(schema: StructType) -> None:
    expected = to_arrow_schema(schema, timezone="UTC")

    found = requested(schema, include_headers=False)

    assert found.equals(expected, check_metadata=True)
    assert str(found) == str(expected)
    assert to_record_batch("t", 0, [], found).schema.equals(expected, check_metadata=True)


@pytest.mark.parametrize(
    ("schema", "problems"),
    [
        (columns(valu="string"), "There is no column valu."),
        (columns(offset="integer"), "offset cannot be INT: write offset LONG."),
        (columns(Value="long"), "Value cannot be LONG: write Value BINARY or STRING."),
        (columns(value=StringType("UNICODE_CI")), "value cannot be STRING COLLATE UNICODE_CI: write value BINARY or STRING."),
        (columns(timestamp="timestamp_ntz"), "timestamp cannot be TIMESTAMP_NTZ: write timestamp TIMESTAMP_LTZ."),
        (
            columns(headers=ArrayType(StringType())),
            "headers cannot be ARRAY<STRING>: write headers ARRAY<STRUCT<key: STRING, value: BINARY>>.",
        ),
        (columns(value="string", VALUE="binary"), "The schema has value more than once (names are not case-sensitive)."),
        (columns(), "The schema has no columns: name at least one, for example offset LONG."),
        (columns(key="integer", no="string"), "key cannot be INT: write key BINARY or STRING. There is no column no."),
    ],
)
def test_anything_else_is_an_error_that_lists_what_there_is(schema: StructType, problems: str) -> None:
    with pytest.raises(SchemaError) as refused:
        requested(schema, include_headers=False)

    assert str(refused.value) == f"{problems} {ALL}"


def test_headers_that_are_asked_for_by_the_option_and_not_by_the_schema_are_an_error() -> None:
    source = GroupKafkaDataSource({**BASE, "includeHeaders": "true"})
    for read in (source.reader, lambda schema: source.streamReader(schema).initialOffset()):
        with pytest.raises(SchemaError, match="includeHeaders is true, but the schema has no headers"):
            read(columns(value="string"))


@pytest.mark.parametrize(
    ("column", "null"),
    [
        (None, {}),
        ("key", {"key": None}),
        ("value", {"value": None}),
        ("headers", {"headers": None}),
        ("headers.value", {"headers": [{"key": "a", "value": None}]}),
    ],
)
def test_a_null_in_a_column_that_has_none_is_found(column: str | None, null: Mapping[str, object]) -> None:
    element = pa.struct([pa.field("key", pa.string(), False), pa.field("value", pa.binary(), False)])
    lists = pa.field("headers", pa.list_(pa.field("element", element, False)), False)
    schema = pa.schema([pa.field("key", pa.binary(), False), pa.field("value", pa.string(), False), lists])
    full = {"key": b"k", "value": "v", "headers": [{"key": "a", "value": b"1"}]}
    assert null_not_allowed(pa.RecordBatch.from_pylist([full, {**full, **null}], schema)) == column
