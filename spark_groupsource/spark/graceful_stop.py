"""Stops queries after their running micro-batch, and waits for queries until the program is asked to end.

Spark itself only interrupts a query. Here the source plans nothing new, so the running micro-batch is the last one:

1. A file asks the source's process for that (reports/driver_reports.py). It is named after the stream, whose name is in the
   query's offsets.
2. Spark finishes its micro-batch. That is reported to the source, with or without a listener.
3. Between two micro-batches the query is stopped. The source confirms what it has claimed, leaves the group, and answers.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from spark_groupsource.checkpoint.offset_log import offsets_by_stream
from spark_groupsource.errors import NotWithSparkConnect, ReportsUnavailable
from spark_groupsource.patience import Deadline
from spark_groupsource.reports.driver_reports import DriverReports
from spark_groupsource.spark.durable_listener import driver_process
from spark_groupsource.timeouts import AT_STOP_S

log = logging.getLogger(__name__)

TIMEOUT_S = 20.0
"""How long the running micro-batches may take. Kubernetes kills a pod 30 s after SIGTERM."""

LEFT_WITHIN_S = AT_STOP_S + 1.0
"""How much longer than `timeout_s` the sources may take to confirm what they have claimed, and to leave the group."""

LOOK_EVERY_S = 0.1
"""Seconds between two looks at the queries."""

RANGES_SHOWN = 10
"""How many ranges of an interrupted micro-batch the warning names."""

Offset = dict[str, Any]


def stop_gracefully(query: StreamingQuery, timeout_s: float = TIMEOUT_S) -> bool:
    """Stop a query after its running micro-batch, so that nothing stays claimed and no record is read twice.

    No listener is needed. The query's own `foreachBatch` must not call this. Other sources of the query are interrupted once the
    ranges of this one are confirmed, and so may be a micro-batch without records, as stateful queries have them.

    Args:
        query: a query that this program has started.
        timeout_s: seconds that the running micro-batch may take. Then it is interrupted, as by `query.stop()`. What is left of
            this time, and 6 s more, is for the source to leave the group.

    Returns:
        Whether nothing stays claimed. Otherwise a warning says what does, and the query's next start reads it first.

    Raises:
        NotWithSparkConnect: The query is of Spark Connect. It still runs.
    """
    _refuse_connect([query])
    return _stop([query], timeout_s, hurried=lambda: False)


def await_termination(*queries: StreamingQuery, timeout_s: float = TIMEOUT_S) -> bool:
    """Wait until all queries have ended. SIGTERM and SIGINT (Ctrl-C) stop them gracefully, and a second signal at once.

    If a query fails, the others are stopped gracefully. Signals are handled on the main thread only. At the end the handlers of
    before are back.

    Args:
        queries: queries that this program has started.
        timeout_s: seconds that a graceful stop may take, for all queries together. How long the queries run is not limited.

    Returns:
        Whether nothing stays claimed by a query that was stopped. See `stop_gracefully`.

    Raises:
        StreamingQueryException: A query has failed: its own error.
        NotWithSparkConnect: A query is of Spark Connect. All queries still run.
    """
    _refuse_connect(queries)
    running = list(queries)
    with _signals() as received:
        try:
            while running and not received:
                for query in [each for each in running if not each.isActive]:
                    running.remove(query)
                    query.awaitTermination()  # it has ended, so this only raises its error
                time.sleep(LOOK_EVERY_S)
        finally:
            nothing_claimed = _stop(running, timeout_s, hurried=lambda: len(received) > 1)
    for query in running:
        if (error := query.exception()) is not None:  # without a wait, which would not end for a query that hangs
            raise error
    return nothing_claimed


def _refuse_connect(queries: Sequence[StreamingQuery]) -> None:
    if any(type(query).__module__.startswith("pyspark.sql.connect") for query in queries):
        raise NotWithSparkConnect(
            "a query of Spark Connect cannot be stopped gracefully, because its driver may run on another host. Nothing was "
            "stopped. Call query.stop(): it interrupts the running micro-batch, whose ranges stay claimed until the query is "
            "started again on its checkpoint"
        )


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Collect SIGTERM and SIGINT. With the second one the handlers of before are back, so that a third one ends what hangs."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # Python lets no other thread set handlers
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
    """Stop queries, each after its running micro-batch, and return whether nothing stays claimed.

    Args:
        queries: the queries.
        timeout_s: seconds for the micro-batches of all of them.
        hurried: whether they are to be stopped at once.
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
            for _ in deadline.attempts(LOOK_EVERY_S):
                running = [stop for stop in running if not stop.is_over()]
                if not running or hurried():
                    break
        for stop in stops:
            stop.report_finished()  # a micro-batch may have ended between the last look and the interruption
        # A rebalance, as when another query of the group leaves, may delay the source's last commit.
        for _ in Deadline(deadline.left + LEFT_WITHIN_S).attempts(LOOK_EVERY_S):
            if hurried() or not any(stop.unanswered() for stop in stops):
                break
        return not [stop for stop in stops if stop.warn_of_claims()] and not hanging
    except ReportsUnavailable as error:
        log.warning(
            "the source cannot be asked to plan nothing new: %s. The queries were stopped as by query.stop(): what they had "
            "claimed may stay claimed until they are started again on their checkpoints",
            error,
        )
        return False
    finally:
        for stop in stops:
            stop.forget()


