"""What each of Spark's Python processes imports of this package: nothing before it connects, and then only what it needs.

What is imported is asked of `sys.modules`, so that none of this depends on time.
"""

from __future__ import annotations

import importlib.util
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from spark_groupsource.fetch.contract import FetchRange
from spark_groupsource.spark.datasource import GroupKafkaDataSource
from spark_groupsource.spark.task import RangePartition
from tests.support.options import BASE

MOST_LINES = 6500
"""Of our modules in a worker. A fresh worker pays for each, and Spark starts one whenever the others were idle for a minute."""

# The folders with what plans and joins. A task and the process that plans a stream's first micro-batch need none of it.
OF_MEMBERS = ("query", "group", "checkpoint", "reports")

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

# What Spark starts: the daemon, and the modules that it forks to, or that run by themselves. Only the runner has Spark's 10 s.
SPARKS_PROCESSES = (
    "pyspark.daemon",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.worker",
)

BEFORE_IT_CONNECTS = """
import importlib, sys
for name in sys.argv[1:]: importlib.import_module(name)
print(*sorted(sys.modules))
"""

# What `load()` does in a process of its own, which sends the source and its schema to the JVM.
A_LOAD = """
import sys
import pyspark.sql.worker.create_data_source
from pyspark import cloudpickle
from spark_groupsource.spark.datasource import GroupKafkaDataSource
before = set(sys.modules)
source = GroupKafkaDataSource({"kafka.bootstrap.servers": "localhost:9092", "kafka.group.id": "billing", "subscribe": "orders"})
cloudpickle.dumps(source), source.schema().json()
print(*sorted(set(sys.modules) - before))
"""

# As a query plans its first micro-batch: a process of its own makes a reader, and sends it to the JVM.
A_PLAN = """
import sys
import pyspark.sql.worker.plan_data_source_read
from pyspark import cloudpickle
from pyspark.sql.types import StringType, StructField, StructType
from spark_groupsource.spark.datasource import GroupKafkaDataSource
before = set(sys.modules)
source = GroupKafkaDataSource({"kafka.bootstrap.servers": "localhost:9092", "kafka.group.id": "billing", "subscribe": "orders"})
cloudpickle.dumps(source.streamReader(StructType([StructField("value", StringType())])))
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
    partition = RangePartition((nothing,))

    done = python(A_WORKER, pickle.dumps((reader, source, partition)).hex())

    assert done.returncode == 0, done.stderr
    found = done.stdout.split()
    assert sum(map(lines, found)) <= MOST_LINES
    others = {name for name in found if name.split(".")[0] not in {"spark_groupsource", *sys.stdlib_module_names}}
    assert {name.split(".")[0] for name in others} == {"confluent_kafka"}
    assert not [name for name in others if name.startswith("confluent_kafka.admin")]
    assert not of_ours(found, *OF_MEMBERS, "handoff", "options", "sink", "cli")


def test_spark_connects_before_it_imports_anything_of_ours_or_of_what_we_need() -> None:
    there = [name for name in SPARKS_PROCESSES if importlib.util.find_spec(name) is not None]
    assert "pyspark.sql.streaming.python_streaming_source_runner" in there

    done = python(BEFORE_IT_CONNECTS, *there)

    assert done.returncode == 0, done.stderr
    packages = {name.split(".")[0] for name in done.stdout.split()}
    assert "pyspark" in packages
    assert not {"spark_groupsource", "pyspark_groupkafka", "confluent_kafka", "pydantic", *EXTRAS} & packages


def test_a_load_imports_what_checks_the_options_and_not_pyarrow() -> None:
    done = python(A_LOAD)
    assert done.returncode == 0, done.stderr
    found = done.stdout.split()
    assert not {"pyarrow", "numpy", "pandas"} & set(found)
    assert sum(map(lines, found)) <= MOST_LINES
    assert not [name for name in found if name.startswith("confluent_kafka.admin")]


def test_planning_a_stream_imports_neither_what_reads_nor_what_joins() -> None:
    done = python(A_PLAN)
    assert done.returncode == 0, done.stderr
    found = done.stdout.split()
    assert "spark_groupsource.spark.readers" in found
    assert sum(map(lines, found)) <= MOST_LINES
    assert "spark_groupsource.fetch.choice" not in found, "it imports the readers"
    assert not of_ours(found, *OF_MEMBERS, "sink", "cli")
    assert not [name for name in found if name.startswith("confluent_kafka.admin")]


def of_ours(names: list[str], *folders: str) -> list[str]:
    """The modules that are in these folders of this package."""
    return [name for name in names if name.startswith(tuple(f"spark_groupsource.{folder}." for folder in folders))]


def lines(name: str) -> int:
    """The length of a module, if it is one of this package."""
    file = importlib.util.find_spec(name).origin if name.startswith("spark_groupsource.") else None  # type: ignore[union-attr]
    return len(Path(file).read_text(encoding="utf-8").splitlines()) if file else 0


def test_what_writes_and_commits_imports_no_model_of_the_groups_commits() -> None:
    done = python("import sys, spark_groupsource.sink.writing, spark_groupsource.sink.finishing; print(*sys.modules)")
    assert done.returncode == 0, done.stderr
    assert "spark_groupsource.sink.token_store" in done.stdout
    assert not {"pydantic", "spark_groupsource.brokers.group_admin", *EXTRAS} & set(done.stdout.split())


def test_the_module_that_spark_finds_imports_nothing_more() -> None:
    done = python(LOADED)
    assert (done.returncode, done.stdout) == (0, "pyspark_groupkafka\n"), done.stderr
