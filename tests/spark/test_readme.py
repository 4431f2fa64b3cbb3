"""Every command and every line of code in README.md does what it says."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark_groupsource.dev_broker import Cluster
from spark_groupsource.options.model import Options
from tests.conftest import Produce

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
GROUPKAFKA = str(Path(sys.executable).with_name("groupkafka"))

# What each command of the README is run by.
RUN_BY = {
    "make demo": "test_make_demo_runs_the_demo (and tests/spark/test_demo.py, which runs all of it)",
    "make test": "test_make_test_runs_the_whole_suite",
    "pip install '.[cli]'": "test_an_installed_package_has_the_source_and_the_command (and tests/spark/test_package.py)",
    "groupkafka broker": "test_the_broker_prints_its_address_and_ends_with_ctrl_c",
    "groupkafka check --conf billing.properties": "tests/kafka/test_check.py",
    "groupkafka top --bootstrap-server localhost:9092 --group billing": "tests/kafka/test_top.py",
    "groupkafka claims --bootstrap-server localhost:9092 --group billing": "tests/kafka/test_claims.py",
    "spark-submit --master spark://localhost:7077 job.py": "tests/spark/test_submit.py",
    "$SPARK_HOME/sbin/start-connect-server.sh --wait --master local[2]": "tests/spark/test_connect.py",
    "groupkafka describe --bootstrap-server localhost:9092 --group billing": "test_the_five_lines_read_a_topic",
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_no_command_is_without_a_test() -> None:
    commands = {line.strip() for block in blocks("sh") for line in block.splitlines() if line.strip()}
    assert commands == RUN_BY.keys()
    page = (ROOT / "docs" / "running.md").read_text()
    assert all(
        command in page
        for command, test in RUN_BY.items()
        if test in {"tests/spark/test_submit.py", "tests/spark/test_connect.py"}
    )


def make(target: str) -> str:
    """What make would run for a target once everything is installed."""
    shown = subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True, text=True)
    return shown.stdout


def test_make_demo_runs_the_demo() -> None:
    assert ".venv/bin/groupkafka demo" in make("demo")


def test_make_test_runs_the_whole_suite() -> None:
    commands = make("test")
    assert "ruff check" in commands
    assert "mypy" in commands
    assert ".venv/bin/python -m pytest" in commands


def test_an_installed_package_has_the_source_and_the_command(tmp_path: Path) -> None:
    source = tmp_path / "source"  # a copy, as pip leaves its build folder beside what it builds
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "build", "*.egg-info"))
    argv = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path), str(source)]
    subprocess.run(argv, check=True, capture_output=True, text=True, timeout=300)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    look = "import spark_groupsource; print(spark_groupsource.__file__, spark_groupsource.GroupKafkaDataSource.name())"
    found = subprocess.run(
        [sys.executable, "-c", look], check=True, capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    assert found.stdout.split() == [str(tmp_path / "spark_groupsource" / "__init__.py"), "groupkafka"]
    version = subprocess.run(
        [str(tmp_path / "bin" / "groupkafka"), "--version"],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
    )
    assert re.search(r"\d+\.\d+\.\d+", version.stdout)


def test_the_five_lines_read_a_topic(spark: SparkSession, cluster: Cluster, produce: Produce, tmp_path: Path) -> None:
    cluster.create_topic("orders", 3)
    produce("orders", [(b"key", b"value")] * 30)
    (code,) = blocks("python")
    code = code.replace("localhost:9092", cluster.bootstrap_servers)
    code = code.replace('"subscribe", "orders")', '"subscribe", "orders").option("startingOffsets", "earliest")')
    names: dict[str, object] = {"spark": spark}
    exec(code, names)  # noqa: S102
    orders = names["orders"]
    assert isinstance(orders, DataFrame)
    query = (
        orders.writeStream.trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path))
        .format("memory")
        .queryName("orders_of_the_readme")
        .start()
    )
    query.awaitTermination()
    assert spark.table("orders_of_the_readme").count() == 30
    argv = [GROUPKAFKA, *next(one for one in RUN_BY if "describe" in one).split()[1:]]
    argv[argv.index("localhost:9092")] = cluster.bootstrap_servers
    described = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=120).stdout
    assert "billing" in described
    assert described.count("orders") >= 3


def test_the_foreach_batch_of_the_handoff_page_writes_each_record_once(
    spark: SparkSession, cluster: Cluster, produce: Produce, tmp_path: Path
) -> None:
    cluster.create_topic("billed", 2)
    produce("billed", [(b"key", b"value")] * 20)
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "handoff.md").read_text(), re.DOTALL)
    definition, _, start = code.replace("orders.db", str(tmp_path / "orders.db")).rpartition("\n\n\n")
    names: dict[str, Any] = {}
    exec(definition, names)  # noqa: S102
    orders = spark.readStream.format("groupkafka").options(
        **{
            "kafka.bootstrap.servers": cluster.bootstrap_servers,
            "kafka.group.id": "billed",
            "subscribe": "billed",
            "startingOffsets": "earliest",
        }
    )
    started = start.replace("checkpoints/billing-1", str(tmp_path / "checkpoint")).strip()
    query = eval(started.replace(".start()", ".trigger(availableNow=True).start()"), {**names, "orders": orders.load()})  # noqa: S307
    query.awaitTermination()

    def rows() -> int:
        with closing(sqlite3.connect(tmp_path / "orders.db")) as database:
            (count,) = database.execute("SELECT count(*) FROM orders").fetchone()
        return int(count)

    assert rows() == 20
    batch = spark.createDataFrame([("billed", 0, 10_000, b"new")], "topic string, partition int, offset long, value binary")
    names["write_once"](batch, 0)
    assert rows() == 20, "a batch id that is there already is ignored"
    names["write_once"](batch, 1)
    names["write_once"](batch, 2)
    assert rows() == 21, "and so is a record"


def test_the_broker_prints_its_address_and_ends_with_ctrl_c() -> None:
    broker = subprocess.Popen([GROUPKAFKA, "broker"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    with broker:
        assert broker.stdout is not None
        assert re.match(r"bootstrap\.servers=127\.0\.0\.1:\d+$", broker.stdout.readline().strip())
        broker.send_signal(signal.SIGINT)
        assert broker.wait(60) in (0, 130)


def test_the_table_of_options_names_every_option_and_its_default() -> None:
    rows = dict(re.findall(r"^\| (`.+?) \| (.+?) \|", README, re.MULTILINE))
    named = {name for cell in rows for name in re.findall(r"`([^`]+)`", cell)}
    known = {field.alias or name for name, field in Options.model_fields.items()}
    ours = {"kafka.exclude.internal.topics", "kafka"}
    assert {name for name in named if not name.startswith("kafka.")} >= {
        name for name in known if not name.startswith("kafka") and name != "exclude.internal.topics"
    } - ours
    for name, field in Options.model_fields.items():
        option = field.alias or name
        for cell, default in rows.items():
            if cell == f"`{option}`" and isinstance(field.default, bool | int | str):
                assert default.strip("`").lower() in expected_texts(field.default), (option, default, field.default)


def expected_texts(default: bool | int | str) -> set[str]:
    if isinstance(default, bool):
        return {str(default).lower()}
    if isinstance(default, int):
        return {str(default), f"{default // 1000}s", f"{default // 60_000}m"}
    return {default.lower()}