def _end(hanging: list[StreamingQuery], query: StreamingQuery) -> None:
    """Stop a query as `query.stop()` does; note and log if it does not end. One that hangs is not tried again."""
    if query in hanging:
        return
    try:
        query.stop()
    except Exception as error:  # noqa: BLE001 -- usually Java's TimeoutException after `spark.sql.streaming.stopTimeout`
        hanging.append(query)
        log.warning(
            "query %s has not ended: %s. Its code goes on, and may still write rows. What it has claimed may stay claimed. End "
            "this program, and start the query again on its checkpoint",
            query.name or query.id,
            " ".join(str(error).splitlines()[:2]),
        )


class _Stop:
    """One query that is being stopped."""

    def __init__(self, query: StreamingQuery, reports: DriverReports, end: Callable[[StreamingQuery], None]) -> None:
        self._query = query
        self._reports = reports
        self._end = end
        self._execution = query._jsq.streamingQuery()
        self._asked: dict[str, bytes] = {}
        """The newest request to the source of each stream."""
        self._batch: int | None = None
        """The newest micro-batch that was finished when the source was asked."""
        self._ended_by_itself = False

    def is_over(self) -> bool:
        """Ask the source to plan nothing new; stop the query if it is between two micro-batches, and return whether it is."""
        if self._has_ended():
            return True
        if self._is_new():  # nothing is claimed before the first micro-batch is in the offset log
            self._end(self._query)
            return True
        # Each time: this run removes what it finds when it begins to plan.
        streams = self._offsets("availableOffsets").keys()
        new = [stream for stream in streams if self._reports.asked_to_stop(stream) != self._asked.get(stream, b"")]
        for stream in new:
            self._asked[stream] = self._reports.ask_to_stop(stream)
        if self._has_ended():
            for stream in new:  # nobody is left to answer
                del self._asked[stream]
                self._reports.end_stop(stream)
            return True
        self.report_finished()
        if not self._is_between():
            return False
        self._end(self._query)
        return True

    def _has_ended(self) -> bool:
        """Whether the query has ended by itself, or is about to: Spark stops the source before it says that it has ended."""
        message = self._query.status["message"]
        self._ended_by_itself = not self._query.isActive or message.startswith(("Stopped", "Terminated"))
        return self._ended_by_itself

    def _is_new(self) -> bool:
        """Whether no run of the query has planned a micro-batch yet."""
        # While Spark makes the sources, it holds a lock that the offset log needs.
        if self._query.status["message"].startswith("Initializing") or self._lines("availableOffsets"):
            return False
        try:
            return bool(self._execution.offsetLog().getLatest().isEmpty())
        except Exception:  # noqa: BLE001 -- its file system may raise anything, and then the query says it
            return False

    def _is_between(self) -> bool:
        """Whether the query is between two micro-batches, and none with this source's records can begin."""
        progress = self._query.lastProgress
        if progress is None:
            return False  # the first trigger of the run is not over. It may finish a micro-batch of the run before
        if self._batch is None:
            self._batch = progress.batchId
        if self._query.status["isTriggerActive"]:
            # Another source leaves no pause between two triggers. One that began before the source was asked may have planned.
            has_others = len(self._lines("availableOffsets")) > len(self._asked) > 0
            if not has_others or progress.batchId < self._batch + 2:
                return False
        return not self._unfinished()

    def report_finished(self) -> None:
        """Report the newest finished micro-batch to the source."""
        for stream, offset in self._offsets("committedOffsets").items():
            if offset["plan"] >= 0:
                self._reports.write(stream, offset["plan"])

    def unanswered(self) -> list[str]:
        """Return the streams whose source has not left the group yet, or has left with something claimed."""
        return [stream for stream, request in self._asked.items() if not self._reports.is_answered(stream, request)]

    def warn_of_claims(self) -> bool:
        """Warn of what may stay claimed, and return whether there is anything."""
        if self._is_new():
            return False
        if not self._lines("availableOffsets"):
            log.warning(
                "query %s was stopped before it had read its checkpoint. What an earlier run has claimed stays claimed until the "
                "query is started again",
                self._query.name or self._query.id,
            )
            return True
        planned = {stream for stream, offset in self._offsets("availableOffsets").items() if offset["plan"] >= 0}
        unfinished = self._unfinished()
        unanswered = set(self.unanswered())
        if not self._ended_by_itself:  # the first plan may have come after the last look
            unanswered |= planned - self._asked.keys()
        may_be_claimed = planned & (unanswered | unfinished.keys())
        for stream in sorted(may_be_claimed):
            if stream in unfinished:
                log.warning(
                    "a micro-batch of stream %s was interrupted: %s may stay claimed, and then only this query reads them. Start "
                    "it again on its checkpoint. If it ran out of time, it needs a longer timeout_s, or smaller micro-batches",
                    stream,
                    _ranges(unfinished[stream]),
                )
            else:
                log.warning(
                    "the source of stream %s has not confirmed its last micro-batch yet. It is written, and may stay claimed: "
                    "groupkafka claims shows that. The query's next start confirms it",
                    stream,
                )
        return bool(may_be_claimed)

    def forget(self) -> None:
        """Ask for nothing any more."""
        for stream in self._asked:
            self._reports.end_stop(stream)
        self._asked.clear()

    def _unfinished(self) -> dict[str, Offset]:
        """Return the offsets of a micro-batch that is planned and not finished, by stream."""
        finished = self._offsets("committedOffsets")
        planned = self._offsets("availableOffsets")
        return {stream: offset for stream, offset in planned.items() if offset != finished.get(stream)}

    def _offsets(self, which: str) -> dict[str, Offset]:
        """Return the newest planned or committed offset of each stream."""
        return offsets_by_stream(self._lines(which))

    def _lines(self, which: str) -> list[str]:
        """Return the newest planned or committed offset of each source."""
        offsets = getattr(self._execution, which)().valuesIterator()
        found = []
        while offsets.hasNext():
            found.append(offsets.next().json())
        return found


def _ranges(offset: Offset) -> str:
    """Return the ranges of an offset as a text, shortened."""
    ranges = [
        f"{topic}-{partition} [{start}, {end})"
        for topic, partitions in offset["ranges"].items()
        for partition, each in partitions.items()
        for start, end in each
        if start < end
    ]
    more = len(ranges) - RANGES_SHOWN
    return ", ".join(ranges[:RANGES_SHOWN]) + (f" and {more} more ranges" if more > 0 else "")
