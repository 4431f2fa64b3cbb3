"""Topics with many partitions and few records in each: small ranges share tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession, functions
from pyspark.sql.streaming.query import StreamingQuery

from devtools.broker import Cluster
from spark_groupsource import register
from tests.conftest import MakeTopic, Produce

WIDTH = 40


class Wide:
    """A query over a wide topic. It notes each micro-batch's rows, with the task that has read them."""

    def __init__(self, spark: SparkSession, cluster: Cluster, topic: str, folder: Path) -> None:
        self.spark, self.cluster, self.topic = spark, cluster, topic
        self.checkpoint = str(folder / "checkpoint")
        self.tasks: list[int] = []
        self.rows: list[list[Row]] = []
        self.query: StreamingQuery | None = None

    def load(self, **more: str) -> DataFrame:
        return (
            self.spark.readStream.format("groupkafka")
            .option("kafka.bootstrap.servers", self.cluster.bootstrap_servers)
            .option("kafka.group.id", f"wide-{self.topic}")
            .option("subscribe", self.topic)
            .option("startingOffsets", "earliest")
            .options(**more)
            .load()
        )

    def run(self, *, fails: bool = False, **more: str) -> None:
        def note(frame: DataFrame, _: int) -> None:
            self.tasks.append(frame.rdd.getNumPartitions())
            self.rows.append(frame.withColumn("task", functions.spark_partition_id()).collect())
            if fails:
                raise RuntimeError("not yet")

        self.query = self.load(**more).writeStream.foreachBatch(note).option("checkpointLocation", self.checkpoint).start()
        self.query.processAllAvailable()
        self.query.stop()

    def stop(self) -> None:
        if self.query is not None:
            self.query.stop()


@pytest.fixture
def wide(spark: SparkSession, cluster: Cluster, topic: MakeTopic, produce: Produce, tmp_path: Path) -> Iterator[Wide]:
    """40 partitions; partition p has p % 7 + 1 records with their offsets as values."""
    register(spark)
    name = topic(WIDTH)
    for partition in range(WIDTH):
        produce(name, [(None, b"%d" % offset) for offset in range(partition % 7 + 1)], partition)
    made = Wide(spark, cluster, name, tmp_path)
    yield made
    made.stop()


EXPECTED = [(partition, offset) for partition in range(WIDTH) for offset in range(partition % 7 + 1)]


def read(rows: list[Row]) -> list[tuple[int, int]]:
    """Return partition and offset of each row, in the order of the partitions, and in the order of the rows of each."""
    assert all(int(row.value) == row.offset for row in rows)
    return sorted(((row.partition, row.offset) for row in rows), key=lambda each: each[0])


def test_forty_partitions_with_few_records_are_read_by_four_tasks(wide: Wide, produce: Produce) -> None:
    wide.run()
    assert wide.tasks == [4]
    assert read(wide.rows[0]) == EXPECTED
    assert len({row.task for row in wide.rows[0]}) == 4

    for partition in range(20):
        produce(wide.topic, [(None, b"%d" % (partition % 7 + 1))], partition)
    wide.run()
    assert wide.tasks == [4, 4]
    assert read(wide.rows[1]) == [(partition, partition % 7 + 1) for partition in range(20)]


def test_a_replay_is_cut_into_the_same_tasks_whatever_the_options_say_now(wide: Wide) -> None:
    with pytest.raises(StreamingQueryException, match="not yet"):
        wide.run(fails=True, minPartitions="30", maxRecordsPerPartition="6")
    wide.stop()
    wide.run(minPartitions="4", maxRecordsPerPartition="3")
    first, again = wide.rows[:2]
    assert wide.tasks[0] == wide.tasks[1] >= 30
    assert max(Counter(row.task for row in first).values()) <= 6
    assert read(first) == EXPECTED
    assert sorted(again) == sorted(first)
