"""Implements the writers that Spark uses for a micro-batch and for a batch write.

Spark creates a writer on the driver and sends it to each task. After the tasks have finished, Spark creates another writer on the
driver for `commit`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyspark.sql.datasource as spark
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import Row, StructType

from spark_groupsource.errors import ReportsUnavailable, SinkError
from spark_groupsource.sink.batch_report import BatchReport, write_report
from spark_groupsource.sink.settings import SinkSettings
from spark_groupsource.spark.messages import log_to_stderr, query_of_checkpoint, query_of_task
from spark_groupsource.spark.worker import PromptlyAcknowledged, ended_by_signals, freeze_imports, sees_the_end, whole
from spark_groupsource.subject import work_for

if TYPE_CHECKING:
    import pyarrow as pa

ARROW_WRITERS = hasattr(spark, "DataSourceStreamArrowWriter")
"""Whether this Spark version passes Arrow batches to a writer, as versions since 4.1 do. Spark 4.0 passes rows."""

if TYPE_CHECKING or ARROW_WRITERS:
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
else:
    DataSourceArrowWriter, DataSourceStreamArrowWriter = spark.DataSourceWriter, spark.DataSourceStreamWriter

log = logging.getLogger(__name__)

_RUN = re.compile(r"[0-9a-f-]{0,36}")

_ROWS_AT_ONCE = 10_000
_BYTES_AT_ONCE = 16 * 1024 * 1024

WRITING = "A task cannot write"
"""The beginning of the error message when a writing task runs out of memory."""

_BATCH_ID = "streaming.sql.batchId"
_RUN_ID = "spark.jobGroup.id"
"""The local properties of Spark jobs that contain the micro-batch and the query's run."""

_NO_END = (
    "A task cannot find out whether it was cancelled before its last row, because this platform starts Spark's Python workers "
    "differently"
)
_NO_NUMBER = "This platform does not tell a task which micro-batch it belongs to"


@dataclass
class Done(WriterCommitMessage):
    """A task's report to the driver, once the task has written its rows."""

    query: str
    """The query's id; empty in a batch write."""
    run: str
    """The query's run; empty in a batch write."""
    task: int
    retried: bool
    """Whether this is not the task's first attempt."""
    written: int
    skipped: int
    left: int
    topics: tuple[str, ...]
    commit_s: float


