"""Implements the readers that Spark uses on the driver's host, and sets up the process in which a stream's reader runs.

A stream reader turns Spark's calls, which pass offsets as dicts, into steps of the cycle (query/cycle.py). Only `latestOffset` is
elsewhere, because its signature depends on Spark's version (version_readers.py).

Spark calls the reader on the runner's main thread, one call at a time. It also creates a reader in a planning process and pickles
it for the executors. So the constructors do not join the group, and modules that only the runner needs are imported when it runs.
Executors get only the part of a reader that tasks need (task.py).
"""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from spark_groupsource.errors import AsynchronousProgress, GroupKafkaError
from spark_groupsource.fetch.contract import FetchRange
from spark_groupsource.handoff.plan_offset import PlanOffset
from spark_groupsource.handoff.planner import granted_part, tasks
from spark_groupsource.observer import UNOBSERVED, Observer
from spark_groupsource.options.model import Options
from spark_groupsource.spark.messages import log_to_stderr, query_of_checkpoint, shown_alone, warn_of_blanks
from spark_groupsource.spark.task import RangePartition, TaskReader, in_task
from spark_groupsource.subject import work_for

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_groupsource.metrics.server import MetricsServer
    from spark_groupsource.query.cycle import Cycle

LOOK_AT_DRIVER_EVERY_S = 0.5
"""How often to check that the driver is still alive, in seconds."""

COLLECT_AFTER_OBJECTS = 50_000
"""The number of new objects after which Python's garbage collector runs. The default is 700 in Python 3.11."""


class _DriversReader:
    """The parts that the driver's readers share. Such a reader is pickled as a `TaskReader`.

    Args:
        options: The options.
        columns: The columns to read, or `None` for the columns of Spark's own Kafka source.
    """

    def __init__(self, options: Options, columns: pa.Schema | None = None) -> None:
        self._options = options
        self._fetch_settings = options.fetch_settings(columns)

    def __reduce__(self) -> tuple[Any, ...]:
        return in_task, (self.task_reader(),)

    def task_reader(self) -> TaskReader:
        """Return the part of this reader that tasks need."""
        return TaskReader(self._fetch_settings)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a task's records. On executors, Spark calls the `TaskReader` instead."""
        return self.task_reader().read(partition)


class GroupKafkaStreamReader(_DriversReader, DataSourceStreamReader):
    """The reader for one run of one query. It joins the group when the query starts planning."""

    def __init__(self, options: Options, columns: pa.Schema | None = None) -> None:
        super().__init__(options, columns)
        self._cycle: Cycle | None = None
        self._metrics: MetricsServer | None = None
        self._newest_plan: int | None = None
        self._newest_commit = -1
        self._stream_name: str | None = None
        self._query_id: str | None = None

    @shown_alone()
    def initialOffset(self) -> dict[str, Any]:
        """Return the offset before the first plan. Spark also calls this when it repeats batch 0, so it must do nothing else."""
        return self._running().first().to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Claim the ranges of `end`, which is in Spark's offset log.

        Returns:
            One input partition per task. A range becomes one or more tasks (`minPartitions`, `maxRecordsPerPartition`), or shares
            a task with other small ranges. A task without a granted range reads nothing.
        """
        group = self._options.group_id
        previous, plan = PlanOffset.parse(start, group), PlanOffset.parse(end, group)
        self._refuse_asynchronous_progress(previous, plan)
        self._speak_for(plan.stream)
        granted = self._running().claim(previous, plan)
        # Split the whole plan into tasks first, and then drop the ranges that are not granted. A replay may be granted less than
        # an earlier attempt, but a sink that has already written some of the tasks recognizes them by their numbers.
        ranges = [(partition, offsets) for partition, planned in sorted(plan.by_partition.items()) for offsets in planned]
        return [
            RangePartition(
                tuple(
                    FetchRange(*partition, *offsets, plan.epoch_of.get(partition))
                    for partition, offsets in granted_part(task, granted)
                ),
                plan.stream,
            )
            for task in tasks(ranges, *(plan.cut or (None, None)), plan.shared)
        ]

    def commit(self, end: dict[str, Any]) -> None:
        """Record that `end` is in Spark's commit log."""
        durable = PlanOffset.parse(end, self._options.group_id)
        self._newest_commit = durable.plan
        self._running().committed(durable)

    def stop(self) -> None:
        """Leave the group, and stop serving metrics."""
        if self._cycle is not None:
            self._cycle.stop()
        if self._metrics is not None:
            self._metrics.close()

    @shown_alone()
    def _next(self, start: dict[str, Any], *, limited: bool) -> dict[str, Any]:
        """Plan the micro-batch after `start`, which is in Spark's commit log. Return `start` itself if there is nothing new."""
        previous = PlanOffset.parse(start, self._options.group_id)
        self._speak_for(previous.stream)
        planned = self._running().plan(previous, limited=limited)
        if planned is None:
            return start
        self._newest_plan = planned.plan
        return planned.to_json()

    def _refuse_asynchronous_progress(self, start: PlanOffset, end: PlanOffset) -> None:
        """Refuse asynchronous progress tracking, which can be detected from the order of Spark's calls.

        Normally, Spark calls `commit(start)` after it has written `end` to its offset log, and before it asks for a new plan's
        partitions. With asynchronous progress tracking, a separate thread writes the logs, and `commit` comes later.
        """
        if end.plan == self._newest_plan and start.plan > self._newest_commit:
            raise AsynchronousProgress(
                "Spark asked for a micro-batch before it had logged the previous one, so asynchronous progress tracking is on. "
                "The query could then read records that no log contains. Remove asyncProgressTrackingEnabled from writeStream's "
                "options, and restart the query from its checkpoint."
            )

    def _running(self) -> Cycle:
        if self._cycle is None:
            from spark_groupsource.fetch.choice import warn_on_driver
            from spark_groupsource.query.cycle import Cycle

            self._speak_for(self._stream_name)
            log_to_stderr()
            if self._options.checkpoint_location is not None:  # on a thread, because the file system may hang
                threading.Thread(target=self._look_up_query, name="groupkafka-query-id", daemon=True).start()
            warn_on_driver()
            warn_of_blanks(self._options.group_id)
            collect_rarely()
            self._cycle = Cycle(self._options, observer=self._metered())
            leave_on_sigterm(self._cycle)
            leave_with_driver(self._cycle)
        return self._cycle

    def _look_up_query(self) -> None:
        """Read the query's id from its checkpoint, and add it to the log lines."""
        self._query_id = query_of_checkpoint(self._options.checkpoint_location)
        self._speak_for(self._stream_name)

    def _speak_for(self, stream: str | None) -> None:
        """Add the group, stream and, if known, query to every log line. Spark does not pass the query's id to a source."""
        self._stream_name = stream
        work_for(group=self._options.group_id, query=self._query_id, stream=stream)

    def _metered(self) -> Observer:
        """Return the cycle's observer. If metrics are enabled, start serving them before the query joins the group."""
        if self._options.metrics_port is None:
            return UNOBSERVED
        from spark_groupsource.metrics.server import serve
        from spark_groupsource.metrics.tally import Tally

        tally = Tally(self._options.group_id)
        self._metrics = serve(tally, self._options.metrics_host, self._options.metrics_port)
        return tally


