"""What is imported where: nothing of the extras on a cluster, and in a worker nothing that only the driver needs."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from spark_groupsource.fetch.contract import FetchRange
from spark_groupsource.spark.datasource import GroupKafkaDataSource
from spark_groupsource.spark.task import BatchPartition, RangePartition
from tests.support.options import BASE

# A fresh worker pays for each of these, and Spark starts one whenever the others were idle for a minute.
IN_A_WORKER = {
    "brokers": {"client", "login_trouble", "oauth_callback", "repeated_lines"},
    "errors": set(),
    "fetch": {
        "arrow_schema",
        "bounds",
        "choice",
        "consumer_cache",
        "contract",
        "intake",
        "lost_ranges",
        "native_api",
        "native_arrow",
        "native_client",
        "native_consumer",
        "native_shared",
        "native_tokens",
        "pure_arrow",
        "pure_consumer",
        "reading",
        "refusals",
        "settings",
        "shared",
    },
    "kafka_settings": {"environment", "secrets", "tables"},
    "partition": set(),
    "patience": set(),
    "spark": {"datasource", "query_id", "stderr_log", "task", "worker_garbage", "worker_socket"},
    "subject": set(),
    "timeouts": set(),
    "version": set(),
}

# The arguments are what Spark sends to a task, in hexadecimal.
A_WORKER = """
import pickle, sys
import pyarrow, pyspark.worker, pyspark.sql.worker.plan_data_source_read
before = set(sys.modules)
reader, source, partition = pickle.loads(bytes.fromhex(sys.argv[1]))
assert source.name() == "groupkafka"
assert list(reader.read(partition)) == []
print(*sorted(set(sys.modules) - before))
"""

EXTRAS = ("click", "prometheus_client", "rich")

TOP_LEVEL = Path(__file__).parents[3] / "spark_groupsource" / "top_level"

# As Spark looks for sources: it has imported the base class by then.
LOADED = f"""
import sys
import pyspark.sql.datasource
before = set(sys.modules)
sys.path.insert(0, {str(TOP_LEVEL)!r})
import pyspark_groupkafka
print(*sorted(set(sys.modules) - before))
assert pyspark_groupkafka.DefaultSource.name() == "groupkafka"
assert issubclass(pyspark_groupkafka.DefaultSource, pyspark.sql.datasource.DataSource)
"""


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("batch", [False, True], ids=["stream", "batch read"])
def test_a_worker_imports_only_what_reading_needs(batch: bool) -> None:
    source = GroupKafkaDataSource(BASE)
    schema = StructType([StructField("value", StringType())])
    nothing = FetchRange("orders", 0, 5, 5)
    reader: object = source.reader(schema) if batch else source.streamReader(schema)
    partition = BatchPartition((nothing,), None) if batch else RangePartition((nothing,))

    done = python(A_WORKER, pickle.dumps((reader, source, partition)).hex())

    assert done.returncode == 0, done.stderr
    ours: dict[str, set[str]] = {}
    others = set()
    for package, *rest in (name.split(".") for name in done.stdout.split()):
        if package == "spark_groupsource":
            if rest:
                ours.setdefault(rest[0], set()).update(rest[1:])
        elif package not in sys.stdlib_module_names:
            others.add(".".join([package, *rest]))
    assert ours == IN_A_WORKER
    assert {name.split(".")[0] for name in others} == {"confluent_kafka"}
    assert not [name for name in others if name.startswith("confluent_kafka.admin")]


def test_what_writes_and_commits_imports_no_model_of_the_groups_commits() -> None:
    done = python("import sys, spark_groupsource.sink.writing, spark_groupsource.sink.finishing; print(*sys.modules)")
    assert done.returncode == 0, done.stderr
    assert "spark_groupsource.sink.tokens" in done.stdout
    assert not {"pydantic", "spark_groupsource.brokers.group_admin", *EXTRAS} & set(done.stdout.split())


def test_the_module_that_spark_finds_imports_nothing_more() -> None:
    done = python(LOADED)
    assert (done.returncode, done.stdout) == (0, "pyspark_groupkafka\n"), done.stderr
