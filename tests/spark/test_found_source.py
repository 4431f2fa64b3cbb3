"""An installed package is found: nothing is registered, neither in Python nor in Scala nor in SQL."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from devtools.broker import Cluster
from spark_groupsource.spark.datasource import ADMISSION_CONTROL
from tests.conftest import MakeTopic, Produce
from tests.support.page_programs import RUNNING, blocks, replaced
from tests.support.spark_process import ROOT, SPARK_HOME, START_LIMIT_S, running

SILENT = ("--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2")
MODULE = ROOT / "spark_groupsource" / "top_level" / "pyspark_groupkafka.py"


def test_the_module_is_installed_where_spark_lists_modules(tmp_path: Path) -> None:
    look = (
        "import pkgutil; print(*[one.module_finder.path for one in pkgutil.iter_modules() if one.name == 'pyspark_groupkafka'])"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True, cwd=tmp_path, env=environment)
    folder = done.stdout.strip()
    assert folder, "this environment was made without it: `make install`"
    assert (Path(folder) / MODULE.name).read_text() == MODULE.read_text(), "this environment has an old one: `make install`"


@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="only a virtual environment has room for such a home")
def test_spark_takes_its_own_python_from_where_it_is_installed_and_not_from_its_zip(spark: SparkSession) -> None:
    """From the zip each runner and each daemon would compile it again (devtools/spark_home.py)."""

    def where(_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"file": [pyspark.__file__]})

    assert spark.range(0, 1, numPartitions=1).mapInArrow(where, "file STRING").collect() == [(pyspark.__file__,)]


def test_a_view_of_sql_reads_a_topic_and_a_table_is_refused(
    spark: SparkSession, cluster: Cluster, topic: MakeTopic, produce: Produce
) -> None:
    name = topic(partitions=2)
    produce(name, [(None, b"%d" % number) for number in range(20)])
    (code,) = blocks(RUNNING, "sql")
    code = replaced(code, {"localhost:9092": cluster.bootstrap_servers, "'orders'": f"'{name}'", "'billing'": f"'{name}'"})
    create, count = (one for one in code.split(";") if one.strip())
    spark.sql(create)
    try:
        assert spark.sql(count).collect() == [(20,)]
    finally:
        spark.catalog.dropTempView("orders")
    with pytest.raises(AnalysisException, match="there is no option with this name"):
        spark.sql(create.replace("TEMPORARY VIEW", "TABLE"))


@pytest.mark.long
def test_a_scala_session_reads_a_batch_and_a_stream(cluster: Cluster, topic: MakeTopic, produce: Produce, tmp_path: Path) -> None:
    name = topic(partitions=2)
    produce(name, [(None, b"%d" % number) for number in range(20)])
    (code,) = blocks(RUNNING, "scala")
    ours = {
        "localhost:9092": cluster.bootstrap_servers,
        '"orders"': f'"{name}"',
        '"billing"': f'"{name}"',
        '"/data': f'"{tmp_path}',
    }
    done = 'println("written: " + spark.read.parquet("/data/orders").count())\nSystem.exit(0)\n'.replace("/data", str(tmp_path))
    (tmp_path / "orders.scala").write_text(replaced(code, ours) + done)
    # On its stdin: the shell of Spark 4.0 ends before it reads a file of -I.
    shell = [str(SPARK_HOME / "bin" / "spark-shell"), "--master", "local[1]", *SILENT]
    with running("shell", tmp_path, ["sh", "-c", 'exec "$@" < orders.scala', "sh", *shell]) as process:
        log = process.finish(4 * START_LIMIT_S)  # the shell compiles each line
    assert "20 records are there" in log
    assert "written: 20" in log


FAILS_ALONE = """
from pyspark.sql import SparkSession

local = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false"}
spark = SparkSession.builder.master("local[1]").config(map=local).getOrCreate()
print("other:", spark.read.format("other").load().count())
options = {"kafka.bootstrap.servers": "localhost:9092", "kafka.group.id": "billing", "subscribe": "orders"}
try:
    spark.read.format("groupkafka").options(**options).load().count()
except Exception as error:
    print("groupkafka:", " ".join(str(error).split()))
"""

OTHER = """
from pyspark.sql.datasource import DataSource, DataSourceReader


class Reader(DataSourceReader):
    def read(self, partition):
        yield from [(1,), (2,), (3,)]


class DefaultSource(DataSource):
    @classmethod
    def name(cls):
        return "other"

    def schema(self):
        return "number BIGINT"

    def reader(self, schema):
        return Reader()
