"""Spark Connect: the server finds the source and runs it; the client knows its name only."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from devtools.broker import Cluster
from tests.conftest import MakeTopic, Produce
from tests.support.group_offsets import total_lag
from tests.support.page_programs import command, write_program
from tests.support.sinks import written
from tests.support.spark_process import SPARK_HOME, connect_server, running

GRACEFUL = """
import sys

from pyspark.sql import SparkSession

from spark_groupsource import await_termination, stop_gracefully
from spark_groupsource.errors import NotWithSparkConnect

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
query = spark.readStream.format("rate").load().writeStream.format("noop").start()
for function in (await_termination, stop_gracefully):
    try:
        function(query)
    except NotWithSparkConnect as error:
        print(function.__name__, "is refused:", error, "active:", query.isActive, file=sys.stderr)
query.stop()
"""


@pytest.mark.long
@pytest.mark.skipif(
    not (SPARK_HOME / "sbin" / "start-connect-server.sh").exists(), reason="PySpark brings the script from 4.3 on"
)
def test_a_client_reads_a_batch_and_a_stream(topic: MakeTopic, produce: Produce, cluster: Cluster, tmp_path: Path) -> None:
    name = topic(partitions=2)
    for partition in range(2):
        produce(name, [(None, b"%d" % number) for number in range(20)], partition)
    instead = {
        "localhost:9092": cluster.bootstrap_servers,
        '"orders"': f'"{name}"',
        '"billing"': f'"{name}"',
        "/data": str(tmp_path),
    }
    with connect_server(tmp_path, command("start-connect-server")) as address:
        for count in (40, 42):
            client = write_program("client.py", tmp_path, {**instead, "sc://localhost:15002": address})
            with running(f"client-{count}", tmp_path, [sys.executable, str(client)]) as process:
                assert f"{count} records are there" in process.finish()
            assert len(written(tmp_path / "orders")) == count
            produce(name, [(None, b"later")] * 2, 0)
        (tmp_path / "graceful.py").write_text(GRACEFUL)
        with running("graceful", tmp_path, [sys.executable, "graceful.py", address]) as process:
            refused = process.finish()
        for function in ("await_termination", "stop_gracefully"):
            assert re.search(rf"{function} is refused: .*Nothing was stopped.* active: True", refused)
    assert written(tmp_path / "orders") == [(0, offset) for offset in range(22)] + [(1, offset) for offset in range(20)]
    assert total_lag(cluster, name, name) == 2
