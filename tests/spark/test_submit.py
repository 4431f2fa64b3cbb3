"""`spark-submit` to a standalone cluster: the driver is the member, and executors on two workers fetch."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from confluent_kafka.admin import AdminClient

from spark_groupsource.broker import Cluster

from ..conftest import MakeTopic, Produce
from .queries import all_confirmed
from .running_page import command, write_program
from .sinks import written
from .spark_process import running, standalone_cluster


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
    topic: MakeTopic, produce: Produce, cluster: Cluster, admin: AdminClient, tmp_path: Path
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
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
        "spark.ui.enabled": "false",
    }
    with standalone_cluster(tmp_path, workers=2) as master:
        submit, *words, program = command("spark-submit")
        assert (program, words.pop()) == ("job.py", "spark://localhost:7077")
        extra = [word for setting in settings.items() for word in ("--conf", "=".join(setting))]
        with running("job", tmp_path, [submit, *words, master, *extra, str(job)]) as submitted:
            submitted.finish()
    assert written(tmp_path / "orders") == sorted((partition, offset) for partition in range(6) for offset in range(50))
    assert all_confirmed(cluster, "billing", name)
    read = records_read(tmp_path / "events")
    assert read.total() == 300
    assert read.keys() == {"0", "1"}, "each worker has room for one executor"