"""


@pytest.mark.long
def test_a_broken_client_library_fails_no_other_format(tmp_path: Path) -> None:
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "confluent_kafka.py").write_text('raise ImportError("librdkafka is for another machine")\n')
    (modules / "pyspark_other.py").write_text(OTHER)
    program = tmp_path / "program.py"
    program.write_text(FAILS_ALONE)
    found_first = os.pathsep.join([str(modules), str(ROOT)])
    with running("program", tmp_path, [sys.executable, str(program)], {"PYTHONPATH": found_first}) as process:
        log = process.finish()
    assert "other: 3" in log
    assert re.search(r"groupkafka: .*librdkafka is for another machine", log)


OTHER_PYTHON = """
import os
from pyspark.sql import SparkSession
from spark_groupsource import register

local = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false"}
spark = SparkSession.builder.master("local[1]").config(map=local).getOrCreate()
options = {"kafka.bootstrap.servers": "SERVERS", "kafka.group.id": "TOPIC", "subscribe": "TOPIC"}
print("found:", len(spark.read.format("groupkafka").options(**options).load().collect()))
try:
    register(spark)
except Exception as error:
    print("register:", type(error).__name__, error)
os._exit(0)  # without Spark's own stop
"""


@pytest.mark.long
def test_tasks_of_a_found_source_run_with_the_python_that_found_it_and_register_names_a_wrong_one(
    cluster: Cluster, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    name = topic()
    produce(name, [(None, b"a"), (None, b"b")])
    program = tmp_path / "program.py"
    program.write_text(OTHER_PYTHON.replace("SERVERS", cluster.bootstrap_servers).replace("TOPIC", name))
    pythons = {"PYSPARK_DRIVER_PYTHON": sys.executable, "PYSPARK_PYTHON": "/no/such/python"}
    with running("program", tmp_path, [sys.executable, str(program)], pythons) as process:
        log = process.finish()
    assert "found: 2" in log
    said = "register: WorkersPythonUnsuitable Spark starts /no/such/python for its Python workers, but there is no such program"
    assert said in log


REGISTERED = """
from pyspark.sql import SparkSession
from spark_groupsource import register

local = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false"}
spark = SparkSession.builder.master("local[1]").config(map=local).getOrCreate()
register(spark)
register(spark)
options = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.group.id": "billing", "subscribe": "orders"}
print("columns:", len(spark.read.format("groupkafka").options(**options).load().columns))
sources = spark._jsparkSession.sessionState().dataSourceManager()
print("tasks:", sources.lookupDataSource("groupkafka").dataSourceCls().pythonExec())
"""


@pytest.mark.long
@pytest.mark.parametrize("found_by", ["PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"])
def test_register_leaves_a_found_source_alone_unless_another_python_found_it(tmp_path: Path, found_by: str) -> None:
    """Spark warns at each query of a registered source that takes the place of a found one."""
    other = tmp_path / "python"
    other.symlink_to(sys.executable)
    program = tmp_path / "program.py"
    program.write_text(REGISTERED)
    pythons = {"PYSPARK_PYTHON": str(other), found_by: sys.executable}
    same = len(set(pythons.values())) == 1
    if not same and not ADMISSION_CONTROL:
        pytest.skip("Spark 4.0 keeps the source that it has found")
    where = os.pathsep.join([str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))])
    with running("program", tmp_path, [sys.executable, str(program)], {**pythons, "PYTHONPATH": where}) as process:
        log = process.finish()
    assert "columns: 7" in log
    assert f"tasks: {pythons['PYSPARK_PYTHON']}" in log
    assert ("replaced a statically registered data source" in log) == (not same)


SESSIONS = """
from pyspark.sql import SparkSession
from spark_groupsource import register

local = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false"}
spark = SparkSession.builder.master("local[1]").config(map=local).getOrCreate()
register(spark)
other = spark.newSession()
register(other)
register(other)
options = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.group.id": "billing", "subscribe": "orders"}
print("columns:", len(other.read.format("groupkafka").options(**options).load().columns))
print("active:", SparkSession.getActiveSession()._jsparkSession.equals(spark._jsparkSession))
"""


@pytest.mark.long
@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="only beside a virtual environment is a Python without the package")
def test_register_reaches_a_second_session_where_the_package_is_only_on_the_path(tmp_path: Path) -> None:
    """Spark looks in the active session whether there is such a source, and not in the given one."""
    (found,) = {Path(path) for path in sys.path if path.endswith("site-packages") and path.startswith(sys.prefix)}
    on_the_path = tmp_path / "on_the_path"
    on_the_path.mkdir()
    for module in found.iterdir():
        if "groupkafka" not in module.name and "spark_groupsource" not in module.name:
            (on_the_path / module.name).symlink_to(module)
    program = tmp_path / "program.py"
    program.write_text(SESSIONS)
    python: str = sys._base_executable  # type: ignore[attr-defined]
    environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(on_the_path)]), "PYSPARK_PYTHON": python}
    with running("program", tmp_path, [python, str(program)], {**environment, "PYSPARK_DRIVER_PYTHON": python}) as process:
        log = process.finish()
    assert "columns: 7" in log
    assert "active: True" in log
