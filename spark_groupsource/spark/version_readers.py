"""Implements the stream reader for each Spark version, because the versions call `latestOffset` in different ways.

Spark 4.2 and later pass a micro-batch's start and limit (SPARK-55304) to `AdmissionControlReader`.

Spark 4.0 and 4.1 pass neither, so `StartlessReader` derives both from the order of Spark's calls (MicroBatchExecution,
PythonMicroBatchStream, AcceptsLatestSeenOffsetHandler):

    new checkpoint                  latestOffset(), offset log, initialOffset(), partitions(first, 0), tasks, commit log
    next micro-batches              latestOffset(), offset log, commit(0), partitions(0, 1), tasks, commit log
    restart                         partitions(n, n) before anything else: n is the newest offset in the offset log
      n is in the commit log        latestOffset(), and so on as above
      it is not                     partitions(n - 1, n), tasks, commit log, latestOffset(), and so on as above

When Spark calls `latestOffset()`, the result of its previous call, or else the offset of the restart, is in the commit log. If a
run has neither, the checkpoint is new. Spark uses every plan that it gets, unless the run ends first.

These versions run one micro-batch with Trigger.AvailableNow and Trigger.Once. The reader cannot tell which trigger is used.
"""

from __future__ import annotations

import logging
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from spark_groupsource.errors import OffsetError
from spark_groupsource.options.model import Options
from spark_groupsource.spark.readers import GroupKafkaStreamReader

log = logging.getLogger(__name__)

JsonOffset = dict[str, Any]

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # Spark 4.0 and 4.1
    pass
else:

    class AdmissionControlReader(GroupKafkaStreamReader, SupportsTriggerAvailableNow):
        """The reader for Spark 4.2 and later. With Trigger.AvailableNow, it reads only what existed when the run started."""

        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
            """Return the end of the next micro-batch, or `start` if there is nothing new."""
            return self._next(start, limited=not isinstance(limit, ReadAllAvailable))

        def getDefaultReadLimit(self) -> ReadLimit:
            """Return `maxOffsetsPerTrigger` or `minOffsetsPerTrigger` as a limit. Spark ignores it with Trigger.Once."""
            at_most, at_least = self._options.max_offsets_per_trigger, self._options.min_offsets_per_trigger
            if at_most is not None:
                return ReadMaxRows(at_most)
            return ReadAllAvailable() if at_least is None else ReadMinRows(at_least)

        def prepareForTriggerAvailableNow(self) -> None:
            """Fix the run's target: the current ends of all subscribed partitions, no matter which member owns them."""
            self._running().fix_target()

        def reportLatestOffset(self) -> dict[str, Any] | None:
            """Return the end offset, lag and held offsets of each owned partition as of the last plan, for Spark's progress."""
            return self._running().report()


class SparkPosition:
    """Derives Spark's position from the order of its calls. Pure."""

    def __init__(self) -> None:
        self.start: JsonOffset | None = None
        """The start of the next plan. It is in the commit log when Spark asks for a plan. `None` for a new checkpoint."""
        self.has_planned = False
        """Whether Spark has asked for a plan in this run."""

    def planned(self, end: JsonOffset) -> None:
        """Record that `latestOffset()` is returning `end` to Spark."""
        self.start, self.has_planned = end, True

    def to_claim(self, start: JsonOffset, end: JsonOffset) -> bool:
        """Return whether `partitions(start, end)` asks for a micro-batch, rather than just announcing the offset of a restart.

        Raises:
            OffsetError: A plan was made before Spark announced the checkpoint's offset.
        """
        only_announces = start == end
        if only_announces and self.has_planned and end != self.start:
            raise OffsetError(
                "Spark asked for a micro-batch before it announced where the checkpoint ends, so the micro-batch may not match "
                "the checkpoint. Nothing was read. Spark before 4.2 does this if "
                "spark.sql.streaming.triggerAvailableNowWrapper.enabled is set. Unset that setting. Trigger.AvailableNow will "
                "then run one micro-batch."
            )
        self.start = end
        return not only_announces


class StartlessReader(GroupKafkaStreamReader):
    """The reader for Spark 4.0 and 4.1. It limits each micro-batch to `maxOffsetsPerTrigger`, no matter which trigger is used."""

    def __init__(self, options: Options, columns: pa.Schema | None = None) -> None:
        super().__init__(options, columns)
        self._position = SparkPosition()

    def latestOffset(self) -> JsonOffset:  # type: ignore[override]
        """Return the end of the next micro-batch, or its start if there is nothing new."""
        is_first_of_run = not self._position.has_planned
        start = self.initialOffset() if self._position.start is None else self._position.start
        planned = self._next(start, limited=True)
        self._position.planned(planned)
        if is_first_of_run:
            self._warn_of_what_is_left(planned)
        return planned

    def partitions(self, start: JsonOffset, end: JsonOffset) -> list[InputPartition]:
        """Claim the ranges in `end`, unless Spark is only announcing the offset of a restart."""
        return super().partitions(start, end) if self._position.to_claim(start, end) else []

    def _warn_of_what_is_left(self, planned: JsonOffset) -> None:
        from spark_groupsource.checkpoint.offset_log import left_behind

        unread = sum(left_behind(planned, (self._running().report() or {}).get("offsets", {})).values())
        if unread:
            log.warning(
                "maxOffsetsPerTrigger leaves %d offsets to the micro-batches after the first one of this run. With the "
                "triggers AvailableNow and Once, Spark before 4.2 runs no further micro-batch, so these offsets will wait for "
                "the next run. To read everything, remove the option.",
                unread,
            )
