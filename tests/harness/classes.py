"""An archive of the classes that a warm Spark has loaded (JDK's class data sharing): the next ones start in half the time.

As a command, `python -m tests.harness.classes FOLDER ARCHIVE`, it makes one: a Spark starts, warms up and ends.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark

from devtools.broker.java import find_java

LIMIT_S = 600.0
OPTIONS = "SPARK_SUBMIT_OPTS"
"""The variable from which Spark takes options of its JVM."""


def share_classes(folder: Path, cache: Path, progress: Callable[[str], object]) -> None:
    """Make every Spark that is started from now on use the archive in `cache`; create it there first if needed."""
    version = subprocess.run([find_java(), "-version"], check=True, capture_output=True, text=True).stderr
    jars = Path(pyspark.__file__).parent / "jars"
    # The JVM itself refuses an archive of other jars or of another Java; this deletes one that is useless.
    identity = hashlib.sha256(f"{version} {pyspark.__version__} {jars}".encode()).hexdigest()[:16]
    archive = cache / f"chaos-classes-{identity}.jsa"
    if not archive.exists():
        progress("writing an archive of Spark's classes, once: it makes every later start two or three times as fast")
        partial = archive.with_suffix(".partial")
        with (cache / "chaos-classes.log").open("wb") as log:
            argv = [sys.executable, "-m", "tests.harness.classes", str(folder), str(partial)]
            subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=LIMIT_S)
        partial.rename(archive)
    os.environ[OPTIONS] = f"-XX:SharedArchiveFile={archive}"


def main() -> None:
    """Create the archive: the JVM writes it when it ends."""
    from devtools.demo.query import session
    from tests.harness.driver import MASTER
    from tests.harness.warm_up import warm_up

    folder, archive = Path(sys.argv[1]), Path(sys.argv[2]).absolute()
    os.environ[OPTIONS] = f"-XX:ArchiveClassesAtExit={archive}"
    (folder / "tmp").mkdir(parents=True)
    spark = session("classes", folder, MASTER)
    warm_up(spark, folder)
    gateway: Any = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(LIMIT_S)


if __name__ == "__main__":
    main()
