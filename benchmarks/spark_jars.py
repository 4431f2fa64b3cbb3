"""The jars of Spark's own Kafka source, which this one is compared with."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyspark

from spark_groupsource.dev_broker.ivy import Dependency, run_ivy
from spark_groupsource.dev_broker.jars import default_cache
from spark_groupsource.dev_broker.java import find_java

SPARK = "4.2.0"
"""The newest version in Maven Central; it runs on 4.3.0 too."""
_BEFORE = {"4.0": "4.0.2", "4.1": "4.1.1"}


def spark_kafka_jars() -> Path:
    """Return the folder with its jars for the installed Spark, resolved at the first run."""
    version = _BEFORE.get(pyspark.__version__.rpartition(".")[0], SPARK)
    target = default_cache().parent / f"spark-kafka-{version}"
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        partial = Path(name)
        jars = partial / "jars"
        jars.mkdir()
        dependencies = (
            Dependency("org.apache.spark", "spark-sql-kafka-0-10_2.13", version, transitive=False),
            # The newest version of the token provider in Maven Central is 4.0.0.
            Dependency("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0", transitive=False),
            Dependency("org.apache.kafka", "kafka-clients", "3.9.2", transitive=False),
            Dependency("org.apache.commons", "commons-pool2", "2.12.1", transitive=False),
        )
        with open(partial / "ivy.log", "w", encoding="utf-8") as log:
            answer = run_ivy(find_java(), dependencies, partial, jars, log, lambda line: print(line, file=sys.stderr))
        if not answer.succeeded:
            raise RuntimeError(f"The jars of Spark's Kafka source cannot be resolved: {'; '.join(answer.unresolved)}")
        try:
            jars.rename(target)
        except OSError:
            if not target.is_dir():  # another process was faster
                raise
    return target
