"""Sets up what Spark's Python processes show: log lines that name the query, and errors in the user's input.

The data source imports this module in every process, so modules that only logging needs are imported when logging is set up.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import TaskContext

from spark_groupsource.errors import CheckpointUnreadable, OptionError, SchemaError
from spark_groupsource.subject import FIELD, name_in_records

log = logging.getLogger(__name__)

LEVEL = "GROUPKAFKA_LOG_LEVEL"
"""The environment variable with the log level. For a registered source, `spark.executorEnv.*` sets it in all Python processes."""

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
"""The environment variable that makes PySpark 4.0 and later leave out the traceback (`handle_worker_exception`)."""


_QUERY_ID = "sql.streaming.queryId"
"""The local property of Spark jobs that contains the query's id."""


def log_to_stderr() -> None:
    """Write the package's log lines to stderr, at the level that the LEVEL environment variable sets.

    Spark's Python processes configure no logging. The JVM copies the runner's stderr to the driver's, and a worker's stderr to
    its executor's. Without a handler, Python would write warnings to stderr as bare text, and drop everything below WARNING.
    Many processes share one stderr, so each line names the group and the query (subject.py).

    The handler writes a repeated warning once a minute, with the number of suppressed lines. If the logger already has a handler,
    no second one is added.

    Call this in the runner before it plans, and in a worker before each task reads, because Spark's own handler
    (`spark.sql.pyspark.worker.logging.enabled`) exists for only one task.

    Raises:
        OptionError: The value of the environment variable is not one of LEVELS.
    """
    from spark_groupsource.brokers.repeated_lines import RepeatFilter

    name_in_records()
    logger = logging.getLogger("spark_groupsource")
    level = os.environ.get(LEVEL)
    if level is not None:
        if level.upper() not in LEVELS:
            raise OptionError(f"The environment variable {LEVEL} is {level!r}, but must be one of {', '.join(LEVELS)}.")
        logger.setLevel(level.upper())
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(f"%(asctime)s %(levelname)s %(name)s: %({FIELD})s%(message)s"))
        handler.addFilter(RepeatFilter())
        logger.addHandler(handler)


def query_of_task() -> str | None:
    """Return the id of the streaming query that this task belongs to, or `None` if there is none or Spark does not name it."""
    context = TaskContext.get()
    query: str | None = None if context is None else context.getLocalProperty(_QUERY_ID)
    return query


def query_of_checkpoint(location: str | None) -> str | None:
    """Return the query's id from its checkpoint's `metadata` file, or `None` if this process cannot read the file."""
    if location is None:
        return None
    from spark_groupsource.checkpoint.files import CheckpointFiles

    try:
        return CheckpointFiles(location).query_id()
    except CheckpointUnreadable:
        return None


@contextmanager
def shown_alone() -> Iterator[None]:
    """Make Spark show an OptionError or SchemaError from the `with` block without a traceback. Other errors keep theirs.

    The message of such an error contains everything that the user needs. Spark's Python process passes an error to the JVM as
    text, and exits. Spark shows the text in its log, and again at the user's call.
    """
    try:
        yield
    except (OptionError, SchemaError):
        os.environ[HIDE_TRACEBACK] = "true"
        raise


def warn_of_blanks(group: str) -> None:
    """Warn about blanks around a group's name. A query that uses the name without these blanks is in a different group."""
    if group != group.strip():
        log.warning(
            "kafka.group.id = %r has blanks around the name. To Kafka, they are part of the name, so this is a different group "
            "from %r",
            *(group, group.strip()),
        )
