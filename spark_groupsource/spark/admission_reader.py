"""The reader for Spark 4.2 and later, which says where a micro-batch starts and what limits it (SPARK-55304)."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows, SupportsTriggerAvailableNow

from spark_groupsource.spark.stream_reader import GroupKafkaStreamReader


class AdmissionControlReader(GroupKafkaStreamReader, SupportsTriggerAvailableNow):
    """Limits come from Spark, and AvailableNow keeps to what was there when the run began."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Plan the next micro-batch. `start` itself when there is nothing new."""
        return self._next(start, limited=not isinstance(limit, ReadAllAvailable))

    def getDefaultReadLimit(self) -> ReadLimit:
        """`maxOffsetsPerTrigger` and `minOffsetsPerTrigger`; under Trigger.Once Spark gives ReadAllAvailable instead."""
        at_most, at_least = self._options.max_offsets_per_trigger, self._options.min_offsets_per_trigger
        if at_most is not None:
            return ReadMaxRows(at_most)
        return ReadAllAvailable() if at_least is None else ReadMinRows(at_least)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the target: what is in the subscribed topics now, whoever owns the partitions."""
        self._running().fix_target()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """End offset, lag and offsets held for others of each owned partition at the last plan, for StreamingQueryProgress."""
        return self._running().report()
