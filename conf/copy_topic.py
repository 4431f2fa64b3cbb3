"""A query that copies a topic into another, exactly once, until it is stopped.

python copy_topic.py SOURCE SINK CHECKPOINT

SOURCE and SINK are properties files with the options of the source and of the sink. Start it twice, each with a checkpoint of its
own, and the two share the topic. Kill either at any time and start it again: a reader with isolation.level=read_committed finds
each record once.

On SIGTERM the query stops between two micro-batches, or leaves one half written for its next start.
"""

from __future__ import annotations

import signal
import sys
import threading
import time

from pyspark.sql import SparkSession

from spark_groupsource import read_properties, register


def main() -> None:
    """Run until SIGTERM, or until the query fails."""
    source, sink, checkpoint = sys.argv[1:]
    stopping: list[int] = []  # not an Event: its `set` can wait for ever for a lock that the interrupted thread holds
    if threading.current_thread() is threading.main_thread():  # other threads cannot set signal handlers
        signal.signal(signal.SIGTERM, lambda number, _frame: stopping.append(number))
    spark = SparkSession.builder.appName("copy").getOrCreate()
    register(spark)
    records = spark.readStream.format("groupkafka").options(**read_properties(source)).load()
    query = (
        records.select("key", "value")
        .writeStream.format("groupkafka")
        .options(**read_properties(sink))
        .option("checkpointLocation", checkpoint)
        .queryName("copy")
        .start()
    )
    while query.isActive and not stopping:
        time.sleep(1)
    if not stopping:
        query.awaitTermination()  # raises the query's error
    query.stop()


if __name__ == "__main__":
    main()
