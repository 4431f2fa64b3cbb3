"""A query as a member of its group: what it reads, what it commits, and what its progress shows."""

from __future__ import annotations

import json
import re

from pyspark.sql import DataFrame

from devtools.broker import Cluster
from tests.conftest import MakeTopic, Produce
from tests.support.group_offsets import committed_offsets, total_lag
from tests.support.producing import numbered
from tests.support.queries import Queries, needs_admission_control
from tests.support.waiting import until


def test_an_idle_query_shows_no_lag(queries: Queries, topic: MakeTopic, produce: Produce, cluster: Cluster) -> None:
    name = topic(partitions=3)
    produce(name, numbered(100))
    pipeline = queries("a", name).start()
    pipeline.until_rows(100)
    until(lambda: total_lag(cluster, f"group-of-{name}", name) == 0, "lag 0 while the query is idle")
    assert sum(committed_offsets(cluster, f"group-of-{name}", name).values()) == 100
    pipeline.stop()


@needs_admission_control
def test_available_now_respects_the_limit_ends_at_what_was_there_and_tells_lag_and_the_generation(
    queries: Queries, topic: MakeTopic, produce: Produce, cluster: Cluster
) -> None:
    name = topic(partitions=2)
    for partition in range(2):
        produce(name, numbered(10), partition)
    batches: list[int] = []

    def collect(frame: DataFrame, _: int) -> None:
        batches.append(frame.count())
        produce(name, numbered(3), 0)

    pipeline = queries("a", name, maxOffsetsPerTrigger="4")
    pipeline.run(foreach_batch=collect)
    assert batches == [4, 4, 4, 4, 4]
    assert total_lag(cluster, f"group-of-{name}", name) == 15

    first = next(one for one in pipeline.running.recentProgress if one.numInputRows).sources[0]
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
