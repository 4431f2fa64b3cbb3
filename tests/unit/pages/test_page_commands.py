"""Every command in README.md and docs/running.md is run by a test, and that test exists."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = ("README.md", "docs/running.md")

RUN_BY: Mapping[str, tuple[str, ...]] = {
    "make demo": (
        "tests/spark/test_readme.py::test_make_demo_runs_the_demo",
        "tests/spark/test_demo.py::test_the_demo_hands_over_and_counts_every_record_once",
    ),
    "make test": ("tests/spark/test_readme.py::test_make_test_runs_the_whole_suite",),
    "make test TESTS=tests/kafka/test_cycle.py::test_a_stream_starts_at_a_time": (
        "tests/spark/test_readme.py::test_make_test_with_a_test_runs_it_alone",
    ),
    "pip install '.[cli]'": (
        "tests/spark/test_package.py::test_a_stream_reads_with_either_reader_in_an_empty_environment",
        "tests/spark/test_package.py::test_the_command_line_is_an_extra",
    ),
    "make broker BROKER='--port 9092'": (
        "tests/spark/test_readme.py::test_make_broker_runs_the_broker",
        "tests/kafka/test_broker.py::test_it_prints_the_address_and_ends_when_asked",
    ),
    "groupkafka check --conf conf/orders.properties": (
        "tests/kafka/check/test_source.py::test_what_is_right_is_all_ok_and_leaves_no_trace",
    ),
    "groupkafka top --bootstrap-server localhost:9092 --group billing": (
        "tests/kafka/test_top.py::test_members_partitions_rates_and_a_broker_that_stops_are_plain_lines",
    ),
    "groupkafka claims --bootstrap-server localhost:9092 --group billing": (
        "tests/kafka/test_claims.py::test_each_claimed_range_is_listed_with_its_stream_and_since_when",
    ),
    "groupkafka describe --bootstrap-server localhost:9092 --group billing": (
        "tests/spark/test_readme.py::test_the_lines_of_the_readme_read_a_topic",
    ),
    "spark-submit --master spark://localhost:7077 job.py": (
        "tests/spark/test_submit.py::test_a_submitted_job_reads_each_record_once_on_two_workers",
    ),
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
