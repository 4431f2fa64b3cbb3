"""Whether Spark has found a source by itself among the installed modules, and would run it as a registered one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


def is_found(spark: SparkSession, name: str) -> bool:
    """Return whether the session has the source already, so that registering it changes nothing but Spark's log.

    Spark warns at each query of a registered source that takes the place of a found one. A found one runs with the Python that
    found it, and without `--py-files` and `spark.executorEnv.*`.

    Args:
        spark: A session of this process, not of Spark Connect.
        name: The name for `format`.
    """
    context = spark.sparkContext
    # The context itself sets the seed of hashes.
    if context._python_includes or context.environment.keys() - {"PYTHONHASHSEED"}:
        return False
    try:
        if not has(spark, name):
            return False
        sources = spark._jsparkSession.sessionState().dataSourceManager()
        return bool(sources.lookupDataSource(name).dataSourceCls().pythonExec() == context.pythonExec)
    except Exception as hidden:  # noqa: BLE001 -- a platform may hide the JVM in ways of its own
        log.info("whether Spark has found %s by itself is not known: %s", name, hidden)
        return False


def has(spark: SparkSession, name: str) -> bool:
    """Return whether the session has a source of this name.

    Args:
        spark: A session of this process, not of Spark Connect.
        name: The name for `format`.
    """
    return bool(spark._jsparkSession.sessionState().dataSourceManager().dataSourceExists(name))


@contextmanager
def active(spark: SparkSession) -> Iterator[None]:
    """Make the session this thread's active one, for the time of a `with` block.

    Spark registers a source with the given session, but refuses a name that the active session has already.

    Args:
        spark: A session of this process, not of Spark Connect.
    """
    sessions = SparkSession._get_j_spark_session_class(spark._jvm)
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()
