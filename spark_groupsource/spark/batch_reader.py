"""The batch reader: an action fixes the ranges when it plans them, and tasks read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_groupsource.fetch.choice import warn_on_driver
from spark_groupsource.fetch.contract import fetch
from spark_groupsource.options.model import Options
from spark_groupsource.partition import TopicPartition
from spark_groupsource.query.batch_plan import BatchTask, plan_batch
from spark_groupsource.spark.stderr_log import log_to_stderr
from spark_groupsource.spark.worker_socket import PromptlyAcknowledged


class BatchPartition(InputPartition):
    """One Spark task's work."""

    def __init__(self, task: BatchTask) -> None:
        super().__init__(task)
        self.task = task


class GroupKafkaBatchReader(PromptlyAcknowledged, DataSourceReader):
    """`spark.read.format("groupkafka")`. Joins no group."""

    def __init__(self, options: Options, columns: pa.Schema) -> None:
        self._options = options
        self._fetch_settings = options.fetch_settings(columns)

    def partitions(self) -> Sequence[InputPartition]:
        """Decide where the read starts and ends now. Spark calls this once for each DataFrame, at its first action."""
        log_to_stderr()
        warn_on_driver()
        return [BatchPartition(task) for task in plan_batch(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the task's records, as Arrow record batches with the columns that were asked for. Runs on an executor.

        With `commitOffsets` the task commits its end after Spark has taken its last record. The job may still fail later: Spark
        does not report that to a source.
        """
        if not isinstance(partition, BatchPartition):
            return  # if there is nothing to read, Spark makes one task without a partition
        log_to_stderr()
        for offsets in partition.task.ranges:
            yield from fetch(offsets, self._fetch_settings)
        if partition.task.commit is not None:
            self._commit(partition.task, partition.task.commit)

    def _commit(self, task: BatchTask, offset: int) -> None:
        from spark_groupsource.brokers.group_admin import GroupAdmin

        done = TopicPartition(task.ranges[0].topic, task.ranges[0].partition)
        GroupAdmin(self._options.client_settings()).alter_offsets(self._options.group_id, {done: offset})
