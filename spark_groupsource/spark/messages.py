"""What a Python process of Spark shows: log lines on stderr, and errors of the user's own input without a traceback.

The data source imports this module in every process, so what only a log line needs is imported when the log is set up.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)

LEVEL = "GROUPKAFKA_LOG_LEVEL"
"""The environment variable with the level. For a registered source, `spark.executorEnv.*` sets it in all these processes."""

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
"""What PySpark 4.0 and later look up in the environment when they make the text (`handle_worker_exception`)."""


def log_to_stderr() -> None:
    """Set the level of the package's logger from LEVEL, and add a handler if the logger has none.

    Spark's Python processes configure no logging. The JVM copies the runner's stderr to the driver's, and a worker's stderr to
    its executor's. Without a handler Python would write warnings to it as bare text, and drop everything below a warning. Many
    processes write to one stderr, so each line names the group and the query (subject.py).

    The handler writes a warning that repeats once a minute, with the number of those left out.

    Call it in the runner before it plans, and in a worker before each task reads. Spark's own handler
    (`spark.sql.pyspark.worker.logging.enabled`) exists for one task only.

    Raises:
        OptionError: The environment variable is none of LEVELS.
    """
    from spark_groupsource.brokers.repeated_lines import RepeatFilter
    from spark_groupsource.errors import OptionError
    from spark_groupsource.subject import FIELD, name_in_records

    name_in_records()
    logger = logging.getLogger("spark_groupsource")
    level = os.environ.get(LEVEL)
    if level is not None:
        if level.upper() not in LEVELS:
            raise OptionError(f"The environment variable {LEVEL} is {level!r}: one of {', '.join(LEVELS)} is expected.")
        logger.setLevel(level.upper())
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(f"%(asctime)s %(levelname)s %(name)s: %({FIELD})s%(message)s"))
        handler.addFilter(RepeatFilter())
        logger.addHandler(handler)


@contextmanager
def shown_alone() -> Iterator[None]:
    """Have Spark show an OptionError or a SchemaError without its traceback. Other errors keep theirs.

    The text of such an error has all that its user needs. A process of Spark passes an error on to the JVM as text, and ends.
    Spark shows the text in its log, and again at the user's call.
    """
    try:
        yield
    except Exception as error:
        from spark_groupsource.errors import OptionError, SchemaError

        if isinstance(error, OptionError | SchemaError):
            os.environ[HIDE_TRACEBACK] = "true"
        raise


def warn_of_blanks(group: str) -> None:
    """Warn if blanks are around a group's name. No query shares partitions with one that wrote the name without them."""
    if group != group.strip():
        log.warning(
            "kafka.group.id = %r has blanks around the name. To Kafka they are a part of it, so this is another group than %r",
            *(group, group.strip()),
        )
