"""The stream reader for Spark 4.0 and 4.1, which pass neither the start of a micro-batch nor its limit to `latestOffset()`.

The reader derives both from the order of Spark's calls (MicroBatchExecution, PythonMicroBatchStream,
AcceptsLatestSeenOffsetHandler):

    new checkpoint                  latestOffset(), offset log, initialOffset(), partitions(first, 0), tasks, commit log
    next micro-batches              latestOffset(), offset log, commit(0), partitions(0, 1), tasks, commit log
    restart                         partitions(n, n) before anything else: n is the newest offset in the offset log
      n is in the commit log        latestOffset(), and so on as above
      it is not                     partitions(n - 1, n), tasks, commit log, latestOffset(), and so on as above

So a call of `latestOffset()` means that its previous result, or else the offset of the restart, is in the commit log. If a run
has neither, this is the first call of a new checkpoint. Every plan that Spark gets is used, or the run ends.

With Trigger.AvailableNow and Trigger.Once these versions run one micro-batch. The reader cannot find out which trigger is used.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from spark_groupsource.errors import OffsetError
from spark_groupsource.options.model import Options
from spark_groupsource.spark.readers import GroupKafkaStreamReader

log = logging.getLogger(__name__)

JsonOffset = dict[str, Any]


class SparkPosition:
    """Follows how far Spark is, by the order of its calls. Pure."""

    def __init__(self) -> None:
        self.start: JsonOffset | None = None
        """The start of the next plan, which is in the commit log when Spark asks for a plan. `None` for a new checkpoint."""
        self.has_planned = False
        """Whether Spark has asked for a plan in this run."""

    def planned(self, end: JsonOffset) -> None:
        """Note that `latestOffset()` returns `end` to Spark."""
        self.start, self.has_planned = end, True

    def to_claim(self, start: JsonOffset, end: JsonOffset) -> bool:
        """Return whether `partitions(start, end)` asks for a micro-batch, and does not just announce the offset of a restart.

        Raises:
            OffsetError: A plan was made before Spark announced the checkpoint's offset.
        """
        only_announces = start == end
        if only_announces and self.has_planned and end != self.start:
            raise OffsetError(
                "Spark asked for a plan before it announced where the checkpoint ends, so the plan does not fit the checkpoint. "
                "Spark before 4.2 does this if spark.sql.streaming.triggerAvailableNowWrapper.enabled is set. Unset it. "
                "Trigger.AvailableNow then runs one micro-batch."
            )
        self.start = end
        return not only_announces


class StartlessReader(GroupKafkaStreamReader):
    """A stream reader that derives Spark's position, and limits each micro-batch to `maxOffsetsPerTrigger` with any trigger."""

    def __init__(self, options: Options, columns: pa.Schema | None = None) -> None:
        super().__init__(options, columns)
        self._position = SparkPosition()

    def latestOffset(self) -> JsonOffset:  # type: ignore[override]
        """Plan the next micro-batch. If there is nothing new, return the offset at which it would start."""
        is_first_of_run = not self._position.has_planned
        start = self.initialOffset() if self._position.start is None else self._position.start
        planned = self._next(start, limited=True)
        self._position.planned(planned)
        if is_first_of_run:
            self._warn_of_what_is_left(planned)
        return planned

    def partitions(self, start: JsonOffset, end: JsonOffset) -> list[InputPartition]:
        """Claim the ranges of `end`, or nothing if Spark only announces the offset of a restart."""
        return super().partitions(start, end) if self._position.to_claim(start, end) else []

    def _warn_of_what_is_left(self, planned: JsonOffset) -> None:
        unread = left_behind(planned, (self._running().report() or {}).get("offsets", {}))
        if unread:
            log.warning(
                "maxOffsetsPerTrigger leaves %d offsets to the micro-batches after the first one of this run. With the triggers "
                "AvailableNow and Once, Spark before 4.2 runs no further micro-batch, so these offsets wait for the next run. "
                "Remove the option to read everything.",
                unread,
            )


def left_behind(planned: JsonOffset, ends: Mapping[str, Mapping[str, int]]) -> int:
    """Return how many offsets a plan leaves unread up to the end offsets.

    Args:
        planned: A plan, as Spark stores it.
        ends: The end offsets, by topic and partition.
    """
    planned_to = {
        (topic, partition): bounds[-1][1]
        for topic, partitions in planned["ranges"].items()
        for partition, bounds in partitions.items()
    }
    return sum(
        max(0, end - planned_to.get((topic, partition), end))
        for topic, partitions in ends.items()
        for partition, end in partitions.items()
    )
