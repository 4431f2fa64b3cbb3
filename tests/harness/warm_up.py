"""A query that a driver runs before it is ready, because a JVM's first query takes ten seconds longer than later ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

BATCHES = 2


class WarmUpDataSource(DataSource):
    """A source with a few micro-batches of one record each, with the same steps as the source under test."""

    @classmethod
    def name(cls) -> str:
        return "groupkafka_warm_up"

    def schema(self) -> str:
        return "number BIGINT"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        return _WarmUpReader()


class _WarmUpReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"batch": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802
        return {"batch": min(BATCHES, start["batch"] + 1)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:  # noqa: ARG002
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        yield pa.record_batch({"number": pa.array([1], pa.int64())})


def warm_up(spark: SparkSession, folder: Path) -> None:
    """Run the query into both kinds of sinks."""
    spark.dataSource.register(WarmUpDataSource)
    records = spark.readStream.format(WarmUpDataSource.name()).load()

    def take(frame: DataFrame, _batch: int) -> None:
        frame.toArrow()

    into_files = records.writeStream.format("parquet").option("path", str(folder / "out"))
    for number, writer in enumerate((into_files, records.writeStream.foreachBatch(take))):
        query = writer.option("checkpointLocation", str(folder / f"checkpoint-{number}")).start()
        query.processAllAvailable()
        query.stop()
