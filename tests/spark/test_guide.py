"""The first pipeline of docs/guide.md, from the empty topic to the rows."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from devtools.broker import Cluster
from tests.support.group_offsets import committed_offsets, end_offsets
from tests.support.page_programs import program


def test_the_first_pipeline_reads_what_was_produced_and_goes_on_when_it_is_started_again(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    ours = {"localhost:9092": cluster.bootstrap_servers, '"orders"': '"orders-of-the-guide"'}
    produce = program("docs/guide.md", "produce.py", ours)
    pipeline = program(
        "docs/guide.md",
        "pipeline.py",
        {
            **ours,
            '"billing")\n    .option': '"billing-of-the-guide")\n    .option',
            '"/data': f'"{tmp_path}',
            'processingTime="1 second"': "availableNow=True",
            ".getOrCreate()": ".getOrCreate().newSession()",  # which keeps the listener that `register` adds
        },
    )
    exec(produce, {})  # noqa: S102
    for _ in range(2):
        exec(pipeline, {})  # noqa: S102
    rows = spark.read.parquet(str(tmp_path / "orders-1")).collect()
    assert sorted(row["value"] for row in rows) == sorted(f"order {number}" for number in range(1000))
    group = committed_offsets(cluster, "billing-of-the-guide", "orders-of-the-guide")
    assert len(group) == 4
    assert group.items() <= end_offsets(cluster, "orders-of-the-guide").items()
