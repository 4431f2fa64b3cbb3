"""The batch reader: an action fixes the ranges when it plans them, and tasks read them (task.py)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_groupsource.fetch.choice import warn_on_driver
from spark_groupsource.options.model import Options
from spark_groupsource.query.batch_plan import plan_batch
from spark_groupsource.spark.group_name import warn_of_blanks
from spark_groupsource.spark.short_errors import shown_alone
from spark_groupsource.spark.stderr_log import log_to_stderr
from spark_groupsource.spark.task import BatchPartition, BatchTaskReader, in_task
from spark_groupsource.subject import work_for


class GroupKafkaBatchReader(DataSourceReader):
    """`spark.read.format("groupkafka")`. Joins no group. It is pickled as a `BatchTaskReader`.

    Args:
        options: The options.
        columns: The columns to read. None: those of Spark's own Kafka source.
    """

    def __init__(self, options: Options, columns: pa.Schema | None = None) -> None:
        self._options = options
        self._fetch_settings = options.fetch_settings(columns)

    def __reduce__(self) -> tuple[Any, ...]:
        return in_task, (self.task_reader(),)

    @shown_alone()
    def partitions(self) -> Sequence[InputPartition]:
        """Decide where the read starts and ends now. Spark calls this once for each DataFrame, at its first action."""
        work_for(group=self._options.group_id)
        log_to_stderr()
        warn_on_driver()
        warn_of_blanks(self._options.group_id)
        return [BatchPartition(task.ranges, task.commit) for task in plan_batch(self._options)]

    def task_reader(self) -> BatchTaskReader:
        """Return what tasks need of this reader."""
        return BatchTaskReader(self._fetch_settings, self._options.group_id, self._options.client_settings())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read as a task does. Spark calls this on executors only, where it has a `BatchTaskReader`."""
        return self.task_reader().read(partition)
