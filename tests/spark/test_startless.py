"""Real queries whose source is asked as Spark 4.0 and 4.1 ask: `latestOffset()`, without a start and without a limit.

Later versions of Spark still do that for a reader whose `latestOffset` takes nothing, so these tests run on all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from devtools.broker import Cluster
from spark_groupsource.options.model import Options
from spark_groupsource.spark.datasource import GroupKafkaDataSource
from spark_groupsource.spark.version_readers import StartlessReader
from tests.conftest import MakeTopic, Produce
from tests.support.group_offsets import total_lag
from tests.support.producing import numbered
from tests.support.queries import Pipeline, Queries, setting
from tests.support.waiting import until

WRAPPER = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"

StartlessQuery = Callable[..., Pipeline]


@pytest.fixture
def armed(tmp_path: Path) -> Path:
    """While this file exists, the next micro-batch fails before its ranges are claimed; that removes the file."""
    return tmp_path / "armed"


@pytest.fixture
def startless(spark: SparkSession, queries: Queries, armed: Path) -> StartlessQuery:
    """As `queries`, at most five offsets in a micro-batch."""

    # Classes of a function reach Spark's Python processes by value: those cannot import the tests.
    class Reader(StartlessReader):
        def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
            if start != end and armed.exists():
                armed.unlink()
                raise RuntimeError("before the claim")
            return super().partitions(start, end)

    class Source(GroupKafkaDataSource):
        @classmethod
        def name(cls) -> str:
            return "groupkafka_startless"

        def streamReader(self, schema: StructType) -> StartlessReader:  # noqa: ARG002, N802
            return Reader(Options.parse(self.options, "stream"))

    spark.dataSource.register(Source)

    def make(topic: str) -> Pipeline:
        pipeline = queries("a", topic, maxOffsetsPerTrigger="5")
        pipeline.format = Source.name()
        return pipeline

    return make


class Batches:
    """A sink that keeps the offsets of each micro-batch, and may be down."""

    def __init__(self) -> None:
        self.offsets: dict[int, list[int]] = {}
        self.is_down = False

    def __call__(self, frame: DataFrame, batch: int) -> None:
        read = sorted(row.offset for row in frame.collect())
        if self.is_down:
            raise RuntimeError("the sink is down")
        self.offsets[batch] = read


def test_each_micro_batch_keeps_to_the_limit_and_a_restart_goes_on_behind_them(
    startless: StartlessQuery, topic: MakeTopic, produce: Produce, cluster: Cluster
) -> None:
    name = topic()
    query, batches = startless(name), Batches()
    query.start(foreach_batch=batches)
    until(lambda: batches.offsets == {0: []}, "the batch of the empty topic")
    query.stop()
    for total in (13, 26):
        produce(name, numbered(13))
        query.start(foreach_batch=batches)
        until(lambda total=total: sum(map(len, batches.offsets.values())) >= total, f"{total} records")  # type: ignore[misc]
        until(lambda: total_lag(cluster, f"group-of-{name}", name) == 0, "lag 0 while the query is idle")
        query.stop()
    assert list(batches.offsets.values()) == [
        [],
        [*range(5)],
        [*range(5, 10)],
        [*range(10, 13)],
        [*range(13, 18)],
        [*range(18, 23)],
        [*range(23, 26)],
    ]


def test_a_run_of_available_now_is_one_micro_batch_and_the_next_run_confirms_it(
    startless: StartlessQuery, spark: SparkSession, topic: MakeTopic, produce: Produce, cluster: Cluster
) -> None:
    """Spark's wrapper for it is refused on a restart."""
    name = topic()
    produce(name, numbered(7))
    query, batches = startless(name), Batches()

    def run() -> tuple[dict[int, list[int]], int]:
        query.run(foreach_batch=batches)
        return dict(batches.offsets), total_lag(cluster, f"group-of-{name}", name)

    first, second = {0: [*range(5)]}, {0: [*range(5)], 1: [5, 6]}
    assert run() == (first, 7)
    with setting(spark, WRAPPER, "true"):
        query.start(foreach_batch=batches, availableNow=True)
        assert WRAPPER in query.failure()
    assert [run(), run()] == [(second, 2), (second, 0)]


@pytest.mark.parametrize(("failing", "place"), [(0, "the sink is down"), (1, "before the claim")])
def test_a_batch_that_failed_is_replayed_with_what_it_had_claimed(
    startless: StartlessQuery,
    topic: MakeTopic,
    produce: Produce,
    cluster: Cluster,
    armed: Path,
    failing: int,
    place: str,
) -> None:
    name = topic()
    produce(name, numbered(3))
    query, batches = startless(name), Batches()
    if failing:
        query.start(foreach_batch=batches)
        until(lambda: total_lag(cluster, f"group-of-{name}", name) == 0, "the first batch is confirmed")
        query.stop()
        produce(name, numbered(3))
    if place == "before the claim":
        armed.touch()
    else:
        batches.is_down = True
    query.start(foreach_batch=batches)
    assert place in query.failure()
    batches.is_down = False
    produce(name, numbered(6))
    query.start(foreach_batch=batches)
    until(lambda: sum(map(len, batches.offsets.values())) >= 9 + 3 * failing, "everything")
    query.stop()
    claimed = [] if place == "before the claim" else [*range(3 * failing, 3 * failing + 3)]
    assert batches.offsets[failing] == claimed
    assert [one for _, read in sorted(batches.offsets.items()) for one in read] == [*range(9 + 3 * failing)]
