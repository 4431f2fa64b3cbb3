"""The source does without what the extras install: on a cluster there is no reason to have it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXTRAS = ("click", "prometheus_client", "rich")

# A module that is None in sys.modules cannot be imported. Spark's planner, its runner and its workers use these.
WITHOUT_EXTRAS = f"""
import sys
sys.modules.update(dict.fromkeys({EXTRAS!r}))
import spark_groupsource.spark.datasource as datasource
import spark_groupsource.spark.batch_reader, spark_groupsource.spark.startless_reader, spark_groupsource.spark.stream_reader
import spark_groupsource.fetch.native_consumer, spark_groupsource.fetch.pure_consumer
if datasource.ADMISSION_CONTROL:
    import spark_groupsource.spark.admission_reader
given = {{"kafka.bootstrap.servers": "localhost:9092", "kafka.group.id": "billing", "subscribe": "orders"}}
source = datasource.GroupKafkaDataSource(given)
print(type(source.streamReader(source.schema())).__name__)
"""


TOP_LEVEL = Path(__file__).parents[2] / "spark_groupsource" / "top_level"

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


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_a_stream_reader_is_made_without_what_the_extras_install() -> None:
    done = python(WITHOUT_EXTRAS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("Reader")


def test_the_module_that_spark_finds_imports_nothing_more() -> None:
    done = python(LOADED)
    assert (done.returncode, done.stdout) == (0, "pyspark_groupkafka\n"), done.stderr


@pytest.mark.parametrize(("absent", "named"), [(("click", "rich"), "click and rich"), (("rich",), "rich")])
def test_the_command_line_names_the_extra_that_is_missing(absent: tuple[str, ...], named: str) -> None:
    done = python(
        f"import sys, importlib.util\n"
        f"found = importlib.util.find_spec\n"
        f"importlib.util.find_spec = lambda name: None if name in {absent!r} else found(name)\n"
        f"from spark_groupsource.__main__ import main\n"
        f"main()"
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"groupkafka needs {named}: pip install 'spark-groupsource[cli]'\n"
