"""Write the records of a topic to Parquet files until the query is stopped.

python orders.py OPTIONS CHECKPOINT OUTPUT

OPTIONS is a properties file with the options of the source.

On SIGTERM the query finishes its running micro-batch, confirms it, and leaves the group, so it leaves no range claimed. If the
micro-batch takes longer than 20 s, it is interrupted, and the source has 6 s to leave the group. Spark waits for tasks for up to
spark.sql.streaming.stopTimeout. If the process is killed, its next start reads the claimed ranges. spark-submit does not pass
SIGTERM on to the program, so under spark-submit the process is killed.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from spark_groupsource import await_termination, read_properties, register


def main() -> None:
    """Run until SIGTERM, or until the query fails."""
    options, checkpoint, output = sys.argv[1:]
    spark = SparkSession.builder.appName("orders").getOrCreate()
    register(spark)  # confirms finished micro-batches immediately; Databricks may need it to find the source
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
