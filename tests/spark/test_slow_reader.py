"""A package without its compiled part reads slowly: the driver says so once for each query and batch read, each worker once."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from devtools.broker import Cluster
from tests.conftest import MakeTopic, Produce
from tests.support.spark_process import ROOT, environment

PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
from spark_groupsource import register

folder, options = json.load(sys.stdin)
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)
stream = spark.readStream.format("groupkafka").options(**options, maxOffsetsPerTrigger="5").load()
writer = stream.writeStream.format("noop").option("checkpointLocation", f"{folder}/checkpoint")
writer.trigger(availableNow=True).start().awaitTermination()
print("The stream has ended", file=sys.stderr, flush=True)
print(spark.read.format("groupkafka").options(**options).load().count())
"""


def test_a_driver_without_the_native_reader_says_so_once_for_each_query_and_what_to_install(
    topic: MakeTopic, produce: Produce, cluster: Cluster, tmp_path: Path
) -> None:
    name = topic()
    produce(name, [(None, b"v")] * 10)
    sources = tmp_path / "sources"
    package = sources / "spark_groupsource"
    shutil.copytree(ROOT / "spark_groupsource", package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    options = {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "kafka.group.id": f"group-of-{name}",
        "subscribe": name,
        "startingOffsets": "earliest",
    }
    job = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps([str(tmp_path), options]),
        env={**environment(), "PYTHONPATH": str(sources)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert job.stdout.split() == ["10"]
    for said in job.stderr.split("The stream has ended"):
        (line,) = [line for line in said.splitlines() if "The driver's installation has no native reader: " in line]
        assert f"its C code is not compiled in {package}: " in line
        assert "install the wheel of spark-groupsource" in line
    (line,) = {line.partition("WARNING ")[2] for line in job.stderr.splitlines() if "by the pure Python reader" in line}
    assert str(package) in line
    assert "To use the native reader: install the wheel of spark-groupsource" in line
