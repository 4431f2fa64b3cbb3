"""conf/pipelines, as `spark-pipelines run` runs it: a group into a table."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from devtools.broker import Cluster
from spark_groupsource.brokers.group_admin import GroupAdmin
from tests.conftest import MakeTopic, Produce
from tests.support.page_programs import replaced
from tests.support.queries import all_confirmed
from tests.support.sinks import written
from tests.support.spark_process import ROOT, SPARK_HOME, running
from tests.support.waiting import until

COMMAND = SPARK_HOME / "bin" / "spark-pipelines"

LIMIT_S = 600.0
"""A run starts three JVMs, one after the other."""

# The catalog outlives a run.
SETTINGS = """
spark.sql.catalogImplementation                 hive
spark.hadoop.javax.jdo.option.ConnectionURL     jdbc:derby:;databaseName={folder}/metastore;create=true
spark.sql.warehouse.dir                         {folder}/warehouse
spark.driver.host                               127.0.0.1
spark.ui.enabled                                false
"""


def project(folder: Path, bootstrap_servers: str, topic: str) -> None:
    """Copy conf/pipelines, with the test's own brokers, group, topic and storage."""
    shutil.copytree(ROOT / "conf" / "pipelines", folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name, ours in {
        "orders.properties": {
            "localhost:9092": bootstrap_servers,
            "= orders-table\n": f"= {topic}\n",
            "= orders\n": f"= {topic}\n",
        },
        "spark-pipeline.yml": {"file:///data": f"file://{folder}"},
    }.items():
        file = folder / name
        file.write_text(replaced(file.read_text(), ours, most=1))


@pytest.mark.long
@pytest.mark.skipif(not COMMAND.exists(), reason="Spark has declarative pipelines from 4.1 on")
def test_each_run_adds_to_the_table_what_is_new_and_leaves_the_group(
    topic: MakeTopic, produce: Produce, cluster: Cluster, tmp_path: Path
) -> None:
    name = topic(partitions=2)
    project(tmp_path / "project", cluster.bootstrap_servers, name)
    (tmp_path / "spark-defaults.conf").write_text(SETTINGS.format(folder=tmp_path))
    admin = GroupAdmin({"bootstrap.servers": cluster.bootstrap_servers})
    command = [str(COMMAND), "run", "--spec", str(tmp_path / "project" / "spark-pipeline.yml")]
    checkpoint = tmp_path / "project" / "pipelines" / "orders" / "_checkpoints/spark_catalog/default/orders/orders/0"
    for number, end in enumerate((20, 23)):
        for partition in range(2):
            produce(name, [(None, b"v")] * (end if number == 0 else 3), partition)
        # A registered source would make it fail when all is done: docs/pipelines.md.
        with running(f"run-{number}", tmp_path, command, {"SPARK_CONF_DIR": str(tmp_path)}) as run:
            run.finish(LIMIT_S)
        assert written(tmp_path / "warehouse" / "orders") == [(at, offset) for at in range(2) for offset in range(end)]
        assert (checkpoint / "commits" / str(number)).exists()
        assert all_confirmed(cluster, name, name)
        until(lambda: not admin.describe(name).members, "the run has left the group")
