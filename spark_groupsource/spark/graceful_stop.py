"""Stops queries once their running micro-batch has finished, and waits for queries until the program is asked to exit.

`query.stop()` alone interrupts the running micro-batch. A graceful stop makes it the last one instead:

1. The program asks the source, through a file (reports/driver_reports.py), to plan nothing new. The file is named after the
   stream, whose name is in the query's offsets.
2. Spark finishes its micro-batch. The program reports that to the source, so no listener is needed.
3. The source answers once it has returned an empty plan to Spark. If the next trigger is far away, Spark does not ask for a plan.
4. The program stops the query between two micro-batches. The source confirms its claims, leaves the group, and answers again.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from spark_groupsource.checkpoint.offset_log import offsets_by_stream
from spark_groupsource.errors import NotWithSparkConnect, ReportsUnavailable
from spark_groupsource.partition import listed
from spark_groupsource.patience import Deadline
from spark_groupsource.reports.driver_reports import Answer, DriverReports
from spark_groupsource.spark.durable_listener import driver_process
from spark_groupsource.timeouts import AT_STOP_S, RETRY_INTERVAL_S

log = logging.getLogger(__name__)

TIMEOUT_S = 20.0
"""How long the running micro-batches may take, in seconds. Kubernetes kills a pod 30 s after SIGTERM."""

LEFT_WITHIN_S = AT_STOP_S + 1.0
"""How much longer than `timeout_s` the sources may take to confirm their claims and leave the group, in seconds."""

RANGES_SHOWN = 10
"""The maximum number of an interrupted micro-batch's ranges that a warning lists."""

HAS_LEFT = frozenset({Answer.LEFT, Answer.LEFT_WITH_CLAIMS})

Offset = dict[str, Any]


def stop_gracefully(query: StreamingQuery, timeout_s: float = TIMEOUT_S) -> bool:
    """Stop a query once its running micro-batch has finished, so that nothing remains claimed and no record is read twice.

    No listener is needed. Do not call this function in the query's own `foreachBatch`. If the query has other sources, Spark may
    interrupt a micro-batch that has records only from them. It may also interrupt a micro-batch without records, such as those
    that stateful queries run.

    Args:
        query: a query that this program has started.
        timeout_s: how many seconds the running micro-batch may take before it is interrupted, as by `query.stop()`. The source
            then has the rest of this time, and 6 s more, to leave the group.

    Returns:
        True if nothing remains claimed. Otherwise, a warning lists the ranges that do, and the query reads them first when you
        restart it.

    Raises:
        NotWithSparkConnect: This is a Spark Connect query. It continues to run.
    """
    _refuse_connect([query])
    return _stop([query], timeout_s, hurried=lambda: False)


def await_termination(*queries: StreamingQuery, timeout_s: float = TIMEOUT_S) -> bool:
    """Wait until all queries have ended. SIGTERM or SIGINT (Ctrl-C) stops them gracefully; a second signal stops them at once.

    If a query fails, the others are stopped gracefully. Signals are handled only on the main thread, and the previous handlers
    are restored at the end.

    Args:
        queries: queries that this program has started.
        timeout_s: how many seconds it may take to stop all queries gracefully. The queries themselves may run forever.

    Returns:
        True if the queries that were stopped have no claims left. See `stop_gracefully`.

    Raises:
        StreamingQueryException: A query has failed. This is the query's own error.
        NotWithSparkConnect: One of them is a Spark Connect query. All queries continue to run.
    """
    _refuse_connect(queries)
    running = list(queries)
    with _signals() as received:
        try:
            while running and not received:
                for query in [each for each in running if not each.isActive]:
                    running.remove(query)
                    query.awaitTermination()  # the query has ended, so this call only raises the query's error
                time.sleep(RETRY_INTERVAL_S)
        finally:
            nothing_claimed = _stop(running, timeout_s, hurried=lambda: len(received) > 1)
    for query in running:
        if (error := query.exception()) is not None:  # do not wait, because the query may hang
            raise error
    return nothing_claimed


def _refuse_connect(queries: Sequence[StreamingQuery]) -> None:
    if any(type(query).__module__.startswith("pyspark.sql.connect") for query in queries):
        raise NotWithSparkConnect(
            "a Spark Connect query cannot be stopped gracefully, because its driver may run on another host. Nothing was "
            "stopped. Call query.stop(): it interrupts the running micro-batch, whose ranges remain claimed until you restart "
            "the query from its checkpoint"
        )


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Collect SIGTERM and SIGINT. The second signal restores the previous handlers, so that a third can end a hanging program."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # Python does not let other threads set handlers
        yield received
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)

    def note(number: int, _frame: object) -> None:
        received.append(number)
        if len(received) > 1:
            restore()

    try:
        for number in before:
            signal.signal(number, note)
        yield received
    finally:
        restore()


