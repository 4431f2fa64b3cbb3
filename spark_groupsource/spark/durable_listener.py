"""Implements the listener that reports finished micro-batches to the runners, and warns about queries that share a group.

Spark posts a micro-batch's progress after writing the commit log. The progress contains the micro-batch's end offset, which names
a stream of this source and its plan, so that plan is durable. The runner itself does not receive the event, so the listener, in
the driver's program, reports the plan to it (reports/driver_reports.py).

Only the listener sees all of a driver's queries. With Spark's own source, each query and each `load()` in a query gets all
records, so users are surprised when a group's members share them. A source's end offset contains its group, the partitions that
it owns (`ranges`), and topics in which it does not own a partition yet (`starts`, and `topics` in the first offset of a new
checkpoint). The offset does not contain the subscription, so after a restart, it contains a topic only once the source has owned
one of the topic's partitions. A source without partitions has no micro-batches, so the listener never sees it.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from spark_groupsource.checkpoint.offset_log import plan_of
from spark_groupsource.errors import ReportsUnavailable
from spark_groupsource.reports.driver_reports import DriverReports

log = logging.getLogger(__name__)

ADDED = "spark.groupkafka.listener"
"""A session setting that names the process that has added a listener. A cloned session, as in foreachBatch, has the same setting,
so queries that are started in it are not reported."""

_THIS_PROCESS = secrets.token_hex(8)

JsonOffset = Mapping[str, Any]
"""One of this source's offsets (`plan_offset.PlanOffset`), as plain JSON values."""


@dataclass(frozen=True)
class Source:
    """One of a running query's sources, as seen in its micro-batches."""

    query: str
    """The query's id."""
    run: str
    name: str
    """The query's name, or its id if it has none."""
    has_state: bool
    topics: frozenset[str]
    """All topics seen in the source's offsets in this run."""
    offset: JsonOffset
    """The end offset of the query's newest micro-batch."""


def topics_in(offset: JsonOffset) -> frozenset[str]:
    """Return the topics that an offset shows as subscribed."""
    return frozenset().union(*(offset.get(field, ()) for field in ("ranges", "starts", "topics")))


def share(source: Source, other: Source) -> bool:
    """Return whether two sources divide a topic's records between them."""
    same_group = all(source.offset.get(field) == other.offset.get(field) for field in ("cluster", "group"))
    return same_group and not source.topics.isdisjoint(other.topics)


def gave_up_a_part(earlier: JsonOffset, later: JsonOffset) -> bool:
    """Return whether a member has lost some but not all of a topic's partitions, so that another member must own them now.

    A topic that is missing completely may have been deleted, and a topic that was created again may have fewer partitions. A
    member that was expelled rejoins as a new member, and may get its partitions one at a time.

    Args:
        earlier: one of the member's offsets.
        later: a later offset from the same stream.
    """
    if earlier["member"] != later["member"]:
        return False
    earlier_ids, later_ids = earlier.get("topics", {}), later.get("topics", {})
    return any(
        earlier_ids.get(topic) == later_ids.get(topic) and bool(earlier["ranges"].get(topic, {}).keys() - partitions.keys())
        for topic, partitions in later["ranges"].items()
    )


