"""`spark-submit` to a standalone cluster: the driver is the member, and executors on two workers fetch."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.broker import Cluster
from spark_groupsource.spark.datasource import ADMISSION_CONTROL
from tests.conftest import MakeTopic, Produce
from tests.support.page_programs import command, replaced, write_program
from tests.support.queries import all_confirmed
from tests.support.sinks import written
from tests.support.spark_process import ROOT, SPARK_HOME, running, standalone_cluster
from tests.support.waiting import until


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A standalone cluster with two workers; the master's address."""
    with standalone_cluster(tmp_path_factory.mktemp("standalone"), workers=2) as address:
        yield address


def records_read(events: Path) -> Counter[str]:
    """How many records the tasks of each executor have read, by Spark's own event log."""
    read: Counter[str] = Counter()
    for file in events.rglob("events_*"):
        for line in file.read_text().splitlines():
            event = json.loads(line)
            if event["Event"] == "SparkListenerTaskEnd":
                read[event["Task Info"]["Executor ID"]] += event["Task Metrics"]["Input Metrics"]["Records Read"]
    return +read


def test_a_submitted_job_reads_each_record_once_on_two_workers(
    topic: MakeTopic, produce: Produce, cluster: Cluster, master: str, tmp_path: Path
) -> None:
    name = topic(partitions=6)
    for partition in range(6):
        produce(name, [(b"k%d" % number, b"v%d" % number) for number in range(50)], partition)
    job = write_program(
        "job.py", tmp_path, {"localhost:9092": cluster.bootstrap_servers, '"orders"': f'"{name}"', "/data": str(tmp_path)}
    )
    (tmp_path / "events").mkdir()
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{tmp_path}/events",
        # Both executors are there before the first task.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s",
        "spark.ui.enabled": "false",
    }
    submit, *words, program = command("spark-submit")
    assert (program, words.pop()) == ("job.py", "spark://localhost:7077")
    extra = [word for setting in settings.items() for word in ("--conf", "=".join(setting))]
    with running("job", tmp_path, [submit, *words, master, *extra, str(job)]) as submitted:
        submitted.finish(400)
    assert written(tmp_path / "orders") == sorted((partition, offset) for partition in range(6) for offset in range(50))
    assert all_confirmed(cluster, "billing", name)
    read = records_read(tmp_path / "events")
    assert read.total() == 300
    assert read.keys() == {"0", "1"}, "each worker has room for one executor"


def test_the_settings_of_conf_run_on_a_cluster(
    topic: MakeTopic, produce: Produce, cluster: Cluster, master: str, tmp_path: Path
) -> None:
    name = topic(partitions=2)
    for partition in range(2):
        produce(name, [(None, "v")] * 50, partition)
    ours = {"= localhost:9092\n": f"= {cluster.bootstrap_servers}\n", "= billing\n": f"= {name}\n", "= orders\n": f"= {name}\n"}
    text = (ROOT / "conf" / "orders.properties").read_text()
    (tmp_path / "orders.properties").write_text(replaced(text, ours, most=2))
    submit = [str(ROOT / "conf" / "submit.sh"), *(str(tmp_path / one) for one in ("orders.properties", "checkpoint", "output"))]
    # The level of spark-defaults.conf rules and not this one, except on Spark 4.0, which keeps the source that it has found.
    level = "ERROR" if ADMISSION_CONTROL else "INFO"
    more = {"SPARK_MASTER": master, "GROUPKAFKA_LOG_LEVEL": level, "SPARK_HOME": str(SPARK_HOME)}
    with running("submit", tmp_path, submit, more) as submitted:
        # The line is the runner's, and the driver's JVM has copied it.
        gained = rf"group {name}, (?:query|stream) [0-9a-f-]+: generation \d+: gained \[{name}-0 {name}-1\]"
        submitted.found_in_log(rf"(INFO spark_groupsource\.group\.member: {gained})")
        until(
            lambda: written(tmp_path / "output") == [(at, one) for at in range(2) for one in range(50)], "the records are there"
        )
        log = submitted.log()
    assert not [line for line in log.splitlines() if " INFO " in line and "spark_groupsource" not in line], "log4j2.properties"
    assert "spark.sql.adaptive.enabled is not supported" not in log, "spark-defaults.conf"
