"""A query that runs until it is stopped: the records of a topic into Parquet files.

python orders.py OPTIONS CHECKPOINT OUTPUT

OPTIONS is a properties file with the options of the source.

On SIGTERM the query finishes its running micro-batch, confirms it, and leaves the group. Then no range waits for its checkpoint.
After 20 s it is interrupted instead, and the source has 6 s to leave; Spark waits for tasks as long as
spark.sql.streaming.stopTimeout says. If the process is killed, its next start reads the claimed ranges. spark-submit does not
pass SIGTERM on to the program: there the process is killed.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from spark_groupsource import await_termination, read_properties, register


def main() -> None:
    """Run until SIGTERM, or until the query fails."""
    options, checkpoint, output = sys.argv[1:]
    spark = SparkSession.builder.appName("orders").getOrCreate()
    register(spark)  # what Spark has finished is confirmed at once; and Databricks may need it to find the source
    columns = "key STRING, value STRING, partition INT, offset LONG, timestamp TIMESTAMP"
    orders = spark.readStream.format("groupkafka").schema(columns).options(**read_properties(options)).load()
    query = (
        orders.writeStream.format("parquet")
        .option("path", output)
        .option("checkpointLocation", checkpoint)
        .queryName("orders")
        .trigger(processingTime="10 seconds")
        .start()
    )
    await_termination(query)


if __name__ == "__main__":
    main()
