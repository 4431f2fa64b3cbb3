"""Spark's own Kafka source, the peer that this one is compared with and measured against."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from spark_groupsource.broker.ivy import Dependency, run_ivy
from spark_groupsource.broker.jars import default_cache
from spark_groupsource.broker.java import find_java

SPARK = "4.2.0"
"""The newest version in the repository; it runs on 4.3.0 too."""

# The last version of the token provider in the repository is that of 4.0.0.
_JARS = (
    Dependency("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK, transitive=False),
    Dependency("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0", transitive=False),
    Dependency("org.apache.kafka", "kafka-clients", "3.9.2", transitive=False),
    Dependency("org.apache.commons", "commons-pool2", "2.12.1", transitive=False),
)


def spark_kafka_jars() -> Path:
    """The folder with its jars, resolved at the first run."""
    target = default_cache().parent / f"spark-kafka-{SPARK}"
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        partial = Path(name)
        jars = partial / "jars"
        jars.mkdir()
        with open(partial / "ivy.log", "w", encoding="utf-8") as log:
            answer = run_ivy(find_java(), _JARS, partial, jars, log, lambda line: print(line, file=sys.stderr))
        if not answer.succeeded:
            raise RuntimeError(f"The jars of Spark's Kafka source cannot be resolved: {'; '.join(answer.unresolved)}")
        try:
            jars.rename(target)
        except OSError:
            if not target.is_dir():  # another process was faster
                raise
    return target
