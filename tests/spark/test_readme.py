"""The make targets that README.md names, and the programs of docs/api.md and docs/handoff.md."""

from __future__ import annotations

import re
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from devtools.broker import Cluster
from tests.conftest import Produce
from tests.support.page_programs import ROOT, blocks, program, replaced
from tests.support.queries import Queries
from tests.support.waiting import until


def make(*target: str) -> str:
    """What make would run for a target once everything is installed."""
    shown = subprocess.run(["make", "-n", *target], cwd=ROOT, check=True, capture_output=True, text=True)
    return shown.stdout


def test_make_demo_runs_the_demo() -> None:
    assert ".venv/bin/python -m devtools.demo" in make("demo")


def test_make_broker_runs_the_broker_without_pyspark() -> None:
    commands = make("-B", "broker")
    assert "devtools/install.py .venv -e '.[broker]'" in commands
    assert ".venv/bin/python -m devtools.broker --port 9092" in commands


def test_make_records_writes_records() -> None:
    assert ".venv/bin/python -m devtools.records" in make("records")


def test_make_test_runs_the_whole_suite() -> None:
    commands = make("test")
    assert "ruff check" in commands
    assert "mypy" in commands
    assert ".venv/bin/python -m pytest" in commands


def test_make_test_with_a_test_runs_it_alone() -> None:
    (one,) = re.findall("make test TESTS=(.*)", (ROOT / "README.md").read_text())
    name = one.rpartition("::")[2]
    assert f".venv/bin/python -m pytest  {one}\n" in make("test", f"TESTS={one}")
    assert f"def {name}(" in (ROOT / one.partition("::")[0]).read_text()


@pytest.mark.usefixtures("spark")  # after the test it has no listener any more
def test_the_program_of_the_api_page_reports_each_micro_batch(
    cluster: Cluster, produce: Produce, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.create_topic("orders-of-the-api-page", 2)
    produce("orders-of-the-api-page", [(b"key", b"value")] * 12)
    ours = {
        "localhost:9092": cluster.bootstrap_servers,
        '"billing")\n    .option': '"billing-of-the-api-page")\n    .option',
        '"subscribe", "orders"': '"subscribe", "orders-of-the-api-page"',
        '"/data': f'"{tmp_path}',
        "    .start()": "    .trigger(availableNow=True)\n    .start()",
    }
    exec(program("docs/api.md", "lag.py", ours), {})  # noqa: S102
    printed = ""

    def reported() -> bool:
        nonlocal printed
        printed += capsys.readouterr().out
        return "batch 0: 12 rows, " in printed

    until(reported, "the listener's line")
    assert "billing-of-the-api-page" in printed


def test_the_foreach_batch_of_the_handoff_page_writes_each_record_once(
    spark: SparkSession, cluster: Cluster, queries: Queries, produce: Produce, tmp_path: Path
) -> None:
    cluster.create_topic("billed", 2)
    produce("billed", [(b"key", b"value")] * 20)
    (code,) = blocks("docs/handoff.md", "python")
    ours = {
        "orders.db": str(tmp_path / "orders.db"),
        "checkpoints/billing-1": str(tmp_path / "checkpoint"),
        ".start()": ".trigger(availableNow=True).start()",
    }
    definition, _, start = replaced(code, ours).rpartition("\n\n\n")
    names: dict[str, Any] = {"orders": queries("orders", "billed").load()}
    exec(definition, names)  # noqa: S102
    eval(start.strip(), names).awaitTermination()  # noqa: S307

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
