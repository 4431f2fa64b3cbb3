"""Downloads the jars with which Spark is started: its own Kafka source, for comparison, its formats, and Iceberg."""

from __future__ import annotations

import sys
from pathlib import Path

import pyspark

from devtools.broker.ivy import Dependency, run_ivy
from devtools.broker.java import find_java
from devtools.downloads import downloaded

SPARK = "4.2.0"
"""The newest version in Maven Central; it runs on 4.3.0 too."""
_BEFORE = {"4.0": "4.0.2", "4.1": "4.1.1"}
FORMATS = "4.1.1"
"""The newest `spark-avro` that was found in Maven Central; it runs on 4.2 and 4.3 too."""
_FORMATS = {"4.0": "4.0.2"}
_ICEBERG = {"4.0": "1.11.0", "4.1": "1.12.0"}
"""The newest version for each Spark in Maven Central. There is none for a later Spark."""


def jars_of_tests() -> tuple[Path, ...]:
    """Return the folders with all jars of the tests' Spark. The first call downloads them."""
    folders = (spark_kafka_jars(), spark_format_jars("spark-avro"), spark_format_jars("spark-protobuf"), iceberg_jars())
    return tuple(folder for folder in folders if folder)


def spark_kafka_jars() -> Path:
    """Return the folder with the jars of the installed Spark's Kafka source."""
    version = _BEFORE.get(_minor_version(), SPARK)
    return _resolved(
        f"spark-kafka-{version}",
        Dependency("org.apache.spark", "spark-sql-kafka-0-10_2.13", version, transitive=False),
        # The newest version of the token provider in Maven Central is 4.0.0.
        Dependency("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0", transitive=False),
        Dependency("org.apache.kafka", "kafka-clients", "3.9.2", transitive=False),
        Dependency("org.apache.commons", "commons-pool2", "2.12.1", transitive=False),
    )


def spark_format_jars(name: str) -> Path:
    """Return the folder with the jar of `spark-avro` or `spark-protobuf`; it is empty if the repository has none.

    Delete an empty folder to ask the repository again.
    """
    before = _FORMATS.get(_minor_version(), FORMATS)
    for version in dict.fromkeys((pyspark.__version__, before)):
        jar = Dependency("org.apache.spark", f"{name}_2.13", version, transitive=False)
        folder = _resolved(f"{name}-{version}", jar, optional=True)
        if any(folder.iterdir()):
            break
    return folder


def iceberg_jars() -> Path | None:
    """Return the folder with Iceberg's jar for the installed Spark, or `None` if there is none."""
    spark = _minor_version()
    if spark not in _ICEBERG:
        return None
    jar = Dependency("org.apache.iceberg", f"iceberg-spark-runtime-{spark}_2.13", _ICEBERG[spark], transitive=False)
    return _resolved(f"iceberg-{_ICEBERG[spark]}-spark-{spark}", jar)


def _minor_version() -> str:
    return pyspark.__version__.rpartition(".")[0]


def _resolved(name: str, *dependencies: Dependency, optional: bool = False) -> Path:
    """Return the `name` folder in the cache with these jars. The first run resolves them."""

    def resolve(folder: Path) -> Path:
        jars = folder / "jars"
        jars.mkdir()
        with open(folder / "ivy.log", "w", encoding="utf-8") as log:
            answer = run_ivy(find_java(), dependencies, folder, jars, log, lambda line: print(line, file=sys.stderr))
        if not (answer.succeeded or (optional and answer.missing_in_repository)):
            raise RuntimeError(f"{name} cannot be resolved: {'; '.join(answer.unresolved)}")
        return jars

    return downloaded(name, resolve)
