"""Copy a topic to another topic, exactly once, until the query is stopped.

python copy_topic.py SOURCE SINK CHECKPOINT

SOURCE and SINK are properties files with the options of the source and of the sink. If you start the program twice, each
time with its own checkpoint, the two queries share the topic. You can kill either at any time and restart it: a consumer with
isolation.level=read_committed finds each record once.

On SIGTERM the query finishes its running micro-batch, confirms it, and leaves the group.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from spark_groupsource import await_termination, read_properties, register


def main() -> None:
    """Run until SIGTERM, or until the query fails."""
    source, sink, checkpoint = sys.argv[1:]
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
    await_termination(query)


if __name__ == "__main__":
    main()