def _stop(queries: Sequence[StreamingQuery], timeout_s: float, *, hurried: Callable[[], bool]) -> bool:
    """Stop each query once its running micro-batch has finished, and return True if nothing remains claimed.

    Args:
        queries: the queries.
        timeout_s: how many seconds their micro-batches may take in total.
        hurried: returns whether to stop without waiting any longer.
    """
    if not queries:
        return True
    stops: list[_Stop] = []
    hanging: list[StreamingQuery] = []
    end = partial(_end, hanging)
    try:
        with ExitStack() as whatever_happens:
            for query in queries:
                whatever_happens.callback(end, query)
            reports = DriverReports(driver_process())
            stops += [_Stop(query, reports, end) for query in queries]
            running = stops
            deadline = Deadline(timeout_s)
            for _ in deadline.attempts():
                running = [stop for stop in running if not stop.is_over()]
                if not running or hurried():
                    break
            for stop in running:
                stop.interrupt()
        # A rebalance may delay the source's last commit, for example because another of the group's queries leaves.
        for _ in Deadline(deadline.left + LEFT_WITHIN_S).attempts():
            if hurried() or not any(stop.is_unanswered() for stop in stops):
                break
        return not [stop for stop in stops if stop.warn_of_claims()] and not hanging
    except ReportsUnavailable as error:
        log.warning(
            "the source could not be asked to stop reading new records: %s. The queries were stopped as if by query.stop(), so "
            "the ranges of interrupted micro-batches remain claimed until you restart the queries from their checkpoints",
            error,
        )
        return False
    finally:
        for stop in stops:
            stop.forget()


def _end(hanging: list[StreamingQuery], query: StreamingQuery) -> None:
    """Stop a query with `query.stop()`, unless it is in `hanging`. If it does not stop, log that, and add it to `hanging`."""
    if query in hanging:
        return
    try:
        query.stop()
    except Exception as error:  # noqa: BLE001 -- usually Java's TimeoutException after `spark.sql.streaming.stopTimeout`
        hanging.append(query)
        log.warning(
            "query %s has not stopped: %s. Its code is still running and may write more rows, and its claims may stay "
            "unconfirmed. End this program, and restart the query from its checkpoint",
            query.name or query.id,
            " ".join(str(error).splitlines()[:2]),
        )