class _Writer(PromptlyAcknowledged):
    """The parts that all writers share.

    Args:
        settings: How to write.
        schema: The schema of the rows.
        checkpoint: The writer's `checkpointLocation` option.
    """

    def __init__(self, settings: SinkSettings, schema: StructType, checkpoint: str | None = None) -> None:
        self._settings = settings
        self._schema = schema
        self._checkpoint = checkpoint

    def write(self, iterator: Iterator[Any]) -> Done:
        """Write one task's rows: record batches or, with Spark 4.0, rows."""
        from spark_groupsource.brokers.process_limits import limits_named
        from spark_groupsource.sink.writing import Attempt, write_at_least_once, write_once

        query = query_of_task() or ""
        self._speak_for(query)
        context = TaskContext.get()
        assert context is not None  # noqa: S101 -- a writer's `write` runs in a task
        # The platform may name the job group differently.
        group = context.getLocalProperty(_RUN_ID) or ""
        run = group if _RUN.fullmatch(group) else ""
        batches: Iterator[pa.RecordBatch] = iterator if ARROW_WRITERS else self._batches(iterator)
        ended = sees_the_end()
        if ended is not None:
            batches = whole(batches, ended)
        with limits_named(WRITING):
            if not self._settings.exactly_once:
                report = write_at_least_once(self._settings, batches)
            else:
                batch = context.getLocalProperty(_BATCH_ID)
                if ended is None or batch is None or not query:
                    raise SinkError(
                        f"{_NO_END if ended is None else _NO_NUMBER}, so the sink cannot write exactly once here. No row of the "
                        "task has been written. Set deliveryGuarantee=at-least-once."
                    )
                attempt = Attempt(int(batch), context.partitionId(), run, query, context.attemptNumber())
                with ended_by_signals():
                    report = write_once(self._settings, self._settings.names(query), attempt, batches)
        freeze_imports()
        return Done(query, run, context.partitionId(), context.attemptNumber() > 0, *report)

    def _speak_for(self, query: str | None) -> None:
        """Identify the query in log lines and to the brokers."""
        if query:
            self._settings = self._settings.for_query(query)
        work_for(query=query, topic=self._settings.topic)
        log_to_stderr()

    def _batches(self, rows: Iterator[Any]) -> Iterator[pa.RecordBatch]:
        """Convert rows from Spark 4.0 into record batches."""
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        schema = to_arrow_schema(self._schema)
        for chunk in _chunks(rows):
            columns = [[_plain(row[at]) for row in chunk] for at in range(len(schema))]
            arrays = [pa.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names=schema.names)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """The writer for a batch write."""


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """The writer for a micro-batch."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 -- Spark's name
        """Commit the driver's token once all tasks of the micro-batch have written, and report what they wrote.

        Raises:
            ReplayDiffers, CheckpointBehindSink: See sink/rules.py.
            BrokerError: The token cannot be committed.
        """
        done = [message for message in messages if isinstance(message, Done)]
        self._speak_for(done[0].query if done else None)
        written, skipped = sum(report.written for report in done), sum(report.skipped for report in done)
        not_written = sum(report.left for report in done)
        if self._settings.exactly_once and done:
            from spark_groupsource.sink.finishing import Tasks, finish

            tasks = Tasks(
                len(messages),
                written + skipped,
                tuple(sorted({topic for report in done for topic in report.topics})),
                wrote=frozenset(report.task for report in done if report.written or report.skipped),
                empty=frozenset(report.task for report in done if not report.written and not report.skipped and not report.left),
                retried=frozenset(report.task for report in done if report.retried),
            )
            finish(self._settings, self._settings.names(done[0].query), batchId, done[0].run, tasks)
        commit_ms = round(1000 * max((report.commit_s for report in done), default=0.0))
        if done:
            try:
                write_report(BatchReport(done[0].run, batchId, written, skipped, commit_ms))
            except ReportsUnavailable as unavailable:
                log.info("failed to report micro-batch %d to a LagListener: %s", batchId, unavailable)
        if not_written:
            log.warning("Micro-batch %d: %d rows were not written (skipBatch).", batchId, not_written)
        log.info(
            "Micro-batch %d: %d rows written, %d already in the topic, by %d tasks. The longest commit took %d ms.",
            batchId,
            written,
            skipped,
            len(done),
            commit_ms,
        )

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 -- Spark's name
        """Abort the transactions of tasks that have not finished writing, because `read_committed` consumers wait for them.

        A cancelled task aborts its own transaction, but a task whose worker was killed does not.
        """
        if not self._settings.exactly_once:
            return
        done = [message for message in messages if isinstance(message, Done)]
        unfinished = set(range(len(messages))) - {report.task for report in done}
        # Spark does not pass the query here, but a task that has written does. The checkpoint has it, too, if it can be read.
        query = done[0].query if done else query_of_checkpoint(self._checkpoint)
        self._speak_for(query)
        log.info("Micro-batch %d was aborted; %d of its tasks had not written their rows.", batchId, len(unfinished))
        if query is None:
            log.info("Killed workers' transactions will stay open until the query is restarted, or until they time out.")
            return
        from spark_groupsource.sink.finishing import abort

        abort(self._settings, self._settings.names(query), unfinished)


def _chunks(rows: Iterator[Any]) -> Iterator[list[Any]]:
    """Yield the rows for one record batch at a time: up to 10,000 rows, or until they have 16 MiB of strings and bytes."""
    chunk, size = [], 0
    for row in rows:
        chunk.append(row)
        size += sum(len(value) for value in row if isinstance(value, str | bytes | bytearray))
        if len(chunk) == _ROWS_AT_ONCE or size >= _BYTES_AT_ONCE:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _plain(value: Any) -> Any:
    """Convert a value from a Spark row into the form that Arrow accepts."""
    if isinstance(value, list):
        return [element.asDict() if isinstance(element, Row) else element for element in value]
    return bytes(value) if isinstance(value, bytearray) else value