class GroupKafkaBatchReader(_DriversReader, DataSourceReader):
    """The reader for a batch query, which does not join the group."""

    @shown_alone()
    def partitions(self) -> Sequence[InputPartition]:
        """Decide where the read starts and ends. Spark calls this once for each DataFrame, at its first action."""
        from spark_groupsource.fetch.choice import warn_on_driver
        from spark_groupsource.query.batch_plan import plan_batch

        work_for(group=self._options.group_id)
        log_to_stderr()
        warn_on_driver()
        warn_of_blanks(self._options.group_id)
        return [RangePartition(task.ranges, commit=task.commit) for task in plan_batch(self._options)]

    def task_reader(self) -> TaskReader:
        """Return the part of this reader that tasks need, with the settings for committing offsets."""
        return TaskReader(self._fetch_settings, self._options.client_settings())


class RefusedReader(DataSourceStreamReader):
    """A reader that raises an error when Spark first calls it. The first call depends on the version, trigger and checkpoint.

    PySpark's runner cannot show an error that `streamReader` itself raises, because its `finally` would stop a reader that does
    not exist and hide the error with an UnboundLocalError.

    Args:
        wrong: The error in the options or the schema, which the user must correct.
    """

    def __init__(self, wrong: GroupKafkaError) -> None:
        self._wrong = wrong

    @shown_alone()
    def _refuse(self, *asked: Any, **by_name: Any) -> NoReturn:
        raise self._wrong

    # Spark counts the parameters of `latestOffset` before it calls it (version_readers.py), so `_refuse` takes any.
    initialOffset = _refuse
    latestOffset = _refuse
    partitions = _refuse
    read = _refuse
    getDefaultReadLimit = _refuse
    prepareForTriggerAvailableNow = _refuse


def collect_rarely() -> None:
    """Make the garbage collector run rarely in this process.

    A plan with thousands of partitions creates many objects that all live for a while. With Python's default thresholds, the
    collector took more than half of the planning time.
    """
    gc.set_threshold(COLLECT_AFTER_OBJECTS)


def leave_on_sigterm(cycle: Cycle) -> None:
    """Install a signal handler that leaves the group when Spark stops the query.

    The JVM sends SIGTERM to the runner and does not wait for `stop`. The handler is installed only on the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    earlier_handler = signal.getsignal(signal.SIGTERM)

    def leave(number: int, frame: FrameType | None) -> None:
        cycle.stop()
        if callable(earlier_handler):
            earlier_handler(number, frame)
        else:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    signal.signal(signal.SIGTERM, leave)


def leave_with_driver(cycle: Cycle) -> None:
    """Start a thread that leaves the group and exits this process when the driver has died.

    Between Spark's calls, the runner notices by itself that the driver has died. During a call that waits for a broker or another
    member, it does not notice, and would keep the driver's partitions until the wait ends.
    """
    driver = os.getppid()

    def watch() -> None:
        while os.getppid() == driver:
            time.sleep(LOOK_AT_DRIVER_EVERY_S)
        cycle.stop(with_driver=True)
        os._exit(1)

    threading.Thread(target=watch, name="groupkafka-driver-watch", daemon=True).start()
