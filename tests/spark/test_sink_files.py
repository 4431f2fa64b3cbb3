"""The sink behind files: Spark cuts them by the number of cores, unless a setting says into how many tasks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from devtools.broker import Cluster
from spark_groupsource import register
from tests.conftest import MakeTopic
from tests.support.spark_sinks import Sink

CORES = "spark.sql.leafNodeDefaultParallelism"
"""What Spark takes the number of cores for if it is not set."""


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session of its own settings."""
    register(spark)
    yield spark
    for name in (CORES, "spark.sql.files.minPartitionNum"):
        spark.conf.unset(name)


@pytest.mark.parametrize("fixed", [pytest.param(False, marks=pytest.mark.long), True])
def test_files_are_cut_alike_on_another_number_of_cores_only_with_a_setting(
    session: SparkSession, cluster: Cluster, topic: MakeTopic, tmp_path: Path, fixed: bool
) -> None:
    files = tmp_path / "lines"
    files.mkdir()
    for number in range(8):
        (files / f"{number}.txt").write_text("\n".join(f"{number}-{line}" for line in range(10)))
    if fixed:
        session.conf.set("spark.sql.files.minPartitionNum", "3")
    sink = Sink(cluster, topic(1), tmp_path / "checkpoint")
    session.conf.set(CORES, "2")
    sink.run(session.readStream.text(str(files)))
    sink.forget_newest_commit()
    session.conf.set(CORES, "4")
    lines = session.readStream.text(str(files))
    if fixed:
        sink.run(lines)
        assert sink.written() == sorted(f"{number}-{line}" for number in range(8) for line in range(10))
    else:
        with pytest.raises(StreamingQueryException, match="ReplayDiffers"):
            sink.run(lines)
    sink.stop()
