"""Each log line of a query's processes names the group and the query: all of them write to one stderr."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from devtools.broker import Cluster
from tests.conftest import MakeTopic, Produce
from tests.support.spark_process import running

PROGRAM = """
import signal
import sys
from pyspark.sql import SparkSession
servers, source, output, folder = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = spark.config("spark.ui.showConsoleProgress", "false").getOrCreate()
brokers = {"kafka.bootstrap.servers": servers}
read = spark.readStream.format("groupkafka").options(**brokers).option("subscribe", source)
read = read.option("kafka.group.id", "group-of-" + source).option("startingOffsets", "earliest")
frame = read.option("checkpointLocation", f"{folder}/checkpoint").load().select("value")
write = frame.writeStream.format("groupkafka").options(**brokers).option("topic", output)
query = write.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
print("id:", query.id, file=sys.stderr, flush=True)
query.awaitTermination()
print("done", file=sys.stderr, flush=True)
signal.pause()
"""


@pytest.mark.long
def test_runner_and_driver_name_the_group_and_the_query(
    topic: MakeTopic, produce: Produce, cluster: Cluster, tmp_path: Path
) -> None:
    source, output = topic(), topic()
    produce(source, [(None, b"x")] * 10)
    (tmp_path / "program.py").write_text(PROGRAM)
    arguments = [str(tmp_path / "program.py"), cluster.bootstrap_servers, source, output, str(tmp_path)]
    with running("program", tmp_path, [sys.executable, *arguments], {"GROUPKAFKA_LOG_LEVEL": "INFO"}) as program:
        program.found_in_log(r"(?m)^(done)$")
        # Each process's lines reach the log by a way of their own.
        program.found_in_log(rf"(gained \[{source}-0\])")
        program.found_in_log(r"(10 rows written)")
        log = program.log()
    lines = [line.partition(": ")[2] for line in log.splitlines() if re.match(r"\S+ \S+ [A-Z]+ spark_groupsource\.", line)]
    (query,) = re.findall(r"(?m)^id: (\S+)$", log)
    (gained,) = [line for line in lines if f": gained [{source}-0]" in line]
    # The runner joins while a thread of its own reads the id.
    assert re.match(rf"group group-of-{source}, (query {query}, )?stream [0-9a-f]+: generation \d+: ", gained)
    (finished,) = [line for line in lines if "10 rows written" in line]
    assert finished.startswith(f"query {query}, topic {output}: Micro-batch 0: ")
    assert [line for line in lines if not line.startswith(("group ", "query ", "topic "))] == []
