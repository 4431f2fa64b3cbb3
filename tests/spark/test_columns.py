"""`.schema(...)`: the columns that a user asks for, in streams and batch reads."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from devtools.broker import Cluster
from tests.conftest import MakeTopic, Produce
from tests.support.group_offsets import committed_offsets
from tests.support.queries import Queries, Read, assert_rows, setting

NUMBERED = [(f"k{number}", f"v{number}") for number in range(10)]
HEADERS = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"


def test_a_stream_has_the_columns_of_its_schema_as_they_are_written(queries: Queries, topic: MakeTopic, produce: Produce) -> None:
    name = topic()
    produce(name, NUMBERED)
    query = queries("a", name, "offset LONG NOT NULL, VALUE STRING COMMENT 'the order', Key STRING NOT NULL")
    assert query.load().schema == StructType(
        [
            StructField("offset", LongType(), nullable=False),
            StructField("VALUE", StringType(), metadata={"comment": "the order"}),
            StructField("Key", StringType(), nullable=False),
        ]
    )
    assert sorted(tuple(row) for row in query.run()) == [(at, value, key) for at, (key, value) in enumerate(NUMBERED)]
    # Another schema is no other stream: the checkpoint goes on.
    produce(name, [("k10", "v10")])
    again = queries("a", name, "offset LONG, VALUE BINARY, Key STRING")
    again.transform = lambda frame: frame.selectExpr("offset", "CAST(VALUE AS STRING) AS VALUE", "Key")
    assert sorted(row.offset for row in again.run()) == list(range(11))


def test_a_batch_read_has_the_columns_of_its_schema(spark: SparkSession, read: Read, topic: MakeTopic, produce: Produce) -> None:
    name = topic(partitions=2)
    produce(name, NUMBERED, 1)
    frame = read(name, "value STRING, partition INT NOT NULL, offset LONG")
    assert_rows(frame, [(value, 1, at) for at, (_, value) in enumerate(NUMBERED)])
    assert_rows(frame.where("VALUE = 'v3'").select("Offset"), [(3,)])
    assert read(name, "offset LONG").count() == 10
    # Headers need no option, only a column.
    assert_rows(read(name, f"{HEADERS}, offset LONG"), [(None, at) for at in range(10)])
    # Written with Python's types, and without DDL.
    assert read(name, StructType([StructField("value", StringType())])).distinct().count() == 10
    with setting(spark, "spark.sql.caseSensitive", "true"):
        frame = read(name, "VALUE STRING, timestamptype INT")
        assert frame.columns == ["VALUE", "timestamptype"]
        assert_rows(frame.select("VALUE"), [(value,) for _, value in NUMBERED])


def test_what_cannot_be_had_is_an_error_that_lists_what_can(
    read: Read, queries: Queries, topic: MakeTopic, produce: Produce, cluster: Cluster
) -> None:
    name = topic()
    produce(name, NUMBERED)
    with pytest.raises(AnalysisException, match="OptionError: maxoffsetpertrigger"):
        read(name, maxOffsetPerTrigger="1")
    # With a schema not in `load()`: Spark does not ask the source for anything there.
    with pytest.raises(AnalysisException, match="OptionError: maxoffsetpertrigger: there is no option with this name"):
        read(name, "value STRING", maxOffsetPerTrigger="1").count()
    schema = "value STRING, valu STRING"
    listed = "A schema may have these columns, in any order: key BINARY or STRING, value BINARY or STRING, topic STRING"
    with pytest.raises(AnalysisException) as refused:
        read(name, schema).collect()
    query = queries("a", name, schema)
    query.transform = lambda frame: frame.selectExpr("1 AS one")
    for text in (str(refused.value), query.start(availableNow=True).failure()):
        assert "SchemaError: There is no column valu." in text
        assert listed in text
    assert committed_offsets(cluster, f"group-of-{name}", name) == {}


def test_a_null_in_a_column_that_is_not_null_is_an_error_and_is_read_without_it(
    read: Read, topic: MakeTopic, produce: Produce
) -> None:
    name = topic()
    produce(name, [(b"k", b"v"), (b"k", None), (b"k", b"w")])
    with pytest.raises(PySparkException) as refused:
        read(name, "offset LONG, value STRING NOT NULL").collect()
    assert f"SchemaError: Reading {name}-0 [0, 3): a record before offset 3 has no value" in str(refused.value)
    assert "Remove NOT NULL from the schema" in str(refused.value)
    assert_rows(read(name, "offset LONG, value STRING"), [(0, "v"), (1, None), (2, "w")])


def test_the_default_schema_does_not_depend_on_what_a_timestamp_is_in_ddl(
    spark: SparkSession, read: Read, topic: MakeTopic, produce: Produce
) -> None:
    name = topic()
    produce(name, NUMBERED)
    with setting(spark, "spark.sql.timestampType", "TIMESTAMP_NTZ"):
        assert dict(read(name).dtypes)["timestamp"] == "timestamp"
        assert read(name, "timestamp TIMESTAMP_LTZ").count() == 10
        with pytest.raises(AnalysisException, match="timestamp cannot be TIMESTAMP_NTZ: write timestamp TIMESTAMP_LTZ"):
            read(name, "timestamp TIMESTAMP").count()
