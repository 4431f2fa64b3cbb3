"""Reports finished micro-batches from the driver's program to the runners on the same host (reports/driver_reports.py).

Spark posts the progress of a micro-batch after it has written its commit log. The progress has the end offset of the micro-batch,
which names a stream of this source and its plan, so that plan is durable. The runner itself gets no such event.

Only the listener sees all queries of the driver, so it also warns if they share a group (shared_groups.py).
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from spark_groupsource.checkpoint.offset_log import plan_of
from spark_groupsource.errors import ReportsUnavailable
from spark_groupsource.reports.driver_reports import DriverReports
from spark_groupsource.spark.shared_groups import SharedGroups

log = logging.getLogger(__name__)

ADDED = "spark.groupkafka.listener"
"""A setting of the session that names the process that has added a listener. A cloned session, as in foreachBatch, has the same
setting, so queries that are started there are not reported."""

_THIS_PROCESS = secrets.token_hex(8)

_shared_groups = SharedGroups()
"""The queries seen by all listeners of this process. Each session has one listener, and may have a `LagListener` as well."""


def progress_of(event: QueryProgressEvent) -> dict[str, Any]:
    """Return the progress of a micro-batch as Spark's JSON, because its Python values differ between versions."""
    progress: dict[str, Any] = json.loads(event.progress.json)
    return progress


class DurableListener(StreamingQueryListener):
    """Reports each finished micro-batch of this source, and warns of groups that queries share.

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

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing, because there was no micro-batch."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Forget the query, which no longer shares a group. Its last micro-batch has already been reported."""
        _shared_groups.ended(str(event.runId))

    def report(self, progress: Mapping[str, Any]) -> None:
        """Report the plans in a query's progress. Warn once if the folder cannot be used, or if queries share a group."""
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
                    "finished micro-batches are not reported to the groupkafka source: %s. Their claims stay unconfirmed until "
                    "the next trigger, unless the reader has the option checkpointLocation",
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
    except Exception as error:  # noqa: BLE001 -- a platform may hide the JVM in ways of its own
        raise ReportsUnavailable(f"this process cannot reach the driver's JVM ({type(error).__name__})") from None


def listen(spark: SparkSession) -> None:
    """Add a `DurableListener` to the session if that is possible and this process has not added one yet.

    With Spark Connect none is added, because it would run at the client, perhaps on another host than the driver.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        return
    try:
        if spark.conf.get(ADDED, None) != _THIS_PROCESS:
            _shared_groups.begin(spark.sparkContext.applicationId)
            spark.conf.set(ADDED, _THIS_PROCESS)  # first, because if Spark refuses it, each call would add another listener
            spark.streams.addListener(DurableListener())
    except Exception as refused:  # noqa: BLE001 -- some platforms allow no listeners, each with an error of its own
        log.info("this session accepts no listener, so finished micro-batches are not reported to the source: %s", refused)
