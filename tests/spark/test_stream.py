"""A query as a member of its group: what it reads, what it commits, and where it goes on."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from devtools.broker import Cluster
from tests.conftest import MakeTopic, Produce
from tests.support.group_offsets import committed_offsets, total_lag
from tests.support.producing import numbered
from tests.support.queries import Queries, needs_admission_control
from tests.support.waiting import until


def test_an_idle_query_shows_no_lag(queries: Queries, topic: MakeTopic, produce: Produce, cluster: Cluster) -> None:
    name = topic(partitions=3)
    produce(name, numbered(100))
    pipeline = queries("a", name)
    assert len(pipeline.run()) == 100
    produce(name, numbered(50))
    pipeline.start()
    pipeline.until_rows(150)
    until(lambda: total_lag(cluster, f"group-of-{name}", name) == 0, "lag 0 while the query is idle")
    assert sum(committed_offsets(cluster, f"group-of-{name}", name).values()) == 150
    pipeline.stop()


def test_a_batch_that_failed_is_replayed_with_exactly_its_ranges(
    queries: Queries, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    name = topic(partitions=2)
    produce(name, numbered(20), partition=0)
    produce(name, numbered(10), partition=1)
    seen: dict[str, list[tuple[int, int]]] = {}

    def fail_first(frame: DataFrame, batch: int) -> None:
        rows = sorted((row.partition, row.offset) for row in frame.collect())
        seen.setdefault(f"first {batch}", rows)
        raise RuntimeError("the sink is down")

    def succeed(frame: DataFrame, batch: int) -> None:
        seen[f"second {batch}"] = sorted((row.partition, row.offset) for row in frame.collect())

    pipeline = queries("a", name)
    pipeline.start(foreach_batch=fail_first)
    assert "the sink is down" in pipeline.failure()
    produce(name, numbered(7), partition=0)
    pipeline.start(foreach_batch=succeed)
    until(lambda: "second 1" in seen, "the batch after the replay")
    pipeline.stop()
    assert seen["first 0"] == [(0, offset) for offset in range(20)] + [(1, offset) for offset in range(10)]
    assert seen["second 0"] == seen["first 0"]
    assert seen["second 1"] == [(0, offset) for offset in range(20, 27)]


@needs_admission_control
def test_available_now_respects_the_limit_and_ends_at_what_was_there(
    queries: Queries, topic: MakeTopic, produce: Produce, cluster: Cluster
) -> None:
    name = topic()
    produce(name, numbered(15))
    batches: list[int] = []

    def collect(frame: DataFrame, batch: int) -> None:
        batches.append(frame.count())
        produce(name, numbered(3))

    queries("a", name, maxOffsetsPerTrigger="5").run(foreach_batch=collect)
    assert batches == [5, 5, 5]
    assert total_lag(cluster, f"group-of-{name}", name) == 9


@needs_admission_control
def test_progress_tells_lag_and_the_generation(queries: Queries, topic: MakeTopic, produce: Produce) -> None:
    name = topic(partitions=2)
    produce(name, numbered(10), partition=0)
    produce(name, numbered(10), partition=1)
    pipeline = queries("a", name, maxOffsetsPerTrigger="4")
    pipeline.run()
    progress = [one for one in pipeline.running.recentProgress if one.numInputRows]
    assert [one.numInputRows for one in progress] == [4, 4, 4, 4, 4]
    first = progress[0].sources[0]
    end = json.loads(first.endOffset)
    assert re.fullmatch(r"org\.apache\.spark\.sql\.[\w.]+\.PythonMicroBatchStream\w*@[0-9a-f]+", first.description)
    assert end["group"] == f"group-of-{name}"
    assert end["generation"] >= 1
    assert end["plan"] == 0
    assert end["ranges"] == {name: {"0": [[0, 2]], "1": [[0, 2]]}}
    assert json.loads(first.latestOffset) == {
        "offsets": {name: {"0": 10, "1": 10}},
        "lag": {name: {"0": 10, "1": 10}},
        "totalLag": 20,
        "held": {},
        "totalHeld": 0,
    }


def test_a_wrong_option_fails_at_load(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="startingOffset"):
        spark.readStream.format("groupkafka").option("startingOffset", "earliest").load().printSchema()
