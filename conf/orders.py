"""A query that runs until it is stopped: the records of a topic into Parquet files.

python orders.py OPTIONS CHECKPOINT OUTPUT

OPTIONS is a properties file with the options of the source.

On SIGTERM the query drains: it writes what it has claimed, and everything that is available, and confirms it. Then no range
waits for its checkpoint. If the process is killed instead, its next start reads the claimed ranges. spark-submit does not pass
SIGTERM on to the program: there the process is killed.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_groupsource import read_properties, register


def start(orders: DataFrame, checkpoint: str, output: str, **trigger: Any) -> StreamingQuery:
    """Start the query, or start it again on its checkpoint."""
    writer = orders.writeStream.format("parquet").option("path", output).option("checkpointLocation", checkpoint)
    return writer.queryName("orders").trigger(**trigger).start()


def main() -> None:
    """Run until SIGTERM, or until the query fails."""
    options, checkpoint, output = sys.argv[1:]
    stopping: list[int] = []  # not an Event: its `set` can wait for ever for a lock that the interrupted thread holds
    if threading.current_thread() is threading.main_thread():  # other threads cannot set signal handlers
        signal.signal(signal.SIGTERM, lambda number, _frame: stopping.append(number))
    spark = SparkSession.builder.appName("orders").getOrCreate()
    register(spark)  # what Spark has finished is confirmed at once; and Databricks may need it to find the source
    columns = "key STRING, value STRING, partition INT, offset LONG, timestamp TIMESTAMP"
    orders = spark.readStream.format("groupkafka").schema(columns).options(**read_properties(options)).load()
    query = start(orders, checkpoint, output, processingTime="10 seconds")
    while query.isActive and not stopping:
        time.sleep(1)
    if not stopping:
        query.awaitTermination()  # raises the query's error
    query.stop()
    start(orders, checkpoint, output, availableNow=True).awaitTermination()


if __name__ == "__main__":
    main()
