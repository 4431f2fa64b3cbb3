"""Computes lag from Spark's own progress events, for users who monitor their queries with a StreamingQueryListener.

Spark reports each micro-batch when it is finished. The report contains the micro-batch's end offset, which is a plan from this
source, and the partitions' ends when the source planned (`Cycle.report`). The lag is the difference: the offsets that the
micro-batch left unread. Spark's own Kafka source reports the same in `offsetsBehindLatest`. An idle query reports nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql.streaming.listener import QueryProgressEvent, QueryTerminatedEvent

from spark_groupsource.checkpoint.offset_log import left_behind, plan_of
from spark_groupsource.errors import ReportsUnavailable
from spark_groupsource.partition import TopicPartition
from spark_groupsource.sink.batch_report import BatchReport, read_report
from spark_groupsource.spark.datasource import ADMISSION_CONTROL
from spark_groupsource.spark.durable_listener import DurableListener, progress_of

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from spark_groupsource.metrics.progress import ProgressCounters

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LagSnapshot:
    """The lag and other figures for one of a query's sources after a micro-batch."""

    query_id: str
    run_id: str
    query_name: str | None
    batch_id: int
    timestamp: str
    """When the micro-batch started, in UTC, as Spark writes it."""
    group: str
    stream: str
    """The name of the query's stream (its checkpoint) in the group. `groupkafka claims` lists it."""
    rows: int
    """The number of rows that the tasks read."""
    lag: Mapping[TopicPartition, int] | None
    """The number of offsets left unread in each partition that the driver owned when it planned.

    `None` on Spark before 4.2, which does not ask a source for its lag.
    """
    held: Mapping[TopicPartition, int] | None
    """The number of offsets held for other queries in each of these partitions (`heldClaims`). `None` if `lag` is `None`."""
    observed: Mapping[str, Mapping[str, Any]]
    """The micro-batch's `DataFrame.observe` metrics, by observation and column."""

    @property
    def total_lag(self) -> int | None:
        """The total lag across all partitions."""
        return None if self.lag is None else sum(self.lag.values())

    @property
    def total_held(self) -> int | None:
        """The total number of offsets held for other queries, across all partitions."""
        return None if self.held is None else sum(self.held.values())


def snapshots(progress: Mapping[str, Any]) -> Iterator[LagSnapshot]:
    """Yield one snapshot for each of this package's sources in a query's progress.

    Args:
        progress: The progress as Spark's JSON.
    """
    for source in progress.get("sources", ()):
        end, latest = source.get("endOffset"), source.get("latestOffset")
        if (plan := plan_of(end)) is None:
            continue
        known = isinstance(latest, dict) and "offsets" in latest and "held" in latest
        yield LagSnapshot(
            query_id=progress["id"],
            run_id=progress["runId"],
            query_name=progress.get("name"),
            batch_id=progress["batchId"],
            timestamp=progress["timestamp"],
            group=end["group"],
            stream=plan[0],
            rows=source.get("numInputRows", 0),
            lag=left_behind(end, latest["offsets"]) if known else None,
            held=_by_partition(latest["held"]) if known else None,
            observed=progress.get("observedMetrics") or {},
        )


class LagListener(DurableListener):
    """Reports the lag of the session's queries that read this source, and tells the source which micro-batches are finished.

    Add one with `spark.streams.addListener(LagListener(...))`.
    """

    def __init__(
        self,
        callback: Callable[[LagSnapshot], None] | None = None,
        *,
        warn_above: int | None = None,
        registry: CollectorRegistry | None = None,
    ) -> None:
        """Create a listener to add to a session.

        Args:
            callback: Called after each micro-batch, once for each source, on the listener's thread. It should return quickly.
                Spark logs the exceptions that it raises.
            warn_above: Log a warning when a source's lag rises above this many offsets. The next warning comes only after the
                lag has fallen below this number again.
            registry: A prometheus-client registry that gets two counters: the rows that were read, and the bytes that the
                query counts with `DataFrame.observe` in a `bytes` column, because Spark's progress does not have bytes. For
                queries that write with this sink, it also gets the rows that were written and skipped, and the commit time.
                Listeners with the same registry share the counters, so remove the first listener from a session before you
                add another, or both count.
        """
        super().__init__()
        if not ADMISSION_CONTROL:
            log.warning(
                "Spark %s does not ask a Python source for its lag, so LagListener cannot show it. Use metrics.port or "
                "`groupkafka describe` instead.",
                pyspark.__version__,
            )
        self._callback = callback
        self._warn_above = warn_above
        self._latest: Mapping[str, tuple[LagSnapshot, ...]] = MappingProxyType({})
        self._written: Mapping[str, BatchReport] = MappingProxyType({})
        self._counters: ProgressCounters | None = None
        if registry is not None:
            from spark_groupsource.metrics.progress import ProgressCounters

            self._counters = ProgressCounters.of(registry)

    @property
    def latest(self) -> Mapping[str, tuple[LagSnapshot, ...]]:
        """Each running query's newest snapshots, by query id as a string. Any thread may read it."""
        return self._latest

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Process the progress of a finished micro-batch."""
        progress = progress_of(event)
        self.report(progress)
        self._read_written(progress)
        found = tuple(snapshots(progress))
        if not found:
            return
        previous = self._latest.get(progress["id"], ())
        self._latest = MappingProxyType({**self._latest, progress["id"]: found})
        if self._counters is not None:
            query = found[0].query_name or found[0].query_id
            self._counters.add(query, ((snapshot.group, snapshot.rows) for snapshot in found), found[0].observed)
        for snapshot in found:
            self._warn(snapshot, previous)
            if self._callback is not None:
                self._callback(snapshot)

    @property
    def written(self) -> Mapping[str, BatchReport]:
        """The sink's report on each running query's newest micro-batch, by query id. Any thread may read it."""
        return self._written

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Forget the query."""
        super().onQueryTerminated(event)
        ended = str(event.id)
        self._latest = MappingProxyType({query: found for query, found in self._latest.items() if query != ended})
        self._written = MappingProxyType({query: report for query, report in self._written.items() if query != ended})

    def _read_written(self, progress: Mapping[str, Any]) -> None:
        """Read the sink's report on this micro-batch, if there is one, because the progress does not show which sink was used."""
        query = progress["id"]
        try:
            report = read_report(progress["runId"])
        except ReportsUnavailable as unavailable:
            log.info("could not read how many rows the sink has written: %s", unavailable)
            return
        if report is None or report.batch_id != progress["batchId"]:
            return
        self._written = MappingProxyType({**self._written, query: report})
        if self._counters is not None:
            self._counters.add_written(progress.get("name") or query, report)

    def _warn(self, snapshot: LagSnapshot, previous: tuple[LagSnapshot, ...]) -> None:
        if not self._is_high(snapshot) or any(self._is_high(earlier) for earlier in previous if _same_source(earlier, snapshot)):
            return
        log.warning(
            "query %s (group %s): %s offsets behind after micro-batch %d, more than %s",
            snapshot.query_name or snapshot.query_id,
            snapshot.group,
            snapshot.total_lag,
            snapshot.batch_id,
            self._warn_above,
        )

    def _is_high(self, snapshot: LagSnapshot) -> bool:
        return self._warn_above is not None and (snapshot.total_lag or 0) > self._warn_above


def _same_source(earlier: LagSnapshot, later: LagSnapshot) -> bool:
    return (earlier.group, earlier.stream) == (later.group, later.stream)


def _by_partition(topics: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(number)): offset
        for topic, partitions in topics.items()
        for number, offset in partitions.items()
    }
