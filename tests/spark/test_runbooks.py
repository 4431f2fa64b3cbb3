"""Runbooks of docs/operations.md and docs/guide.md, followed to the letter, and the rows counted."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from devtools.broker import Cluster
from spark_groupsource.cli.main import main
from tests.conftest import MakeTopic, Produce
from tests.support.producing import send
from tests.support.queries import Queries
from tests.support.waiting import until
from tests.support.written_logs import GZIP, broker_with_damage

ROOT = Path(__file__).parents[2]


def groupkafka(cluster: Cluster, group: str, command: str, *arguments: str) -> str:
    """Run a command line of a page."""
    ours = ["--bootstrap-server", cluster.bootstrap_servers, "--group", group]
    done = CliRunner().invoke(main, [command, *ours, *arguments])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(
    params=[
        pytest.param(0, id="a flipped bit"),
        pytest.param(GZIP, id="a batch that cannot be unpacked", marks=pytest.mark.long),
    ]
)
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """A broker whose topic `orders` has ten records. A batch in the middle, offsets 4 to 6, is damaged."""
    with broker_with_damage(tmp_path / "broker", request.param) as cluster:
        yield cluster


def has_left(cluster: Cluster, group: str) -> None:
    until(lambda: not json.loads(groupkafka(cluster, group, "describe", "--json"))["members"], "the query has left")


def batch_read(spark: SparkSession, cluster: Cluster, start: int, end: int) -> list[Row]:
    ends = {"startingOffsets": json.dumps({"orders": {"0": start}}), "endingOffsets": json.dumps({"orders": {"0": end}})}
    ours = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "kafka.group.id": "any", "subscribe": "orders"}
    more = {"kafkaConsumer.pollTimeoutMs": "5000"}
    return spark.read.format("groupkafka").options(**ours, **ends, **more).load().collect()


def can_be_read(spark: SparkSession, cluster: Cluster, offset: int) -> bool:
    """Return whether a batch read of this one record succeeds."""
    try:
        return len(batch_read(spark, cluster, offset, offset + 1)) == 1
    except PySparkException as failed:
        if "BrokerError" not in str(failed):
            raise
        return False


def test_a_record_that_cannot_be_read_is_passed_over_and_the_records_around_it_are_read_once(
    spark: SparkSession, damaged: Cluster, tmp_path: Path
) -> None:
    """Another query of the group has gone on above the range meanwhile. Nothing of that is read again."""
    queries = Queries(spark, tmp_path, damaged.bootstrap_servers)
    query = queries("q", "orders", **{"kafkaConsumer.pollTimeoutMs": "5000"})
    message = query.start(availableNow=True).failure()
    assert "BrokerError" in message
    assert "orders-0" in message
    group = query.options["kafka.group.id"]
    has_left(damaged, group)
    producer = Producer({"bootstrap.servers": damaged.bootstrap_servers})
    for value in (b"v10", b"v11"):
        send(producer, "orders", value, partition=0)
    assert producer.flush(60) == 0
    other = queries("other", "orders")
    other.run()
    assert other.offsets() == [(0, 10), (0, 11)]
    has_left(damaged, group)

    # 1. What is claimed of that partition?
    (claim,) = json.loads(groupkafka(damaged, group, "claims", "--json"))["claims"]
    assert (claim["partition"], claim["start"], claim["end"]) == (0, 0, 10)
    # 2. The error names the first offset of the batch. Where does it end?
    assert "at offset 4" in message
    assert [can_be_read(spark, damaged, offset) for offset in (5, 6, 7)] == [False, False, True]
    # 3.
    (partition,) = json.loads(groupkafka(damaged, group, "describe", "--json"))["partitions"]
    position = partition["position"]
    assert position == partition["committed"] + partition["held"] + partition["lowest_claim"]["finished_lag"] == 12
    groupkafka(damaged, group, "reset-offsets", "--topic", "orders:0", "--to-offset", str(position), "--drop-claims", "--execute")
    send(producer, "orders", b"v12", partition=0)
    assert producer.flush(60) == 0
    query.run()
    assert query.offsets() == [(0, 12)]
    has_left(damaged, group)
    other.run()
    assert other.offsets() == [(0, 10), (0, 11)]
    assert json.loads(groupkafka(damaged, group, "claims", "--json"))["claims"] == []
    # 4.
    rest = [
        row.offset for start, end in ((claim["start"], 4), (7, claim["end"])) for row in batch_read(spark, damaged, start, end)
    ]
    assert sorted(rest) == [0, 1, 2, 3, 7, 8, 9]
    queries.stop_all()


def test_an_output_that_was_restored_gets_what_it_lacks_from_a_batch_read(
    spark: SparkSession, queries: Queries, topic: MakeTopic, produce: Produce, cluster: Cluster, tmp_path: Path
) -> None:
    """The table is a folder of plain Parquet files, as `foreachBatch` writes them: one for each micro-batch."""
    name, table = topic(partitions=2), tmp_path / "table"
    query = queries("q", name)

    def write(frame: DataFrame, number: int) -> None:
        frame.write.mode("overwrite").parquet(str(table / f"batch={number}"))

    def run() -> None:
        query.start(availableNow=True, foreach_batch=write)
        query.running.awaitTermination()

    def rows() -> Sequence[Row]:
        return spark.read.parquet(str(table)).collect()

    for partition in range(2):
        produce(name, [(None, b"before")] * 5, partition)
    run()
    backup = table.rename(tmp_path / "backup")
    for partition in range(2):
        produce(name, [(None, b"after")] * 5, partition)
    run()
    # The table is restored. Nobody notices.
    table.rename(tmp_path / "lost")
    backup.rename(table)
    run()
    assert len(rows()) == 10

    # Lag at the stop: the query reads it itself.
    for partition in range(2):
        produce(name, [(None, b"unread")] * 5, partition)

    first_ms = min(int(row.timestamp.timestamp() * 1000) for row in rows())
    described = json.loads(groupkafka(cluster, f"group-of-{name}", "describe", "--json"))["partitions"]
    committed = {str(partition["partition"]): partition["committed"] for partition in described}
    assert committed == {"0": 10, "1": 10}
    missing = (
        spark.read.format("groupkafka")
        .options(**{"kafka.bootstrap.servers": cluster.bootstrap_servers, "kafka.group.id": "billing", "subscribe": name})
        .option("startingTimestamp", str(first_ms))
        .option("endingOffsets", json.dumps({name: committed}))
        .load()
        .join(
            spark.read.parquet(str(table)).select("topic", "partition", "offset"), ["topic", "partition", "offset"], "left_anti"
        )
    )
    missing.write.parquet(str(table / "batch=-1"))
    run()
    found = Counter((row.partition, row.offset) for row in rows())
    assert found == Counter((partition, offset) for partition in range(2) for offset in range(15))


def test_the_outputs_of_two_queries_are_read_as_the_guide_says_without_the_files_of_failed_tasks(
    spark: SparkSession, queries: Queries, topic: MakeTopic, produce: Produce
) -> None:
    text = (ROOT / "docs" / "guide.md").read_text()
    (line,) = re.findall(r"(?m)^rows = (.*\n)```\n\nRead each folder separately", text)
    for name in ("billing-1", "billing-2"):
        source = topic()
        produce(source, [(None, b"x")] * 5)
        query = queries(name, source)
        query.run()
        # What a task leaves that is killed behind its last row.
        for file in (query.folder / "out").glob("*.parquet"):
            file.with_name(f"part-of-a-killed-task-{file.name}").write_bytes(file.read_bytes())
        line = line.replace(f'"output/{name}"', f'"{query.folder}/out"')
    rows: DataFrame = eval(line, {"spark": spark})  # noqa: S307  # a line of this project's own page
    assert rows.count() == 10
