"""Topics with many partitions and few records in each: small ranges share tasks."""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.sql import DataFrame, Row, functions

from tests.conftest import MakeTopic, Produce
from tests.support.queries import Queries

WIDTH = 40
EXPECTED = [(partition, offset) for partition in range(WIDTH) for offset in range(partition % 7 + 1)]


class Batches:
    """A sink that notes each micro-batch's rows, with the task that has read them, and may be down."""

    def __init__(self) -> None:
        self.tasks: list[int] = []
        self.rows: list[list[Row]] = []
        self.is_down = False

    def __call__(self, frame: DataFrame, _: int) -> None:
        self.tasks.append(frame.rdd.getNumPartitions())
        self.rows.append(frame.withColumn("task", functions.spark_partition_id()).collect())
        if self.is_down:
            raise RuntimeError("the sink is down")


@pytest.fixture
def wide(topic: MakeTopic, produce: Produce) -> str:
    """A topic with 40 partitions; partition p has p % 7 + 1 records with their offsets as values."""
    name = topic(WIDTH)
    for partition in range(WIDTH):
        produce(name, [(None, b"%d" % offset) for offset in range(partition % 7 + 1)], partition)
    return name


def add_to(topic: str, partitions: int, produce: Produce) -> list[tuple[int, int]]:
    """Write one more record to each of the first partitions; return their places."""
    for partition in range(partitions):
        produce(topic, [(None, b"%d" % (partition % 7 + 1))], partition)
    return [(partition, partition % 7 + 1) for partition in range(partitions)]


def read(rows: list[Row]) -> list[tuple[int, int]]:
    """Return partition and offset of each row, in the order of the partitions, and in the order of the rows of each."""
    assert all(int(row.value) == row.offset for row in rows)
    return sorted(((row.partition, row.offset) for row in rows), key=lambda each: each[0])


def test_forty_partitions_with_few_records_are_read_by_four_tasks(queries: Queries, wide: str, produce: Produce) -> None:
    batches = Batches()
    queries("a", wide).run(foreach_batch=batches)
    assert batches.tasks == [4]
    assert read(batches.rows[0]) == EXPECTED
    assert len({row.task for row in batches.rows[0]}) == 4

    added = add_to(wide, 20, produce)
    queries("a", wide).run(foreach_batch=batches)
    assert batches.tasks == [4, 4]
    assert read(batches.rows[1]) == added


def test_a_replay_has_the_same_ranges_in_the_same_tasks_whatever_came_and_whatever_the_options_say(
    queries: Queries, wide: str, produce: Produce
) -> None:
    batches = Batches()
    batches.is_down = True
    failing = queries("a", wide, minPartitions="30", maxRecordsPerPartition="6")
    assert "the sink is down" in failing.start(foreach_batch=batches).failure()
    added = add_to(wide, 20, produce)
    batches.is_down = False
    replaying = queries("a", wide, minPartitions="4", maxRecordsPerPartition="3").start(foreach_batch=batches)
    replaying.running.processAllAvailable()
    replaying.stop()
    first, again, later = batches.rows
    assert batches.tasks[0] == batches.tasks[1] >= 30
    assert max(Counter(row.task for row in first).values()) <= 6
    assert read(first) == EXPECTED
    assert sorted(again) == sorted(first)
    assert read(later) == added
