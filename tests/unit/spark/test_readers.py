"""A stream with wrong options has a reader, which raises what is wrong whatever Spark asks first."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from spark_groupsource.errors import OptionError, SchemaError
from spark_groupsource.spark.datasource import GroupKafkaDataSource
from spark_groupsource.spark.readers import RefusedReader
from tests.support.options import BASE

VALUE = StructType([StructField("value", StringType())])

# The first call depends on Spark's version, on the trigger and on what the checkpoint has.
FIRST_CALLS: dict[str, Callable[[RefusedReader], object]] = {
    "a first start on Spark 4.1": lambda reader: reader.latestOffset(),
    "a first start": lambda reader: reader.initialOffset(),
    "a first start with a limit": lambda reader: reader.getDefaultReadLimit(),
    "an AvailableNow": lambda reader: reader.prepareForTriggerAvailableNow(),
    "a plan": lambda reader: reader.latestOffset({}, None),
    "a restart": lambda reader: reader.partitions({}, {}),
}


@pytest.mark.parametrize("first", FIRST_CALLS.values(), ids=FIRST_CALLS)
def test_the_first_call_raises_what_is_wrong(first: Callable[[RefusedReader], object]) -> None:
    reader = GroupKafkaDataSource({**BASE, "endingOffsets": "latest"}).streamReader(VALUE)
    assert isinstance(reader, RefusedReader)
    with pytest.raises(OptionError, match=r"^endingOffsets is for spark.read only"):
        first(reader)
    reader.stop()


def test_a_wrong_schema_is_refused_by_it_too() -> None:
    reader = GroupKafkaDataSource(BASE).streamReader(StructType([StructField("valu", StringType())]))
    with pytest.raises(SchemaError, match=r"^There is no column valu\."):
        reader.initialOffset()
