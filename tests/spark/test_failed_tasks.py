"""A task fails as often as Spark allows: the query ends, its ranges wait for it, and what docs/operations.md says is so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from click.testing import CliRunner
from pyspark.sql import DataFrame

from devtools.broker import Cluster
from spark_groupsource.cli.main import main
from tests.conftest import MakeTopic, Produce
from tests.support.queries import Queries


def test_a_query_whose_task_fails_keeps_its_ranges_for_its_restart_while_another_reads_on(
    queries: Queries, topic: MakeTopic, produce: Produce, cluster: Cluster, tmp_path: Path
) -> None:
    name, broken = topic(partitions=2), tmp_path / "broken"
    broken.touch()

    def fails_at_record_7(batches: Iterator[object]) -> Iterator[object]:
        for batch in batches:
            yield batch
            if broken.exists() and 7 in batch.column("offset").to_pylist():  # type: ignore[attr-defined]
                raise ValueError("record 7 is not understood")

    def read(frame: DataFrame) -> DataFrame:
        return frame.select("partition", "offset").mapInArrow(fails_at_record_7, "partition INT, offset LONG")

    produce(name, [(None, "x")] * 10, 0)
    produce(name, [(None, "x")] * 5, 1)
    a, b = queries("a", name), queries("b", name)
    a.transform = read

    assert "record 7 is not understood" in a.start().failure()
    a.stop()
    listed = ["claims", "--bootstrap-server", cluster.bootstrap_servers, "--group", f"group-of-{name}", "--json"]
    claims = json.loads(CliRunner().invoke(main, listed).stdout)["claims"]
    assert sorted((claim["partition"], claim["start"], claim["end"]) for claim in claims) == [(0, 0, 10), (1, 0, 5)]

    for partition in range(2):
        produce(name, [(None, "x")] * 3, partition)
    b.run()
    assert b.offsets() == [(0, 10), (0, 11), (0, 12), (1, 5), (1, 6), (1, 7)]

    broken.unlink()
    a.run()
    assert a.offsets() == [(0, offset) for offset in range(10)] + [(1, offset) for offset in range(5)]