class _Stop:
    """Stops one query gracefully."""

    def __init__(self, query: StreamingQuery, reports: DriverReports, end: Callable[[StreamingQuery], None]) -> None:
        self._query = query
        self._reports = reports
        self._end = end
        self._execution = query._jsq.streamingQuery()
        self._asked: dict[str, bytes] = {}
        """The newest request to each stream's source."""
        self._ended_by_itself = False

    def is_over(self) -> bool:
        """Ask the source to plan nothing new, stop the query between two micro-batches, and return whether it has ended."""
        # Read these before checking the request. A run has no progress before its first trigger, which removes earlier requests.
        progress, status = self._query.lastProgress, self._query.status
        if self._has_ended(status):
            self.report_finished()  # its source waits briefly for this report before it leaves
            return True
        lines = self._lines("availableOffsets")
        if self._is_new(status, lines):  # nothing is claimed before the first micro-batch is in the offset log
            self._end(self._query)
            return True
        planned = offsets_by_stream(lines)
        unasked = [stream for stream in planned if not self._has_asked(stream)]
        if unasked:
            for stream in unasked:
                self._asked[stream] = self._reports.ask_to_stop(stream)
            # Read these again, because a trigger that began before the request may have planned something.
            progress, status = self._query.lastProgress, self._query.status
            if self._has_ended(status):
                for stream in unasked:  # no source is left to answer
                    del self._asked[stream]
                    self._reports.end_stop(stream)
                self.report_finished()
                return True
        finished = self.report_finished()
        if not self._is_between(progress, status) or _unfinished(planned, finished):
            return False
        self._end(self._query)
        return True

    def interrupt(self) -> None:
        """Stop the query during its running micro-batch."""
        self._end(self._query)
        self.report_finished()  # the micro-batch may have just finished, and its source waits briefly for the report

    def _has_asked(self, stream: str) -> bool:
        """Return whether a source has the newest request, or left after it. A new run removes the requests that it finds."""
        request = self._asked.get(stream)
        if request is None:
            return False
        return self._reports.asked_to_stop(stream) == request or self._reports.answer(stream, request) in HAS_LEFT

    def _has_ended(self, status: Mapping[str, Any]) -> bool:
        """Return whether the query has ended by itself, or is about to. Spark stops the source before the query is inactive."""
        self._ended_by_itself = status["message"].startswith(("Stopped", "Terminated")) or not self._query.isActive
        return self._ended_by_itself

    def _is_new(self, status: Mapping[str, Any], lines: Sequence[str]) -> bool:
        """Return whether none of the query's runs has planned a micro-batch yet.

        Args:
            status: the query's status.
            lines: the newest planned offsets, read after the status.
        """
        # While Spark creates the sources, it holds a lock that the offset log needs.
        if status["message"].startswith("Initializing") or lines:
            return False
        try:
            return bool(self._execution.offsetLog().getLatest().isEmpty())
        except Exception:  # noqa: BLE001 -- a file system may raise anything, and then the query itself fails, too
            return False

    def _is_between(self, progress: StreamingQueryProgress | None, status: Mapping[str, Any]) -> bool:
        """Return whether the query is between two triggers, or at most running a micro-batch without this source's records.

        Args:
            progress: this run's newest progress.
            status: the query's status, read after the progress.
        """
        # Once a source has planned nothing, it plans nothing in later triggers either. Triggers may follow each other without a
        # pause, but a trigger that is waiting for its time does not call the source.
        if self._asked and set(self._answers().values()) == {Answer.PLANS_NOTHING}:
            return True
        # A run's first trigger may finish an earlier run's micro-batch. There is no progress until that trigger is over.
        return progress is not None and not status["isTriggerActive"]

    def report_finished(self) -> dict[str, Offset]:
        """Report the newest finished micro-batch to the source, and return its offsets by stream."""
        finished = offsets_by_stream(self._lines("committedOffsets"))
        for stream, offset in finished.items():
            if offset["plan"] >= 0:
                self._reports.write(stream, offset["plan"])
        return finished

    def is_unanswered(self) -> bool:
        """Return whether a source may still leave the group and answer."""
        return not HAS_LEFT.issuperset(self._answers().values())

    def warn_of_claims(self) -> bool:
        """Warn about ranges that may remain claimed, and return whether there are any."""
        status = self._query.status
        lines = self._lines("availableOffsets")
        if self._is_new(status, lines):
            return False
        if not lines:
            log.warning(
                "query %s was stopped before it had read its checkpoint. Ranges that an earlier run claimed remain claimed "
                "until you restart the query",
                self._query.name or self._query.id,
            )
            return True
        planned = {stream: offset for stream, offset in offsets_by_stream(lines).items() if offset["plan"] >= 0}
        unfinished = _unfinished(planned, offsets_by_stream(self._lines("committedOffsets")))
        unconfirmed = {stream for stream, answer in self._answers().items() if answer is not Answer.LEFT}
        if not self._ended_by_itself:  # the first plan may have come after the last check
            unconfirmed |= planned.keys() - self._asked.keys()
        may_be_claimed = planned.keys() & (unconfirmed | unfinished.keys())
        for stream in sorted(may_be_claimed):
            if stream in unfinished:
                log.warning(
                    "a micro-batch of stream %s was interrupted, so %s may remain claimed, and only this query will read them. "
                    "Restart the query from its checkpoint. If the micro-batch ran out of time, use a longer timeout_s, or "
                    "smaller micro-batches",
                    stream,
                    listed(_ranges(unfinished[stream]), RANGES_SHOWN),
                )
            else:
                log.warning(
                    "the source of stream %s has not confirmed its last micro-batch. The micro-batch's rows have been written, "
                    "but its ranges may remain claimed (see `groupkafka claims`). The query will confirm them when you restart "
                    "it",
                    stream,
                )
        return bool(may_be_claimed)

    def forget(self) -> None:
        """Withdraw the requests."""
        for stream in self._asked:
            self._reports.end_stop(stream)
        self._asked.clear()

    def _answers(self) -> dict[str, Answer | None]:
        """Return the newest answer from each stream's source, or `None` if it has not answered yet."""
        return {stream: self._reports.answer(stream, request) for stream, request in self._asked.items()}

    def _lines(self, which: str) -> list[str]:
        """Return each source's newest planned or committed offset."""
        offsets = getattr(self._execution, which)().valuesIterator()
        found = []
        while offsets.hasNext():
            found.append(offsets.next().json())
        return found


def _unfinished(planned: Mapping[str, Offset], finished: Mapping[str, Offset]) -> dict[str, Offset]:
    """Return the offsets of a micro-batch that has been planned but not finished, by stream."""
    return {stream: offset for stream, offset in planned.items() if offset != finished.get(stream)}


def _ranges(offset: Offset) -> Iterator[str]:
    """Yield an offset's ranges as text."""
    for topic, partitions in offset["ranges"].items():
        for partition, ranges in partitions.items():
            yield from (f"{topic}-{partition} [{start}, {end})" for start, end in ranges if start < end)
