"""The reader for Spark 4.0 and 4.1, whose `latestOffset()` says neither where a micro-batch starts nor what limits it.

Both are found out here. What Spark calls there (MicroBatchExecution, PythonMicroBatchStream, AcceptsLatestSeenOffsetHandler):

    new checkpoint                  latestOffset(), offset log, initialOffset(), partitions(first, 0), tasks, commit log
    and on                          latestOffset(), offset log, commit(0), partitions(0, 1), tasks, commit log
    restart                         partitions(n, n) before anything else: n is the newest offset in the offset log
      n is in the commit log        latestOffset(), and on as above
      it is not                     partitions(n - 1, n), tasks, commit log, latestOffset(), and on as above

So `latestOffset()` always means that the offset which it gave before, or else that of the restart, is in the commit log; the
first call of a run without either is that of a new checkpoint. Every plan that is given to Spark is used, or ends the run.

Trigger.AvailableNow and Trigger.Once make one micro-batch there, and the reader is told of neither.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from pyspark.sql.datasource import InputPartition

from spark_groupsource.errors import OffsetError
from spark_groupsource.options.model import Options
from spark_groupsource.spark.stream_reader import GroupKafkaStreamReader

log = logging.getLogger(__name__)

JsonOffset = dict[str, Any]


class SparkPosition:
    """Where Spark stands, as its calls show it. Pure."""

    def __init__(self) -> None:
        self.start: JsonOffset | None = None
        """Where the next plan starts, which is in the commit log when Spark asks for it; `None` in a new checkpoint."""
        self.has_planned = False
        """Whether Spark has asked for a plan in this run."""

    def planned(self, end: JsonOffset) -> None:
        """`end` is what Spark gets from `latestOffset()`."""
        self.start, self.has_planned = end, True

    def to_claim(self, start: JsonOffset, end: JsonOffset) -> bool:
        """Whether `partitions(start, end)` is for a micro-batch, and not only how Spark tells where a restart stands.

        Raises:
            OffsetError: a plan was made before Spark has told of the checkpoint.
        """
        told = start == end
        if told and self.has_planned and end != self.start:
            raise OffsetError(
                "Spark asked for a plan before it told where the checkpoint ends, so the plan does not fit the checkpoint. Spark "
                "before 4.2 does so with spark.sql.streaming.triggerAvailableNowWrapper.enabled: unset it. Trigger.AvailableNow "
                "then runs one micro-batch."
            )
        self.start = end
        return not told


class StartlessReader(GroupKafkaStreamReader):
    """Knows by itself where Spark stands, and limits each micro-batch to `maxOffsetsPerTrigger`, whatever the trigger."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._position = SparkPosition()

    def latestOffset(self) -> JsonOffset:  # type: ignore[override]
        """Plan the next micro-batch. Where it starts itself when there is nothing new."""
        is_first_of_run = not self._position.has_planned
        start = self.initialOffset() if self._position.start is None else self._position.start
        planned = self._next(start, limited=True)
        self._position.planned(planned)
        if is_first_of_run:
            self._tell_of_what_is_left(planned)
        return planned

    def partitions(self, start: JsonOffset, end: JsonOffset) -> list[InputPartition]:
        """Claim the ranges of `end`; nothing when Spark only tells where a restart stands."""
        return super().partitions(start, end) if self._position.to_claim(start, end) else []

    def _tell_of_what_is_left(self, planned: JsonOffset) -> None:
        left = left_behind(planned, (self._running().report() or {}).get("offsets", {}))
        if left:
            log.warning(
                "maxOffsetsPerTrigger leaves %d offsets to the micro-batches after the first one of this run. With the triggers "
                "AvailableNow and Once there is none on Spark before 4.2: they wait for the next run. Leave the option out "
                "to read all that is there.",
                left,
            )


def left_behind(planned: JsonOffset, ends: Mapping[str, Mapping[str, int]]) -> int:
    """How many offsets lie between what is planned and the end offsets, both by topic and partition."""
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
