"""Spark's own 10 s for a query's Python process: what docs/errors.md says of the error, and what to do, is so."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from devtools.broker import Cluster
from spark_groupsource import GroupKafkaDataSource
from tests.conftest import MakeTopic, Produce
from tests.support.group_offsets import committed_offsets

ENDED_LIMIT_S = 120

# The python that Spark starts. While `slow` exists, a runner takes longer to start than Spark waits.
PYTHON = """#!/bin/sh
case "$*" in *python_streaming_source_runner*) [ ! -e '{slow}' ] || exec sleep 15;; esac
exec '{python}' "$@"
"""


class SlowDataSource(GroupKafkaDataSource):
    """`groupkafka` with another name, which a test registers with another python."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "groupkafka_slow"


def test_a_query_whose_runner_starts_too_slowly_for_spark_has_joined_nothing_and_starts_again(
    spark: SparkSession,
    cluster: Cluster,
    topic: MakeTopic,
    produce: Produce,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = topic()
    produce(name, [(None, b"%d" % number) for number in range(5)])
    python, slow = tmp_path / "python", tmp_path / "slow"
    python.write_text(PYTHON.format(slow=slow, python=sys.executable))
    python.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
    spark.dataSource.register(SlowDataSource)
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "kafka.group.id": name, "subscribe": name}
    frame = spark.readStream.format("groupkafka_slow").options(**options, startingOffsets="earliest").load()

    def start() -> StreamingQuery:
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.trigger(availableNow=True).start(str(tmp_path / "out"))

    slow.touch()
    with pytest.raises(StreamingQueryException, match="Python worker failed to connect back"):
        start().awaitTermination(ENDED_LIMIT_S)
    assert committed_offsets(cluster, name, name) == {}

    slow.unlink()
    assert start().awaitTermination(ENDED_LIMIT_S)
    assert sorted(int(row.value) for row in spark.read.parquet(str(tmp_path / "out")).collect()) == list(range(5))
