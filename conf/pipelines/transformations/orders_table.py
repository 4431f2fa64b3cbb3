"""The table `orders`: the records of a consumer group, each once."""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from spark_groupsource import read_properties


# A full refresh would empty the table, but it would not reset the group to the first record.
@dp.table(table_properties={"pipelines.reset.allowed": "false"})
def orders() -> DataFrame:
    """Return the records that the group has not read yet. The options are in the folder of spark-pipeline.yml."""
    stream = SparkSession.active().readStream.format("groupkafka")
    records = stream.options(**read_properties("orders.properties")).load()
    return records.selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value", "partition", "offset", "timestamp")
