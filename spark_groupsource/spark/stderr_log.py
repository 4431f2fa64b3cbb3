"""Logging in the Python processes that Spark starts: lines with time, level, logger, group and query on stderr.

These processes configure no logging. The JVM copies the runner's stderr to the driver's, and a worker's stderr to its executor's.
Without a handler Python would write warnings there as bare text, and drop everything below a warning. Many processes write to one
stderr, so each line names the group and the query (subject.py).
"""

from __future__ import annotations

import logging
import os

from spark_groupsource.brokers.repeated_lines import RepeatFilter
from spark_groupsource.errors import OptionError
from spark_groupsource.subject import FIELD, name_in_records

LEVEL = "GROUPKAFKA_LOG_LEVEL"
"""The environment variable with the level. For a registered source, `spark.executorEnv.*` sets it in all these processes."""

FORMAT = f"%(asctime)s %(levelname)s %(name)s: %({FIELD})s%(message)s"

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def log_to_stderr() -> None:
    """Set the level of the package's logger from LEVEL, and add a handler if the logger has none.

    The handler writes a warning that repeats once a minute, with the number of those left out.

    Call it in the runner before it plans, and in a worker before each task reads. Spark's own handler
    (`spark.sql.pyspark.worker.logging.enabled`) exists for one task only.

    Raises:
        OptionError: The environment variable is none of LEVELS.
    """
    name_in_records()
    logger = logging.getLogger("spark_groupsource")
    given = os.environ.get(LEVEL)
    if given is not None:
        if given.upper() not in LEVELS:
            raise OptionError(f"The environment variable {LEVEL} is {given!r}: one of {', '.join(LEVELS)} is expected.")
        logger.setLevel(given.upper())
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(FORMAT))
        handler.addFilter(RepeatFilter())
        logger.addHandler(handler)
