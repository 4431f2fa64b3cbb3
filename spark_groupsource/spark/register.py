"""Registers the source with a Spark session, after checking that the Python that Spark starts can run the source.

Spark's JVM starts one program for a registered source: the value of PYSPARK_PYTHON when the session was created, or else
`python3`. The driver's host plans with this program, and the executors' hosts run tasks with it. Only the driver's host can be
checked from here. If the program there is wrong, every query fails.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from pyspark import SparkContext, SparkFiles
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from spark_groupsource.errors import WorkersPythonUnsuitable
from spark_groupsource.spark.datasource import GroupKafkaDataSource
from spark_groupsource.spark.durable_listener import listen
from spark_groupsource.timeouts import ANSWER_OF_A_PYTHON_S
from spark_groupsource.version import __version__

log = logging.getLogger(__name__)

NEEDED = ("spark_groupsource", "confluent_kafka", "pydantic", "pyarrow")
"""The packages that the source imports, except for PySpark, which Spark itself adds to the path."""

_ASKED = f"""
import importlib.util, json, sys
missing = [name for name in {NEEDED!r} if importlib.util.find_spec(name) is None]
version = None
if {NEEDED[0]!r} not in missing:
    from spark_groupsource.version import __version__ as version
print(json.dumps([list(sys.version_info[:2]), version, missing]))
"""


def register(spark: SparkSession) -> None:
    """Register `format("groupkafka")` with a Spark session, and let the session report finished micro-batches to the source.

    A micro-batch is then confirmed in the group as soon as Spark has finished it, rather than at the next trigger. For that,
    the function adds one listener to the session. If the session does not accept listeners, or under Spark Connect, where the
    listener would run in the client, use the reader's `checkpointLocation` option instead. Call this function once per session; a
    second call is harmless.

    Raises:
        WorkersPythonUnsuitable: The master is local, and the Python that Spark starts lacks this package, or has a different
            version of it. With any other master, this is only logged as a warning.
    """
    is_here = not type(spark).__module__.startswith("pyspark.sql.connect")
    if is_here:
        refuse_unsuitable(spark.sparkContext)
        listen(spark)
    if is_here and is_found(spark, GroupKafkaDataSource.name()):
        return
    try:
        with active(spark) if is_here else nullcontext():
            spark.dataSource.register(GroupKafkaDataSource)
    except AnalysisException as refused:
        # Spark 4.0 refuses a name that it has found among the installed modules; later versions replace it (SPARK-51919).
        if refused.getCondition() != "DATA_SOURCE_ALREADY_EXISTS" or (is_here and not has(spark, GroupKafkaDataSource.name())):
            raise
        log.info("Spark will use the source that it has found by itself, so tasks will run with the Python that found it.")


def is_found(spark: SparkSession, name: str) -> bool:
    """Return whether Spark has found the source by itself, in which case registering it would only add warnings to Spark's log.

    Spark logs a warning for each query if a registered source replaces one that Spark has found. A source that Spark has found
    runs with the Python that found it, and without `--py-files` and `spark.executorEnv.*`.

    Args:
        spark: A session in this process, not a Spark Connect session.
        name: The name for `format`.
    """
    context = spark.sparkContext
    # The context itself sets PYTHONHASHSEED.
    if context._python_includes or context.environment.keys() - {"PYTHONHASHSEED"}:
        return False
    try:
        if not has(spark, name):
            return False
        sources = spark._jsparkSession.sessionState().dataSourceManager()
        return bool(sources.lookupDataSource(name).dataSourceCls().pythonExec() == context.pythonExec)
    except Exception as hidden:  # noqa: BLE001 -- a platform may hide the JVM in its own way
        log.info("could not find out whether Spark has found %s by itself: %s", name, hidden)
        return False


def has(spark: SparkSession, name: str) -> bool:
    """Return whether the session has a source with this name.

    Args:
        spark: A session in this process, not a Spark Connect session.
        name: The name for `format`.
    """
    return bool(spark._jsparkSession.sessionState().dataSourceManager().dataSourceExists(name))


@contextmanager
def active(spark: SparkSession) -> Iterator[None]:
    """Make `spark` the thread's active session within a `with` block.

    Spark registers a source with the given session, but refuses a name that the active session already has.

    Args:
        spark: A session in this process, not a Spark Connect session.
    """
    sessions = SparkSession._get_j_spark_session_class(spark._jvm)
    earlier = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if earlier.isDefined():
            sessions.setActiveSession(earlier.get())
        else:
            sessions.clearActiveSession()


def refuse_unsuitable(context: SparkContext) -> None:
    """Raise an error if the Python for Spark's workers cannot run the source.

    Raises:
        WorkersPythonUnsuitable: The master is local. With any other master, and on Databricks, a warning is logged instead,
            because a platform may start its workers in its own way.
    """
    root, archives = SparkFiles.getRootDirectory(), context._python_includes or ()
    trouble = trouble_with(context.pythonExec, [root, *(os.path.join(root, name) for name in archives)], context.environment)
    if trouble is None:
        return
    if (context.master or "").startswith("local") and "DATABRICKS_RUNTIME_VERSION" not in os.environ:
        raise WorkersPythonUnsuitable(trouble)
    log.warning("this session's queries will probably fail: %s", trouble)


def trouble_with(python: str, path: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> str | None:
    """Return why the source cannot work with this Python, and what to set, or `None` if it can or if this is unknown.

    Args:
        python: The program that Spark starts: a path, or a name that is found in PATH.
        path: Folders and archives that Spark adds to its workers' path (`--py-files`).
        environment: Variables that Spark sets for its workers (`spark.executorEnv.*`).
    """
    variables = {**os.environ, **(environment or {})}
    program = shutil.which(python, path=variables.get("PATH"))
    instead = _instead_of(python)
    if program is None:
        return f"Spark starts {python} for its Python workers, but there is no such program on this machine. {instead}."
    if os.path.abspath(program) == sys.executable:
        return None
    # Spark joins both values: a PYTHONPATH for the workers does not replace this process's own.
    added = (*path, *filter(None, [(environment or {}).get("PYTHONPATH"), os.environ.get("PYTHONPATH")]))
    named = python if python == program else f"{python} ({program})"
    return _trouble_with_answer(program, {**variables, "PYTHONPATH": os.pathsep.join(added)}, named, instead)


def _instead_of(python: str) -> str:
    """Return advice, as a clause, on how to make Spark start a Python that can run the source."""
    folder, *rest = Path(python).parts
    if not rest or os.path.isabs(python):
        return f"Set PYSPARK_PYTHON={sys.executable} before the Spark session is created"
    # On the executors, any other path would not point into the archive.
    return (
        f"If executors unpack {folder} from an archive (--archives), the driver needs the same environment at this path: create "
        f"the archive from {sys.prefix}, and run `ln -sfn {sys.prefix} {folder}` in {os.getcwd()}"
    )


def _trouble_with_answer(program: str, environment: Mapping[str, str], named: str, instead: str) -> str | None:
    """Ask a Python for its version and packages, and return why the source cannot work with it.

    Also returns `None` if there is no answer in time, as on a slow network file system.
    """
    try:
        # Start it in this process's working directory, which is then on its path, as Spark does.
        done = subprocess.run(
            [program, "-c", _ASKED],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ANSWER_OF_A_PYTHON_S,
            check=True,
        )
        python, version, missing = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError, TypeError):
        return None
    if missing:
        return f"Spark's workers use {named}, which lacks {', '.join(missing)}. {instead}, or install it there."
    theirs, ours = (".".join(map(str, numbers[:2])) for numbers in (python, sys.version_info))
    if theirs != ours:
        return f"Spark's workers use {named}, which is Python {theirs}, but this program is Python {ours}. {instead}."
    if version != __version__:
        return (
            f"Spark's workers use {named}, which has version {version} of spark_groupsource, but this program has "
            f"{__version__}. {instead}, or install the same version there."
        )
    return None
