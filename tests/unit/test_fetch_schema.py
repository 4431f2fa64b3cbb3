"""The schema of the batches is, to the last detail, what PySpark expects."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark_groupsource.fetch.arrow_schema import arrow_schema, spark_schema
from spark_groupsource.fetch.pure_arrow import to_record_batch

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
# Not parsed from `spark_schema`: that needs a running Spark.
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
# `simpleString` names `long` bigint; the DDL uses the name that people write.
DDL_NAMES = {"bigint": "long"}


def ddl(schema: StructType) -> str:
    names = [
        field.dataType.simpleString().replace("struct<key:string,value:binary>", "struct<key string, value binary>")
        for field in schema
    ]
    return ", ".join(f"{field.name} {DDL_NAMES.get(name, name)}" for field, name in zip(schema, names, strict=True))


@pytest.mark.parametrize("include_headers", [False, True])
def test_the_arrow_schema_is_that_of_pyspark(include_headers: bool) -> None:
    expected = to_arrow_schema(SPARK_SCHEMAS[include_headers], timezone="UTC")

    assert arrow_schema(include_headers).equals(expected, check_metadata=True)
    assert str(arrow_schema(include_headers)) == str(expected)


@pytest.mark.parametrize("include_headers", [False, True])
def test_the_ddl_names_the_same_columns(include_headers: bool) -> None:
    # The integer of Spark's DDL is `int`, of its type IntegerType `int` as well.
    assert spark_schema(include_headers) == ddl(SPARK_SCHEMAS[include_headers])


@pytest.mark.parametrize("include_headers", [False, True])
def test_batches_have_the_schema(include_headers: bool) -> None:
    batch = to_record_batch("t", 0, [], include_headers)

    assert isinstance(batch, pa.RecordBatch)
    assert batch.schema.equals(arrow_schema(include_headers), check_metadata=True)


def test_the_reader_does_not_import_pyspark() -> None:
    program = "import sys, spark_groupsource.fetch.pure_consumer; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
