"""The reader for Spark 4.2 and later, which passes the start and the limit of a micro-batch (SPARK-55304).

Earlier versions of Spark lack what this module imports.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows, SupportsTriggerAvailableNow

from spark_groupsource.spark.readers import GroupKafkaStreamReader


class AdmissionControlReader(GroupKafkaStreamReader, SupportsTriggerAvailableNow):
    """A stream reader that takes limits from Spark, and with AvailableNow reads only what existed when the run started."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Plan the next micro-batch. Returns `start` itself if there is nothing new."""
        return self._next(start, limited=not isinstance(limit, ReadAllAvailable))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return `maxOffsetsPerTrigger` or `minOffsetsPerTrigger` as a limit. With Trigger.Once Spark uses ReadAllAvailable."""
        at_most, at_least = self._options.max_offsets_per_trigger, self._options.min_offsets_per_trigger
        if at_most is not None:
            return ReadMaxRows(at_most)
        return ReadAllAvailable() if at_least is None else ReadMinRows(at_least)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the target of the run: the current ends of the subscribed topics, no matter which member owns the partitions."""
        self._running().fix_target()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the end offset, lag and held offsets of each owned partition at the last plan, for StreamingQueryProgress."""
        return self._running().report()
