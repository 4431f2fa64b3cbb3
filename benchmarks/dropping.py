"""A Python sink that discards its rows. It has its own module because Spark's workers import it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_groupsource.spark.worker import PromptlyAcknowledged, freeze_imports


class DroppingDataSource(DataSource):
    """`dropping`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "dropping"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: ARG002, N802
        """Return the writer."""
        return _DroppingWriter(schema)


class _DroppingWriter(PromptlyAcknowledged, DataSourceStreamArrowWriter):
    def __init__(self, schema: StructType) -> None:
        # A writer without state would be unpickled without `__setstate__`.
        self._schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        freeze_imports()
        return WriterCommitMessage()

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing is to be done."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing is to be done."""
