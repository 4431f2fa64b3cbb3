"""Implements the readers and partitions that Spark sends to a task, and reads records with them on an executor.

Spark sends each task its reader and its partition. The driver's readers are pickled as the readers in this module, with settings
that the driver has checked and merged. This module imports nothing that only the driver needs, because that would slow down every
new worker. The planning process that pickles the readers needs only their classes, so the modules that do the reading are
imported only when a task reads.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
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
    """One task's work: ranges of one Kafka partition in ascending order, or small ranges from several partitions.

    If none of the plan's ranges for this task are granted, `ranges` is empty. If only parts of a range are granted, there may be
    several ranges in one partition.

    Args:
        ranges: The ranges.
        stream: The stream's name, which also appears in the names of the task's clients and in its log lines. `None` in a batch
            read.
        commit: In a batch read, the offset to commit once the ranges have been read, or `None` to commit nothing.
    """

    def __init__(self, ranges: tuple[FetchRange, ...], stream: str | None = None, commit: int | None = None) -> None:
        super().__init__(ranges)
        self.ranges = ranges
        self.stream = stream
        self.commit = commit


class TaskReader(PromptlyAcknowledged):
    """The reader that tasks get.

    Args:
        settings: How to read.
        committing: In a batch read, the settings of the client that commits offsets. They contain secrets.
    """

    def __init__(self, settings: FetchSettings, committing: Mapping[str, str] | None = None) -> None:
        self._settings = settings
        self._committing = committing

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records in the task's ranges, as Arrow record batches with the requested columns.

        With `commitOffsets`, the task commits its partition's end offset once Spark has consumed the last record. If the job
        fails later, Spark does not report the failure to a source. If the log was truncated while the task was reading, nothing
        is committed, because other records may be stored at these offsets and beyond, now or later.
        """
        if not isinstance(partition, RangePartition):
            return  # if a batch read has nothing to read, Spark creates one task without a partition
        from spark_groupsource.brokers.process_limits import limits_named
        from spark_groupsource.fetch.choice import fetch, fetch_shared

        settings, group, ranges = self._settings, self._settings.client["group.id"], partition.ranges
        work_for(group=group, query=query_of_task(), stream=partition.stream)
        log_to_stderr()
        if partition.stream is not None:
            settings = replace(settings, client=named(settings.client, partition.stream))
        freeze_imports()
        is_cut = False
        with limits_named(READING):
            if len({(offsets.topic, offsets.partition) for offsets in ranges}) == len(ranges) > 1:
                yield from fetch_shared(ranges, settings)
            else:
                for offsets in ranges:
                    is_cut |= yield from fetch(offsets, settings)
        if partition.commit is None or self._committing is None:
            return
        done = TopicPartition(ranges[0].topic, ranges[0].partition)
        if is_cut:
            log.warning(
                "%s: its log was truncated while this task was reading it, so offset %d was not committed for group %s. The "
                "group's next read will begin at the previous committed offset. It will read everything that the log contains "
                "by then, and may return records that this read has already returned",
                done,
                partition.commit,
                group,
            )
            return
        from spark_groupsource.brokers.group_admin import GroupAdmin

        GroupAdmin(self._committing).alter_offsets(group, {done: partition.commit})
