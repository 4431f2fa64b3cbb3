"""One Spark session for all tests, and a query that can be read back."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from benchmarks.spark_jars import jars_of_tests
from devtools.broker import Cluster
from devtools.checkpoints import without_processes
from spark_groupsource import register
from spark_groupsource.spark.durable_listener import ADDED
from tests.conftest import MakeTopic
from tests.harness.classes import quick_spark
from tests.support.pairs import MakePair, Timed, make_pair
from tests.support.producing import send
from tests.support.queries import Queries, Read
from tests.support.spark_process import JVM_OPTIONS
from tests.support.spark_sinks import Sink


@pytest.fixture(scope="session", autouse=True)
def _quick() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as environment:
        for name, value in quick_spark().items():
            environment.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark on two local cores. The source is found as it is installed."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = tmp_path_factory.mktemp("spark")
    # Spark's own Kafka source, to compare with; its formats for conf/registry.py; Iceberg, if there is one for this Spark. They
    # come last: with others before Spark's jars, as spark.driver.extraClassPath puts them, the archive of classes is not used.
    os.environ["SPARK_DIST_CLASSPATH"] = ":".join(f"{folder}/*" for folder in jars_of_tests())
    session = (
        SparkSession.builder.master("local[2]")
        .appName("spark_groupsource tests")
        .config("spark.ui.enabled", "false")
        # A test is over before the second compiler pays off: without it, a test takes a fifth less of the processor.
        .config("spark.driver.extraJavaOptions", JVM_OPTIONS)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config(*without_processes())
        .config("spark.sql.shuffle.partitions", "2")
        # How long a query with nothing to read pauses. After Spark's 10 ms it would ask its runner again all the time.
        .config("spark.sql.streaming.pollingDelay", "100ms")
        # A machine that stands still for 15 s, Spark's default, would end a query whose Python process has just connected.
        .config("spark.python.authenticate.socketTimeout", "2m")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.streaming.stopTimeout", "60s")
        .getOrCreate()
    )
    del os.environ["SPARK_DIST_CLASSPATH"]
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def listeners_go(request: pytest.FixtureRequest) -> Iterator[None]:
    """Remove what a test has added to the session: a listener closes the claims of later tests' queries, too."""
    spark: SparkSession | None = request.getfixturevalue("spark") if "spark" in request.fixturenames else None
    yield
    if spark is not None:
        queries = spark._jsparkSession.streams()
        for listener in queries.listListeners():
            queries.removeListener(listener)
        spark.conf.unset(ADDED)


@pytest.fixture
def queries(spark: SparkSession, tmp_path: Path, cluster: Cluster) -> Iterator[Queries]:
    """Starts queries, each with a checkpoint and a file sink of its own; stops those that still run."""
    running = Queries(spark, tmp_path, cluster.bootstrap_servers)
    yield running
    running.stop_all()


@pytest.fixture
def read(spark: SparkSession, cluster: Cluster) -> Read:
    """Reads a topic in the group that is named after it, or with Spark's own source in none."""

    def make(topic: str, schema: str | StructType | None = None, source: str = "groupkafka", **options: str) -> DataFrame:
        group = {"kafka.group.id": f"group-of-{topic}"} if source == "groupkafka" else {}
        given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic, **group, **options}
        reader = spark.read.format(source).options(**given)
        return (reader if schema is None else reader.schema(schema)).load()

    return make


@pytest.fixture
def pair(queries: Queries) -> MakePair:
    """Makes a query over Spark's source, and the same over this one."""
    return functools.partial(make_pair, queries)


@pytest.fixture(scope="module")
def timed(cluster: Cluster) -> Timed:
    """Writes records at given times (ms since 1970) into given partitions; a record's value is its time."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})

    def produce(topic: str, times: Mapping[int, Sequence[int]]) -> None:
        for partition, each in times.items():
            for time in each:
                send(producer, topic, str(time), partition=partition, timestamp=time)
        assert producer.flush(60) == 0

    return produce


@pytest.fixture
def sink(spark: SparkSession, cluster: Cluster, topic: MakeTopic, tmp_path: Path) -> Iterator[Sink]:
    register(spark)
    made = Sink(cluster, topic(3), tmp_path / "checkpoint")
    yield made
    made.stop()
