"""The ways of docs/guide.md to write to Iceberg, each record once. Iceberg has jars for Spark 4.0 and 4.1.

`make test-iceberg` runs this on 4.1.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.spark_jars import iceberg_jars
from tests.conftest import MakeTopic, Produce
from tests.support.page_programs import program
from tests.support.queries import Queries
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(iceberg_jars() is None, reason="Iceberg has jars for Spark 4.0 and 4.1 only")

WAYS = ("append.py", "iceberg.py", "merge.py")


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """The session, with the guide's catalog `lake`."""
    spark.conf.set("spark.sql.catalog.lake.type", "hadoop")
    spark.conf.set("spark.sql.catalog.lake.warehouse", str(tmp_path_factory.mktemp("lake")))
    spark.conf.set("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
    return spark


class Table:
    """A table of records, and the queries that write to it in one of the guide's ways."""

    def __init__(self, spark: SparkSession, way: str) -> None:
        self._spark = spark
        self._way = way
        self.name = f"lake.shop.{way.removesuffix('.py')}"
        spark.sql(f"CREATE TABLE {self.name} (topic STRING, partition INT, offset BIGINT, value STRING) USING iceberg")

    def start(self, name: str, orders: DataFrame, checkpoint: Path) -> StreamingQuery:
        """Run the guide's program, under this name and on this checkpoint."""
        named = {'"billing-1"': f'"{name}"'} if self._way == "iceberg.py" else {}
        ours = {"lake.shop.orders": self.name, "/data/checkpoints/billing-1": str(checkpoint)}
        code = program("docs/guide.md", self._way, {**named, **ours})
        before = {query.id for query in self._spark.streams.active}
        exec(code, {"orders": orders.selectExpr("topic", "partition", "offset", "CAST(value AS STRING) AS value")})  # noqa: S102
        (started,) = (query for query in self._spark.streams.active if query.id not in before)
        return started

    def rows(self) -> list[tuple[int, int]]:
        """Return (partition, offset) of every row, sorted; duplicates are kept."""
        self._spark.sql(f"REFRESH TABLE {self.name}")  # foreachBatch writes in a session of its own
        return sorted((row.partition, row.offset) for row in self._spark.table(self.name).collect())

    def compact(self) -> None:
        """Rewrite the files of the table into one, which is a snapshot of its own."""
        call = f"CALL lake.system.rewrite_data_files(table => '{self.name}', options => map('min-input-files', '2'))"
        (done,) = self._spark.sql(call).collect()
        assert done.rewritten_data_files_count > 1


def newest(log: Path) -> int:
    """Return the number of the newest micro-batch in Spark's offset log or commit log."""
    return max((int(file.name) for file in log.glob("[0-9]*")), default=-1)


def records(count: int) -> list[tuple[int, int]]:
    """Return so many offsets of each of two partitions."""
    return [(partition, offset) for partition in range(2) for offset in range(count)]


@pytest.mark.parametrize("way", WAYS)
def test_a_micro_batch_that_is_run_again_is_in_the_table_once_whatever_was_written_in_between(
    lake: SparkSession, queries: Queries, topic: MakeTopic, produce: Produce, tmp_path: Path, way: str
) -> None:
    name = topic(partitions=2)
    orders = queries("options", name).load()
    table = Table(lake, way)
    offsets, commits = (tmp_path / "A" / log for log in ("offsets", "commits"))

    def write(count: int) -> None:
        for partition in range(2):
            produce(name, [(None, "v")] * count, partition)

    def has(count: int) -> None:
        until(lambda: table.rows() == records(count), f"{count} records of each partition are in the table", timeout_s=180)

    write(5)
    crashing = table.start("A", orders, tmp_path / "A")
    has(5)
    until(lambda: newest(commits) == newest(offsets), "the last micro-batch is done")
    # The sink gets the next micro-batch, and Spark's commit log does not.
    torn = commits / str(newest(commits) + 1)
    torn.mkdir()
    write(5)
    with pytest.raises(StreamingQueryException, match="CONCURRENT_STREAM_LOG_UPDATE"):
        crashing.awaitTermination(180)
    assert len(table.rows()) > 10
    torn.rmdir()

    # Another query goes on behind the claimed ranges. Its micro-batches have the same numbers.
    write(3)
    other = table.start("B", orders, tmp_path / "B")
    has(13)
    until(lambda: newest(tmp_path / "B" / "commits") >= 0, "a micro-batch of the other query is done")
    other.stop()
    table.compact()

    restarted = table.start("A", orders, tmp_path / "A")
    until(torn.exists, "the micro-batch is run again", timeout_s=180)
    assert table.rows() == records(13)
    write(2)
    has(15)
    restarted.stop()
