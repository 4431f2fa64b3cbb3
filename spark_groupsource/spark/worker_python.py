"""The Python that Spark starts for this source, and whether it can work there. `register` asks that, before a query fails of it.

Spark's JVM starts one program for a registered source: the value that PYSPARK_PYTHON had when the session was made, or else
`python3`. On the driver's host it plans with it, and on the executors' hosts it runs tasks. Only the driver's host can be judged
from here, and there a wrong program fails every query.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pyspark import SparkContext, SparkFiles

from spark_groupsource.errors import WorkersPythonUnsuitable
from spark_groupsource.timeouts import ANSWER_OF_A_PYTHON_S
from spark_groupsource.version import __version__

log = logging.getLogger(__name__)

NEEDED = ("spark_groupsource", "confluent_kafka", "pydantic", "pyarrow")
"""What the source imports, but for PySpark, which Spark itself adds to the path."""

_ASKED = f"""
import importlib.util, json, sys
missing = [name for name in {NEEDED!r} if importlib.util.find_spec(name) is None]
version = None
if {NEEDED[0]!r} not in missing:
    from spark_groupsource.version import __version__ as version
print(json.dumps([list(sys.version_info[:2]), version, missing]))
"""


class Answer(NamedTuple):
    """What a Python says of itself."""

    python: tuple[int, int]
    version: str | None
    """The version of this package there."""
    missing: tuple[str, ...]


def refuse_unsuitable(context: SparkContext) -> None:
    """Refuse a Python in which the source cannot run.

    Raises:
        WorkersPythonUnsuitable: The master is local. With any other one, and on Databricks, it is logged as a warning: a platform
            may start its workers in a way of its own.
    """
    root, archives = SparkFiles.getRootDirectory(), context._python_includes or ()
    trouble = trouble_with(context.pythonExec, [root, *(os.path.join(root, name) for name in archives)], context.environment)
    if trouble is None:
        return
    if (context.master or "").startswith("local") and "DATABRICKS_RUNTIME_VERSION" not in os.environ:
        raise WorkersPythonUnsuitable(trouble)
    log.warning("queries of this session will probably fail: %s", trouble)


def trouble_with(python: str, path: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> str | None:
    """Return why the source cannot work with this Python, and what to set; `None` if it can, or if that is not known.

    Args:
        python: What Spark starts: a path, or a name that is found in PATH.
        path: Folders and archives that Spark adds to the path of its workers (`--py-files`).
        environment: Variables that Spark sets for its workers (`spark.executorEnv.*`).
    """
    variables = {**os.environ, **(environment or {})}
    program = shutil.which(python, path=variables.get("PATH"))
    instead = _instead_of(python)
    if program is None:
        return f"Spark starts {python} for its Python workers, and there is no such program on this machine. {instead}."
    if os.path.abspath(program) == sys.executable:
        return None
    # Spark joins them: a variable of the workers does not replace that of this process.
    added = (*path, *filter(None, [(environment or {}).get("PYTHONPATH"), os.environ.get("PYTHONPATH")]))
    answer = _ask(program, tuple(sorted({**variables, "PYTHONPATH": os.pathsep.join(added)}.items())))
    return None if answer is None else _trouble_in(answer, python if python == program else f"{python} ({program})", instead)


def _instead_of(python: str) -> str:
    """Return what to do so that Spark starts a Python in which the source works, as a clause."""
    folder, *rest = Path(python).parts
    if not rest or os.path.isabs(python):
        return f"Set PYSPARK_PYTHON={sys.executable} before the Spark session is made"
    # Another path would not lead into the archive, on the executors.
    return (
        f"If executors unpack {folder} from an archive (--archives), have the driver find the same there: make the archive of "
        f"{sys.prefix}, and run `ln -sfn {sys.prefix} {folder}` in {os.getcwd()}"
    )


def _trouble_in(answer: Answer, named: str, instead: str) -> str | None:
    here = sys.version_info[:2]
    if answer.missing:
        return f"Spark's workers use {named}, which lacks {', '.join(answer.missing)}. {instead}, or install it there."
    if answer.python != here:
        there = "{}.{}".format(*answer.python)
        return f"Spark's workers use {named}, which is Python {there}, and this program is Python {here[0]}.{here[1]}. {instead}."
    if answer.version != __version__:
        return (
            f"Spark's workers use {named}, which has version {answer.version} of spark_groupsource, and this program has "
            f"{__version__}. {instead}, or install the same version there."
        )
    return None


def _ask(program: str, environment: tuple[tuple[str, str], ...]) -> Answer | None:
    """Return what a Python says; `None` if it does not say so in time: it may be slow, and wait for a network's file system."""
    try:
        # With the folder of this process in its path, as Spark starts it.
        done = subprocess.run(
            [program, "-c", _ASKED],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ANSWER_OF_A_PYTHON_S,
            check=True,
        )
        python, version, missing = json.loads(done.stdout)
        return Answer((python[0], python[1]), version, tuple(missing))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError, TypeError):
        return None
