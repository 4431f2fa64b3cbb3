"""The log of the Python processes that Spark starts, which configure no logging: lines with time, level and logger, on stderr.

The JVM copies the runner's stderr to the driver's, and that of the workers to their executor's. Without a handler Python would
write warnings there as bare text, and drop all that is less.
"""

from __future__ import annotations

import logging
import os

from spark_groupsource.errors import OptionError

LEVEL = "GROUPKAFKA_LOG_LEVEL"
"""The environment variable with the level; Spark's `spark.executorEnv.*` sets it for the runner and for the workers."""

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def log_to_stderr() -> None:
    """Give the package's logger the level of LEVEL, if that is set, and a handler, if nobody has given it one.

    Called in the runner before it plans and in a worker before it reads, again for each task: Spark's own handler
    (`spark.sql.pyspark.worker.logging.enabled`) is there for one task only.

    Raises:
        OptionError: the environment variable is none of LEVELS.
    """
    logger = logging.getLogger("spark_groupsource")
    given = os.environ.get(LEVEL)
    if given is not None:
        if given.upper() not in LEVELS:
            raise OptionError(f"The environment variable {LEVEL} is {given!r}: one of {', '.join(LEVELS)} is expected.")
        logger.setLevel(given.upper())
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
