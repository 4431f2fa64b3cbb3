"""Makes archives of the classes that a broker and a warm Spark load (class data sharing), which halve the start time.

`python -m tests.harness.classes` makes them, unless archives for this Java and these jars exist. A JVM with other jars ignores
them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
from confluent_kafka import Consumer, Producer

from benchmarks.spark_jars import jars_of_tests
from devtools.broker import Cluster
from devtools.broker.ivy import Progress
from devtools.broker.jars import kafka_jars
from devtools.broker.java import find_java
from devtools.broker.node import shared_classes
from devtools.spark_home import spark_home

LIMIT_S = 600.0
OPTIONS = "SPARK_SUBMIT_OPTS"
"""The variable from which Spark takes options of its JVM."""

BUILD = Path(__file__).parents[2] / "build"
OF_SPARK = BUILD / f"spark-{pyspark.__version__}-classes.jsa"


def make_archives(progress: Progress) -> None:
    """Make the archives that are missing, or that are for another Java or other jars, which takes half a minute each."""
    BUILD.mkdir(exist_ok=True)
    jars = kafka_jars(find_java(), None, progress)
    _make(jars.classes, jars.folder, _run_broker, progress)
    _make(OF_SPARK, spark_home() / "jars", _run_spark, progress)


def quick_spark() -> dict[str, str]:
    """Return the environment in which a Spark starts quickly: PySpark's own, with the archive if there is one.

    An archive is for the jars under one path, so the user's SPARK_HOME is replaced. Brokers find their archive themselves.
    """
    return {"SPARK_HOME": str(spark_home()), OPTIONS: " ".join(shared_classes(OF_SPARK))}


def _make(archive: Path, jars: Path, run: Callable[[Path], None], progress: Progress) -> None:
    version = subprocess.run([find_java(), "-version"], check=True, capture_output=True, text=True).stderr
    identity = "\n".join([version, *sorted(f"{jar} {jar.stat().st_size}" for jar in jars.glob("*.jar"))])
    note = archive.with_suffix(".txt")
    if archive.exists() and note.exists() and note.read_text(encoding="utf-8") == identity:
        return
    progress(f"writing {archive.name}, once: later starts take half the time")
    archive.unlink(missing_ok=True)
    partial = archive.with_suffix(f".{os.getpid()}")
    run(partial)
    note.write_text(identity, encoding="utf-8")
    partial.rename(archive)


def _run_broker(archive: Path) -> None:
    """Run a broker for a transaction and a member of a group. It writes the archive when it ends."""
    options = (f"-XX:ArchiveClassesAtExit={archive}",)
    with tempfile.TemporaryDirectory() as data, Cluster(data_dir=data, jvm_options=options) as cluster:
        cluster.create_topic("classes")
        client = {"bootstrap.servers": cluster.bootstrap_servers}
        consumer = Consumer({**client, "group.id": "classes", "auto.offset.reset": "earliest"})
        consumer.subscribe(["classes"])
        producer = Producer({**client, "transactional.id": "classes"})
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("classes", "value")
        producer.commit_transaction()
        assert consumer.poll(LIMIT_S) is not None
        consumer.close()


def _run_spark(archive: Path) -> None:
    """Run Spark in a separate process until it is warm. It writes the archive when it ends."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, (BUILD / "spark-classes.log").open("wb") as log:
        argv = [sys.executable, "-m", "tests.harness.classes", folder, str(archive)]
        subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=BUILD.parent, timeout=LIMIT_S)


def _warm_up(folder: Path, archive: Path) -> None:
    from devtools.demo.query import session
    from tests.harness.driver import MASTER
    from tests.harness.warm_up import warm_up

    os.environ.update({"SPARK_HOME": str(spark_home()), OPTIONS: f"-XX:ArchiveClassesAtExit={archive}"})
    (folder / "tmp").mkdir()
    spark = session("classes", folder, MASTER)
    warm_up(spark, folder)
    gateway: Any = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(LIMIT_S)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _warm_up(Path(sys.argv[1]), Path(sys.argv[2]))
    else:
        jars_of_tests()  # before several processes of the tests would download them at the same time
        make_archives(print)
