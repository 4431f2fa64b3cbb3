"""Which columns a query may write, and what becomes of Arrow's kinds of them."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType

from spark_groupsource.errors import (
    RecordRefused,
    SchemaError,
)
from spark_groupsource.sink.columns import check_columns, rows_of
from tests.support.counted_rows import HEADERS, counted

NESTED: Mapping[str, DataType] = {
    "headers": ArrayType(StructType().add("key", "string").add("value", "binary")),
    "Headers": ArrayType(StructType().add("Key", StringType("UNICODE_CI")).add("VALUE", "binary", nullable=False), False),
    "others": ArrayType(StructType().add("name", "string").add("value", "binary")),
    "collated": StringType("UNICODE_CI"),
    "map": MapType(StringType(), BinaryType()),
}


def columns(text: str) -> StructType:
    """Read names and types; Spark's own reader of DDL needs a session."""
    schema = StructType()
    for column in text.split(", "):
        name, kind = column.split()
        schema.add(name, NESTED.get(kind, kind))
    return schema


class TestColumns:
    @pytest.mark.parametrize(
        "ddl",
        [
            "value string",
            "value binary, key string",
            "VALUE binary, topic string, partition integer, headers headers",
            "value string, offset long",
            "value collated, topic collated, headers Headers",
        ],
    )
    def test_of_sparks_own_sink_are_accepted(self, ddl: str) -> None:
        check_columns(columns(ddl), "t")

    @pytest.mark.parametrize(
        ("ddl", "said"),
        [
            ("key string", "The value column, which holds the records' values, is missing"),
            ("value integer", "value cannot be INT: it must be STRING or BINARY"),
            ("value string, key double", "key cannot be DOUBLE"),
            ("value string, topic binary", "topic cannot be BINARY: it must be STRING"),
            ("value string, partition long", "partition cannot be BIGINT: it must be INT"),
            ("value string, headers map", "headers cannot be MAP"),
            ("value string, headers others", "headers cannot be ARRAY<STRUCT<NAME:STRING,VALUE:BINARY>>: it must be ARRAY"),
        ],
    )
    def test_that_cannot_be_written_are_refused(self, ddl: str, said: str) -> None:
        with pytest.raises(SchemaError, match=said):
            check_columns(columns(ddl), "t")

    def test_a_topic_is_needed(self) -> None:
        with pytest.raises(SchemaError, match="Set the topic option"):
            check_columns(columns("value string"), None)
        check_columns(columns("value string, topic string"), None)

    def test_the_option_takes_the_place_of_the_column(self) -> None:
        batch = pa.RecordBatch.from_pydict({"value": ["1"], "topic": ["x"]})
        assert rows_of(batch, "t").schema.names == ["value"]
        assert rows_of(batch, None).schema.names == ["value", "topic"]

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"value": ["1"], "topic": pa.array([None], pa.string())}, "has no topic"),
            ({"value": ["1"], "topic": ["orders\0evil"]}, "not a valid topic name"),
            ({"value": ["1"], "topic": [""]}, "not a valid topic name"),
            ({"value": ["1"], "topic": ["x" * 250]}, "not a valid topic name"),
            ({"value": ["1"], "topic": [".."]}, "not a valid topic name"),
            ({"value": ["1"], "topic": pa.array([b"\xff"], pa.binary()).view(pa.string())}, "not a valid topic name"),
            ({"value": ["1"], "topic": ["x"], "partition": pa.array([-1], pa.int32())}, "negative partition"),
            (
                {"value": ["1"], "topic": ["x"], "headers": pa.array([[{"key": None, "value": b"1"}]], HEADERS)},
                "header whose key is null",
            ),
        ],
    )
    def test_rows_that_kafka_cannot_have_are_refused(self, given: Mapping[str, object], said: str) -> None:
        with pytest.raises(RecordRefused, match=said):
            rows_of(pa.RecordBatch.from_pydict(dict(given)), None)

    def test_views_and_dictionaries_are_written_as_what_they_hold(self) -> None:
        plain = pa.RecordBatch.from_pydict({"value": ["a", None, "c"], "topic": ["x", "y", "x"]})
        views = pa.RecordBatch.from_pydict(
            {
                "value": plain.column(0).cast(pa.string_view()),
                "topic": plain.column(1).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string())),
            }
        )
        assert counted(views) == counted(plain) == counted(views, native=False)

    def test_views_in_headers_are_written_as_what_they_hold(self) -> None:
        def rows(key: pa.DataType, value: pa.DataType) -> pa.RecordBatch:
            headers = [[{"Key": "k", "value": b"v"}, {"Key": "a key of more than twelve bytes", "value": None}], None, []]
            kind = pa.list_(pa.struct([("Key", key), ("value", value)]))
            return pa.RecordBatch.from_pydict({"value": ["a", "b", "c"], "headers": pa.array(headers, kind), "topic": ["x"] * 3})

        plain, views = rows(pa.string(), pa.binary()), rows(pa.string_view(), pa.binary_view())
        assert counted(views) == counted(plain) == counted(views, native=False)
