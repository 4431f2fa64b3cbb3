"""Implements the readers and partitions that a task gets, and reads with them on an executor.

Spark sends each task its reader and its partition. The driver's readers are pickled as the readers in this module, with settings
that the driver has checked and merged. This module imports nothing that only the driver needs, because that would slow down every
new worker. The planning process that pickles the readers needs only their classes, so the modules that do the reading are
imported only when a task reads.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from pyspark.sql.datasource import InputPartition

from spark_groupsource.fetch.contract import FetchRange, FetchSettings
from spark_groupsource.kafka_settings.client_id import named
from spark_groupsource.partition import TopicPartition
from spark_groupsource.spark.messages import log_to_stderr, query_of_task
from spark_groupsource.spark.worker import PromptlyAcknowledged, freeze_imports
from spark_groupsource.subject import work_for

if TYPE_CHECKING:
    import pyarrow as pa


log = logging.getLogger(__name__)

Reader = TypeVar("Reader")

READING = "A task cannot read"
"""The beginning of the error message when a reading task runs out of memory."""


def in_task(reader: Reader) -> Reader:
    """Return the task's reader unchanged. Pickle calls this function so that the driver's reader is unpickled as the task's."""
    return reader


class RangePartition(InputPartition):
    """One task's work in a stream: a range of one Kafka partition, or small ranges of several.

    If none of the plan's ranges for this task are granted, `ranges` is empty. If only parts of a range are granted, there may be
    several ranges in one partition.

    Args:
        ranges: The ranges.
        stream: The stream's name, which also appears in the names of the task's clients and in its log lines.
    """

    def __init__(self, ranges: tuple[FetchRange, ...], stream: str | None = None) -> None:
        super().__init__(ranges)
        self.ranges = ranges
        self.stream = stream


class BatchPartition(InputPartition):
    """One task's work in a batch read.

    Args:
        ranges: Ranges in one Kafka partition, in ascending order.
        commit: The offset to commit once the ranges have been read, or `None` to commit nothing.
    """

    def __init__(self, ranges: tuple[FetchRange, ...], commit: int | None) -> None:
        super().__init__(ranges)
        self.ranges = ranges
        self.commit = commit


class TaskReader(PromptlyAcknowledged):
    """The reader that a stream's tasks get."""

    def __init__(self, settings: FetchSettings) -> None:
        self._settings = settings

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the records in the task's ranges, as Arrow record batches with the requested columns."""
        assert isinstance(partition, RangePartition)  # noqa: S101 -- only the reader of a stream makes them
        work_for(group=self._settings.client["group.id"], query=query_of_task(), stream=partition.stream)
        log_to_stderr()
        if partition.stream is not None:
            self._settings = replace(self._settings, client=named(self._settings.client, partition.stream))
        records = self._records(partition.ranges)
        freeze_imports()
        return records

    def _records(self, ranges: tuple[FetchRange, ...]) -> Iterator[pa.RecordBatch]:
        from spark_groupsource.brokers.process_limits import limits_named
        from spark_groupsource.fetch.choice import fetch, fetch_shared

        with limits_named(READING):
            if len({(offsets.topic, offsets.partition) for offsets in ranges}) == len(ranges) > 1:
                yield from fetch_shared(ranges, self._settings)
            else:
                yield from chain.from_iterable(fetch(offsets, self._settings) for offsets in ranges)


class BatchTaskReader(PromptlyAcknowledged):
    """The reader that a batch read's tasks get.

    Args:
        settings: How to read.
        group_id: The group to which offsets are committed.
        client: The settings of the client that commits them. They contain secrets.
    """

    def __init__(self, settings: FetchSettings, group_id: str, client: Mapping[str, str]) -> None:
        self._settings = settings
        self._group_id = group_id
        self._client = client

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the task's records, as Arrow record batches with the requested columns.

        With `commitOffsets`, the task commits its end offset after Spark has taken its last record. If the job fails later, Spark
        does not report that to a source. If the log was truncated while the task was reading, nothing is committed, because other
        records may be stored at these offsets and beyond, now or later.
        """
        if not isinstance(partition, BatchPartition):
            return  # if there is nothing to read, Spark creates one task without a partition
        from spark_groupsource.brokers.process_limits import limits_named
        from spark_groupsource.fetch.choice import fetch

        work_for(group=self._group_id)
        log_to_stderr()
        is_cut = False
        with limits_named(READING):
            for offsets in partition.ranges:
                is_cut |= yield from fetch(offsets, self._settings)
        if partition.commit is not None:
            from spark_groupsource.brokers.group_admin import GroupAdmin

            done = TopicPartition(partition.ranges[0].topic, partition.ranges[0].partition)
            if is_cut:
                log.warning(
                    "%s: its log was truncated while this task was reading it, so offset %d was not committed for group %s. The "
                    "group's next read begins at the previous committed offset. It reads everything that the log has by then, "
                    "and may return records that this read has already returned",
                    done,
                    partition.commit,
                    self._group_id,
                )
                return
            GroupAdmin(self._client).alter_offsets(self._group_id, {done: partition.commit})
