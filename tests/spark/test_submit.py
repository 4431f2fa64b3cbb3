"""`spark-submit` to a standalone cluster: the driver is the member, and executors on two workers fetch."""

from __future__ import annotations

import json
import re
import subprocess
import sysconfig
import venv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.broker import Cluster
from spark_groupsource.spark.datasource import ADMISSION_CONTROL
from tests.conftest import MakeTopic, Produce
from tests.support.page_programs import RUNNING, blocks, command, replaced, write_program
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


@pytest.mark.long
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
    submit, *words, program = command("spark-submit --master")
    assert (program, words.pop()) == ("job.py", "spark://localhost:7077")
    extra = [word for setting in settings.items() for word in ("--conf", "=".join(setting))]
    with running("job", tmp_path, [submit, *words, master, *extra, str(job)]) as submitted:
        submitted.finish(400)
    assert written(tmp_path / "orders") == sorted((partition, offset) for partition in range(6) for offset in range(50))
    assert all_confirmed(cluster, "billing", name)
    read = records_read(tmp_path / "events")
    assert read.total() == 300
    assert read.keys() == {"0", "1"}, "each worker has room for one executor"


REGISTERED = "getOrCreate()\n\nfrom spark_groupsource import register\n\nregister(spark)\n"


@pytest.mark.long
def test_an_archive_brings_the_environment_to_the_executors_and_a_link_to_the_driver(
    topic: MakeTopic, produce: Produce, cluster: Cluster, master: str, tmp_path: Path
) -> None:
    name = topic(partitions=2)
    for partition in range(2):
        produce(name, [(None, "v")] * 50, partition)
    made, started = tmp_path / "made", tmp_path / "started"
    venv.create(made, symlinks=True)
    (site_packages,) = made.glob("lib/python*/site-packages")
    (site_packages / "ours.pth").write_text(
        f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
        f"import sys; open({str(started)!r}, 'a').write(sys.prefix + '\\n')\n"
    )
    addresses = {"localhost:9092": cluster.bootstrap_servers, '"orders"': f'"{name}"', "/data": str(tmp_path)}
    job = write_program("job.py", tmp_path, {**addresses, "getOrCreate()\n": REGISTERED})
    (block,) = (block for block in blocks(RUNNING, "sh") if "--archives" in block)
    archive, link, export, _ = block.replace("/opt/billing", str(made)).splitlines()
    subprocess.run(archive.split(), cwd=tmp_path, check=True)
    setting, python = export.removeprefix("export ").split("=")
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
    }
    extra = [word for setting in settings.items() for word in ("--conf", "=".join(setting))]
    submit, *words = command("--archives")
    submitted = [submit, *extra, *replaced(" ".join(words), {"spark://localhost:7077": master, "job.py": str(job)}).split()]

    # Another Python runs the program, as most pages about archives have it.
    with running(
        "unlinked", tmp_path, submitted, {setting: python, "PYSPARK_DRIVER_PYTHON": str(made / "bin" / "python")}
    ) as job_run:
        with pytest.raises(AssertionError, match=r"ended with status"):
            job_run.finish(400)
        (advice,) = set(
            re.findall(r"this session's queries will probably fail: .* run `(.+?)` in (.+?)\.$", job_run.log(), re.MULTILINE)
        )
    assert advice == (link.replace("-s", "-sfn"), str(tmp_path))
    subprocess.run(advice[0].split(), cwd=advice[1], check=True)

    started.unlink()
    with running("linked", tmp_path, submitted, {setting: python}) as job_run:
        job_run.finish(400)
    assert written(tmp_path / "orders") == [(partition, offset) for partition in range(2) for offset in range(50)]
    folders = set(started.read_text().split())
    assert str(tmp_path / "environment") in folders, "the driver's"
    assert [folder for folder in folders if re.search(r"/worker-\d/app-.*/environment$", folder)], "the executors'"


@pytest.mark.long
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
