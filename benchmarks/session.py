"""One Spark session with Spark's own Kafka source in it, and this one twice: as it is, and with the pure reader."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from spark_groupsource.broker.ivy import Dependency, run_ivy
from spark_groupsource.broker.jars import default_cache
from spark_groupsource.broker.java import find_java
from spark_groupsource.datasource import GroupKafkaDataSource
from spark_groupsource.fetch import pure
from spark_groupsource.options import Options
from spark_groupsource.stream_reader import GroupKafkaStreamReader, RangePartition

SPARK = "4.2.0"
# The last version of the token provider in the repository is that of 4.0.0.
_JARS = (
    Dependency("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK, transitive=False),
    Dependency("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0", transitive=False),
    Dependency("org.apache.kafka", "kafka-clients", "3.9.2", transitive=False),
    Dependency("org.apache.commons", "commons-pool2", "2.12.1", transitive=False),
)


class PureKafkaDataSource(GroupKafkaDataSource):
    """`groupkafka` with the pure reader."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "groupkafka_pure"

    def streamReader(self, schema: StructType) -> GroupKafkaStreamReader:  # noqa: ARG002, N802
        """As the base class does."""
        return _PureStreamReader(Options.parse(self.options))


class _PureStreamReader(GroupKafkaStreamReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)  # noqa: S101
        return pure.read(partition.offsets, self._fetch_settings)


def open_session(cores: int, folder: Path) -> SparkSession:
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
        .config("spark.driver.extraClassPath", f"{_kafka_jars()}/*")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", str(cores))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.streaming.numRecentProgressUpdates", "100000")
        .getOrCreate()
    )
    # A query that fails raises; one that is stopped in a trickle would fill the screen.
    session.sparkContext.setLogLevel("FATAL")
    session.dataSource.register(GroupKafkaDataSource)
    session.dataSource.register(PureKafkaDataSource)
    return session


def _kafka_jars() -> Path:
    """The folder with the jars of Spark's Kafka source, resolved at the first run."""
    target = default_cache().parent / f"spark-kafka-{SPARK}"
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        partial = Path(name)
        jars = partial / "jars"
        jars.mkdir()
        with open(partial / "ivy.log", "w", encoding="utf-8") as log:
            answer = run_ivy(find_java(), _JARS, partial, jars, log, lambda line: print(line, file=sys.stderr))
        if not answer.succeeded:
            raise SystemExit(f"The jars of Spark's Kafka source cannot be resolved: {'; '.join(answer.unresolved)}")
        jars.rename(target)
    return target
