"""Streaming queries under test: the source on one side, files that can be read back on the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark
import pytest
from chispa import assert_df_equality
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from devtools.broker import Cluster
from devtools.demo.count import committed_files
from spark_groupsource.spark.datasource import ADMISSION_CONTROL
from tests.support.group_offsets import total_lag
from tests.support.sinks import written
from tests.support.waiting import until

needs_admission_control = pytest.mark.skipif(
    not ADMISSION_CONTROL,
    reason="Spark before 4.2 makes one micro-batch of AvailableNow and Once, and asks a source for no lag",
)

plans_a_batch_read_once = pytest.mark.skipif(
    pyspark.__version__.startswith("4.0."), reason="Spark 4.0 plans a batch read anew for each action on its DataFrame"
)


def all_confirmed(cluster: Cluster, group: str, topic: str) -> bool:
    """Return whether a group shows no lag after AvailableNow; before Spark 4.2 the next run confirms the last micro-batch."""
    return not ADMISSION_CONTROL or total_lag(cluster, group, topic) == 0


def assert_same_rows(expected: DataFrame, found: DataFrame) -> list[Row]:
    """Fail unless both have the same schema and the same rows, each as often, in any order; return the rows, sorted."""
    assert_df_equality(found, expected, ignore_row_order=True)
    return sorted(found.collect(), key=repr)


def assert_rows(found: DataFrame, expected: Iterable[tuple[Any, ...]]) -> None:
    """Fail unless the DataFrame has exactly these rows, in any order."""
    assert_df_equality(found, found.sparkSession.createDataFrame(list(expected), found.schema), ignore_row_order=True)


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Set a setting of the session, and unset it at the end."""
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.unset(name)


NO_WORKER = "Python worker failed to connect back"
"""A query may end with it right after a start: Spark waits for 10 s at most, and the machine has too much to do."""

BatchFunction = Callable[[DataFrame, int], None]
Read = Callable[..., DataFrame]
"""Makes a batch read of a topic."""
Transform = Callable[[DataFrame], DataFrame]


def as_it_is(frame: DataFrame) -> DataFrame:
    return frame


def is_spark_55271(spark: SparkSession, failed: StreamingQueryException) -> bool:
    """Whether it is a bug of Spark 4.1: its own Kafka source fails once a replayed micro-batch is in the commit log."""
    return spark.version.startswith("4.1") and "scala.Option.get()" in str(failed)


@dataclass
class Pipeline:
    """One checkpoint and one file sink: a query that is started, stopped and started again."""

    spark: SparkSession
    folder: Path
    options: Mapping[str, str]
    query: StreamingQuery | None = None
    format: str = "groupkafka"
    transform: Transform = as_it_is
    schema: str | None = None
    given: Mapping[str, Any] = field(default_factory=dict)
    """What the last start was given."""

    def load(self) -> DataFrame:
        reader = self.spark.readStream.format(self.format).options(**self.options)
        return self.transform((reader.schema(self.schema) if self.schema else reader).load())

    def start(self, *, foreach_batch: BatchFunction | None = None, **trigger: Any) -> Pipeline:
        self.given = {"foreach_batch": foreach_batch, **trigger}
        writer = self.load().writeStream.option("checkpointLocation", str(self.folder / "checkpoint"))
        if trigger:
            writer = writer.trigger(**trigger)
        if foreach_batch is not None:
            self.query = writer.foreachBatch(foreach_batch).start()
        else:
            self.query = writer.format("parquet").option("path", str(self.folder / "out")).start()
        return self

    def run(self, **more: Any) -> list[Row]:
        """Run to the end of what is there now (AvailableNow), and return all rows that the sink has."""
        self.start(availableNow=True, **more)
        self.finish()
        return self.rows()

    def finish(self) -> None:
        """Wait until the query ends on its own, and raise its error."""
        try:
            self.running.awaitTermination()
        except StreamingQueryException as error:
            if NO_WORKER not in str(error):
                raise
            self.start(**self.given)
            self.running.awaitTermination()

    @property
    def running(self) -> StreamingQuery:
        assert self.query is not None
        return self.query

    def stop(self) -> None:
        self.running.stop()
        self.query = None

    def frame(self) -> DataFrame:
        """Return the rows that the sink has committed."""
        files = [str(file) for file in committed_files(self.folder / "out")]
        schema = self.load().schema
        return self.spark.read.schema(schema).parquet(*files) if files else self.spark.createDataFrame([], schema)

    def rows(self) -> list[Row]:
        """Return all rows that the sink has committed, in no particular order."""
        return self.frame().collect()

    def offsets(self) -> list[tuple[int, int]]:
        """Return (partition, offset) of every row in the sink, sorted; duplicates are kept."""
        return written(self.folder / "out")

    def until_rows(self, count: int) -> None:
        """Wait until the sink has at least so many rows; fail with the query's own error when it ends."""

        def enough() -> bool:
            self.raise_if_ended()
            return len(self.offsets()) >= count

        until(enough, f"{count} rows in the sink", timeout_s=180)

    def raise_if_ended(self) -> None:
        if self.query is not None and not self.query.isActive and (error := self.query.exception()) is not None:
            raise error

    def failure(self) -> str:
        """Wait for the query to fail, and return its message."""
        try:
            self.finish()
        except StreamingQueryException as error:
            return str(error)
        raise AssertionError("the query did not fail")


class Queries:
    """Makes pipelines, each in its own folder."""

    def __init__(self, spark: SparkSession, folder: Path, bootstrap_servers: str) -> None:
        self._spark = spark
        self._folder = folder
        self._bootstrap_servers = bootstrap_servers
        self._made: dict[str, Pipeline] = {}

    def __call__(self, name: str, topic: str, schema: str | None = None, **options: str) -> Pipeline:
        """Return the pipeline `name`, which reads `topic` from its earliest offset in a group named after it."""
        defaults = {
            "kafka.group.id": f"group-of-{topic}",
            **({} if "subscribePattern" in options else {"subscribe": topic}),
            "startingOffsets": "earliest",
            # Under KIP-848 the broker sets it.
            **({} if options.get("kafka.group.protocol") == "consumer" else {"kafka.session.timeout.ms": "20000"}),
            "kafka.topic.metadata.refresh.interval.ms": "1000",
        }
        return self.made(name, "groupkafka", {**defaults, **options}, schema=schema)

    def made(
        self,
        name: str,
        source: str,
        options: Mapping[str, str],
        transform: Transform = as_it_is,
        schema: str | None = None,
    ) -> Pipeline:
        """Return the pipeline `name` over any source that reads Kafka, with just these options and the brokers."""
        options = {"kafka.bootstrap.servers": self._bootstrap_servers, **options}
        self._made[name] = Pipeline(self._spark, self._folder / name, options, None, source, transform, schema)
        return self._made[name]

    def stop_all(self) -> None:
        for pipeline in self._made.values():
            if pipeline.query is not None:
                pipeline.query.stop()
