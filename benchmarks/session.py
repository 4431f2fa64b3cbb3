"""Opens a Spark session with four sources: Spark's own, and this one as it is, with the pure reader, and without reading."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from benchmarks.spark_jars import SPARK, spark_kafka_jars
from spark_groupsource.fetch import pure_consumer as pure
from spark_groupsource.fetch.choice import fetch
from spark_groupsource.fetch.shared import read_one_by_one
from spark_groupsource.options.model import Options
from spark_groupsource.spark.columns import requested
from spark_groupsource.spark.datasource import GroupKafkaDataSource
from spark_groupsource.spark.task import RangePartition, TaskReader
from spark_groupsource.spark.version_readers import AdmissionControlReader


class PureKafkaDataSource(GroupKafkaDataSource):
    """`groupkafka` with the pure reader."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "groupkafka_pure"

    def streamReader(self, schema: StructType) -> AdmissionControlReader:  # noqa: N802
        """Return the base class's reader, with a different way of reading."""
        return _PureStreamReader(Options.parse(self.options), requested(schema, include_headers=False))


class _PureStreamReader(AdmissionControlReader):
    def task_reader(self) -> TaskReader:
        return _PureTaskReader(self._fetch_settings)


class _PureTaskReader(TaskReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)  # noqa: S101
        return read_one_by_one(partition.ranges, self._settings, pure.read)


class CeilingDataSource(GroupKafkaDataSource):
    """`groupkafka` with tasks that read one batch from Kafka, and return it repeatedly until their range has its rows."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "groupkafka_ceiling"

    def streamReader(self, schema: StructType) -> AdmissionControlReader:  # noqa: N802
        """Return the base class's reader, with a different way of reading."""
        return _CeilingStreamReader(Options.parse(self.options), requested(schema, include_headers=False))


class _CeilingStreamReader(AdmissionControlReader):
    def task_reader(self) -> TaskReader:
        return _CeilingTaskReader(self._fetch_settings)


class _CeilingTaskReader(TaskReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)  # noqa: S101
        (offsets,) = partition.ranges
        ready = next(fetch(offsets, self._settings))
        for begin in range(offsets.start, offsets.end, ready.num_rows):
            yield ready.slice(0, offsets.end - begin)


UNSAFE_ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Java options with which Arrow checks neither bounds nor nulls on each access."""


def open_session(cores: int, folder: Path, java_options: str) -> SparkSession:
    """Start Spark on so many local cores; `folder` is for its files."""
    if pyspark.__version__ != SPARK:
        raise SystemExit(
            f"The jars of Spark's Kafka source are of {SPARK}; this is PySpark {pyspark.__version__}. Run: make bench"
        )
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # The workers import this package to read.
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    session = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("spark_groupsource benchmarks")
        .config("spark.driver.extraClassPath", f"{spark_kafka_jars()}/*")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.extraJavaOptions", java_options)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", str(cores))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.streaming.numRecentProgressUpdates", "100000")
        .getOrCreate()
    )
    # A query that fails raises an error. Stopping a query during a trickle would fill the screen.
    session.sparkContext.setLogLevel("FATAL")
    session.dataSource.register(GroupKafkaDataSource)
    session.dataSource.register(PureKafkaDataSource)
    session.dataSource.register(CeilingDataSource)
    return session
