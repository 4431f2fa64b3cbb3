"""Every command in README.md and docs/running.md is run by a test, and that test exists."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = ("README.md", "docs/running.md")

SHARED = "tests/spark/test_page_programs.py::test_the_program_of_the_readme_shows_rows_and_two_of_it_share_the_topic"
ARCHIVE = "tests/spark/test_submit.py::test_an_archive_brings_the_environment_to_the_executors_and_a_link_to_the_driver"
CLUSTER = "tests/spark/test_submit.py::test_a_submitted_job_reads_each_record_once_on_two_workers"

RUN_BY: Mapping[str, tuple[str, ...]] = {
    "make demo": (
        "tests/spark/test_readme.py::test_make_demo_runs_the_demo",
        "tests/spark/test_demo.py::test_the_demo_hands_over_and_counts_every_record_once",
    ),
    "make test": ("tests/spark/test_readme.py::test_make_test_runs_the_whole_suite",),
    "make test TESTS=tests/kafka/query/test_cycle.py::test_a_stream_starts_at_a_time": (
        "tests/spark/test_readme.py::test_make_test_with_a_test_runs_it_alone",
    ),
    "make broker": (
        "tests/spark/test_readme.py::test_make_broker_runs_the_broker_without_pyspark",
        "tests/kafka/devtools/test_broker.py::test_it_prints_the_address_and_ends_when_asked",
        "tests/kafka/devtools/test_broker_jars.py::test_it_is_downloaded_where_there_is_no_pyspark",
    ),
    "make records": (
        "tests/spark/test_readme.py::test_make_records_writes_records",
        SHARED,
    ),
    "python3 -m venv ../first/.venv": (SHARED,),
    "../first/.venv/bin/pip install '.[spark,cli]'": (SHARED,),
    "cd ../first": (SHARED,),
    ".venv/bin/python pipeline.py": (SHARED,),
    ".venv/bin/python pipeline.py second": (SHARED,),
    ".venv/bin/groupkafka describe --bootstrap-server localhost:9092 --group billing": (SHARED,),
    ".venv/bin/groupkafka claims --bootstrap-server localhost:9092 --group billing": (SHARED,),
    "../first/.venv/bin/groupkafka check --conf conf/orders.properties": (
        "tests/kafka/cli/check/test_source.py::test_what_is_right_is_all_ok_and_leaves_no_trace",
    ),
    "../first/.venv/bin/groupkafka top --bootstrap-server localhost:9092 --group billing": (
        "tests/kafka/cli/test_top.py::test_members_partitions_rates_and_a_broker_that_stops_are_plain_lines",
    ),
    "pip install '.[spark,cli]'": (SHARED,),
    "pip install 'pyspark[connect]'": ("tests/spark/test_connect.py::test_a_client_reads_a_batch_and_a_stream",),
    "$SPARK_HOME/bin/spark-class org.apache.spark.deploy.master.Master --host localhost --port 7077": (CLUSTER,),
    "$SPARK_HOME/bin/spark-class org.apache.spark.deploy.worker.Worker spark://localhost:7077": (CLUSTER,),
    "spark-submit --master spark://localhost:7077 job.py": (CLUSTER,),
    "tar -czf environment.tar.gz -C /opt/billing .": (ARCHIVE,),
    "ln -s /opt/billing environment": (ARCHIVE,),
    "export PYSPARK_PYTHON=./environment/bin/python": (ARCHIVE,),
    "spark-submit --archives environment.tar.gz#environment --master spark://localhost:7077 job.py": (ARCHIVE,),
    "$SPARK_HOME/sbin/start-connect-server.sh --wait --master local[2]": (
        "tests/spark/test_connect.py::test_a_client_reads_a_batch_and_a_stream",
    ),
}
"""The tests that run each command of the pages."""


def commands(page: str) -> set[str]:
    shell = re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    return {line.strip() for block in shell for line in block.splitlines() if line.strip()}


def test_no_command_is_without_a_test() -> None:
    assert set().union(*(commands(page) for page in PAGES)) == RUN_BY.keys()


@pytest.mark.parametrize("name", [name for names in RUN_BY.values() for name in names])
def test_each_named_test_exists(name: str) -> None:
    path, _, function = name.partition("::")
    assert re.search(rf"^ *def {function}\b", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