class SharedGroups:
    """Tracks the sources of all queries that are running in this driver. Used on Spark's listener thread."""

    def __init__(self) -> None:
        self._application: str | None = None
        self._sources: dict[str, Source] = {}
        """The sources by stream name, which stays the same when a query restarts from its checkpoint."""
        self._warned: set[object] = set()
        """The warnings already logged: ids of queries with state, and groups with the ids of the queries that share them."""

    def begin(self, application: str) -> None:
        """Forget queries from an earlier SparkContext, because Spark does not report that they ended with that context."""
        if application != self._application:
            self._application = application
            self._sources.clear()

    def progressed(self, progress: Mapping[str, Any]) -> None:
        """Record a micro-batch's progress, given as Spark's JSON. Several listeners may pass the same progress.

        A plan from an earlier run that is replayed, or has no successor yet, is ignored, because it does not show what this run
        subscribes to.
        """
        if "latestOffset" not in progress["durationMs"]:
            return
        for source in progress["sources"]:
            offset = source.get("endOffset")
            planned = plan_of(offset)
            if planned is not None and offset != source.get("startOffset"):
                self._take(planned[0], offset, progress)

    def ended(self, run: str) -> None:
        """Forget a query's run, which has ended."""
        self._sources = {stream: source for stream, source in self._sources.items() if source.run != run}

    def _take(self, stream: str, offset: JsonOffset, progress: Mapping[str, Any]) -> None:
        known = self._sources.get(stream)
        earlier = known if known is not None and known.run == progress["runId"] else None
        source = Source(
            progress["id"],
            progress["runId"],
            progress.get("name") or progress["id"],
            bool(progress["stateOperators"]),
            topics_in(offset) | (earlier.topics if earlier else frozenset()),
            offset,
        )
        self._sources[stream] = source
        for other_stream, other in self._sources.items():
            if other_stream != stream and share(other, source):
                self._warn_of_two(other, source)
                self._warn_of_state(other)
                self._warn_of_state(source)
        if earlier is not None and gave_up_a_part(earlier.offset, offset):
            self._warn_of_state(source)

    def _warn_of_two(self, earlier: Source, later: Source) -> None:
        group = later.offset["group"]
        if not self._is_new((later.offset.get("cluster"), group, frozenset({earlier.query, later.query}))):
            return
        if earlier.query == later.query:
            log.warning(
                "Two sources in query %s are members of group %s for the same topics, so each record reaches only one of them. "
                "If both need all records, give each its own kafka.group.id.",
                later.name,
                group,
            )
        else:
            log.warning(
                "Queries %s and %s on this driver are members of group %s for the same topics, so each record reaches only one "
                "of them. If both need all records, give each its own kafka.group.id.",
                earlier.name,
                later.name,
                group,
            )

    def _warn_of_state(self, source: Source) -> None:
        if source.has_state and self._is_new(source.query):
            log.warning(
                "Query %s keeps state, and group %s has other members for the same topics. When a partition moves, the state "
                "for its keys does not move with it, so the results will be wrong, without an error. Give the query its own "
                "kafka.group.id (docs/running.md, Stateful queries).",
                source.name,
                source.offset["group"],
            )

    def _is_new(self, warning: object) -> bool:
        """Return True if this warning has not been logged yet, and remember it."""
        is_new = warning not in self._warned
        self._warned.add(warning)
        return is_new


_shared_groups = SharedGroups()
"""The queries seen by all listeners in this process. Each session has one listener, and may also have a `LagListener`."""


def progress_of(event: QueryProgressEvent) -> dict[str, Any]:
    """Return a micro-batch's progress as Spark's JSON, because PySpark's own values differ between versions."""
    progress: dict[str, Any] = json.loads(event.progress.json)
    return progress


class DurableListener(StreamingQueryListener):
    """Reports this source's finished micro-batches, and warns about groups that queries share.

    `listen` adds one to a session, and `LagListener` is a subclass.
    """

    def __init__(self) -> None:
        self._reports: DriverReports | None = None
        self._warned = False

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing, because no micro-batch is finished yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Report the plans of a finished micro-batch, and warn if the query shares a group."""
        self.report(progress_of(event))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Forget the query, which no longer shares a group. Its last micro-batch has already been reported."""
        _shared_groups.ended(str(event.runId))

    def report(self, progress: Mapping[str, Any]) -> None:
        """Report the plans in a query's progress. Warn once if the reports folder cannot be used, or if queries share a group."""
        try:
            for source in progress.get("sources", ()):
                found = plan_of(source.get("endOffset"))
                if self._reports is None and found is not None:
                    self._reports = DriverReports(driver_process())
                if self._reports is not None and found is not None and found[1] >= 0:
                    self._reports.write(*found)
        except ReportsUnavailable as error:
            if not self._warned:
                self._warned = True
                log.warning(
                    "finished micro-batches will not be reported to the groupkafka source: %s. Their claims will stay "
                    "unconfirmed until the next trigger, unless the reader's checkpointLocation option is set",
                    error,
                )
        _shared_groups.progressed(progress)


def driver_process() -> int:
    """Return the process id of the driver's JVM.

    Raises:
        ReportsUnavailable: this process has no access to the JVM, as with Spark Connect.
    """
    try:
        from pyspark import SparkContext

        return int(SparkContext._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    except Exception as error:  # noqa: BLE001 -- a platform may hide the JVM in its own way
        raise ReportsUnavailable(f"this process cannot reach the driver's JVM ({type(error).__name__})") from None


def listen(spark: SparkSession) -> None:
    """Add a `DurableListener` to the session if that is possible and this process has not added one yet.

    Args:
        spark: A session in this process. With Spark Connect, a listener would run in the client, perhaps on a different host from
            the driver.
    """
    try:
        if spark.conf.get(ADDED, None) != _THIS_PROCESS:
            _shared_groups.begin(spark.sparkContext.applicationId)
            spark.conf.set(ADDED, _THIS_PROCESS)  # first, because if Spark refuses it, each call would add another listener
            spark.streams.addListener(DurableListener())
    except Exception as refused:  # noqa: BLE001 -- some platforms allow no listeners, each with its own error
        log.info(
            "this session does not accept a listener, so finished micro-batches will not be reported to the source: %s", refused
        )
