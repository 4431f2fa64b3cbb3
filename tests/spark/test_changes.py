"""Runbooks of docs/changes.md, followed to the letter with the commands of the page, and the rows counted."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from devtools.broker import Cluster
from spark_groupsource import stop_gracefully
from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.cli import clean_up
from spark_groupsource.cli.main import main
from spark_groupsource.partition import TopicPartition
from tests.conftest import NOT_FENCED, MakeTopic, Produce
from tests.support.fetching import delete_topic
from tests.support.group_offsets import committed_offsets, end_offsets
from tests.support.page_programs import blocks, replaced
from tests.support.producing import producing
from tests.support.queries import Pipeline, Queries
from tests.support.spark_sinks import Sink
from tests.support.waiting import until

PAGE = "docs/changes.md"


def command(part: str, instead: Mapping[str, str]) -> list[str]:
    """Return the page's command line that has this text, as words, for a test's own group and topic."""
    (line,) = (line for block in blocks(PAGE, "sh") for line in block.replace("\\\n", " ").splitlines() if part in line)
    return shlex.split(replaced(line, instead))


def groupkafka(part: str, instead: Mapping[str, str]) -> str:
    """Run a command of the page."""
    done = CliRunner().invoke(main, command(part, instead)[1:])
    assert done.exit_code == 0, done.output
    return done.output


def nothing_is_claimed(cluster: Cluster, topic: str) -> bool:
    ours = {"localhost:9092": cluster.bootstrap_servers, "--group billing": f"--group group-of-{topic}"}
    return "nothing is claimed" in groupkafka("groupkafka claims", ours)


@pytest.fixture
def other_cluster() -> Iterator[Cluster]:
    with Cluster(config=NOT_FENCED) as running:
        yield running


def once(count: int, partitions: int = 2) -> list[tuple[int, int]]:
    return [(partition, offset) for partition in range(partitions) for offset in range(count)]


@pytest.mark.long
def test_a_query_moves_to_another_cluster_with_the_groups_offsets(
    queries: Queries, topic: MakeTopic, produce: Produce, cluster: Cluster, other_cluster: Cluster
) -> None:
    name = topic(partitions=2)
    for partition in range(2):
        produce(name, [(None, "x")] * 10, partition)
    query = queries("a", name)
    query.run()
    # 1.
    until(lambda: nothing_is_claimed(cluster, name), "nothing is claimed")
    # 2. What a tool copies: the records, and the group's offsets without what stands beside them.
    other_cluster.create_topic(name, 2)
    producer = Producer({"bootstrap.servers": other_cluster.bootstrap_servers})
    for partition, _ in once(15):
        producer.produce(name, b"x", partition=partition)
    assert producer.flush(60) == 0
    group = f"group-of-{name}"
    offsets = {TopicPartition(name, number): offset for number, offset in committed_offsets(cluster, group, name).items()}
    GroupAdmin({"bootstrap.servers": other_cluster.bootstrap_servers}).alter_offsets(group, offsets)
    shown = groupkafka("describe", {"other:9092": other_cluster.bootstrap_servers, "--group billing": f"--group {group}"})
    assert re.search(rf"^{name} +0 +10 +15 ", shown, re.MULTILINE)
    # 3.
    query.options = {**query.options, "kafka.bootstrap.servers": other_cluster.bootstrap_servers}
    query.run()
    assert query.offsets() == once(15)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A folder of plain Parquet files, as `foreachBatch` writes them: one for each micro-batch."""
    return tmp_path / "table"


def run_into(table: Path, query: Pipeline) -> None:
    def write(frame: DataFrame, number: int) -> None:
        frame.write.mode("overwrite").parquet(str(table / f"batch={number}"))

    query.start(availableNow=True, foreach_batch=write)
    query.finish()


def test_a_group_and_its_output_are_rolled_back_to_a_point_in_time(
    spark: SparkSession, queries: Queries, topic: MakeTopic, cluster: Cluster, table: Path, tmp_path: Path
) -> None:
    """A record in the middle is late: it has an earlier time than those before it."""
    name = topic(partitions=2)
    until_then = datetime(2026, 11, 21, 16, tzinfo=timezone.utc)
    time_ms = int(until_then.timestamp() * 1000)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for partition, offset in once(10):
        late = offset == 7
        producer.produce(name, b"x", partition=partition, timestamp=time_ms + (-1 if late else (offset - 5) * 1000))
        assert producer.flush(60) == 0
    query = queries("a", name)
    run_into(table, query)
    # 1.
    until(lambda: nothing_is_claimed(cluster, name), "nothing is claimed")
    # 2.
    ours = {"localhost:9092": cluster.bootstrap_servers, "billing": f"group-of-{name}", "--topic orders": f"--topic {name}"}
    shown = groupkafka("--to-datetime", ours)
    new = {int(number): int(offset) for number, offset in re.findall(rf"^{name} +(\d) +10 +(\d+) ", shown, re.MULTILINE)}
    assert new == {0: 5, 1: 5}
    # 3.
    kept = spark.read.parquet(str(table)).where(" OR ".join(f"(partition = {n} AND offset < {end})" for n, end in new.items()))
    kept.drop("batch").write.parquet(str(tmp_path / "kept"))
    table.rename(tmp_path / "wrong")
    (tmp_path / "kept").rename(tmp_path / "batch=-1")
    table.mkdir()
    (tmp_path / "batch=-1").rename(table / "batch=-1")
    # 4.
    run_into(table, query)
    rows = Counter((row.partition, row.offset) for row in spark.read.parquet(str(table)).collect())
    assert rows == Counter(once(10))


def test_an_input_topic_that_is_created_again_is_read_from_its_beginning(
    queries: Queries, topic: MakeTopic, produce: Produce, cluster: Cluster, admin: AdminClient
) -> None:
    name = topic(partitions=2)
    for partition in range(2):
        produce(name, [(None, "old")] * 10, partition)
    query = queries("a", name)
    # 1.
    query.run()
    until(lambda: nothing_is_claimed(cluster, name), "nothing is claimed")
    # 2.
    delete_topic(admin, name)
    cluster.create_topic(name, 2)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})  # one that has not known the old topic
    for partition, _ in once(12):
        producer.produce(name, b"new", partition=partition)
    assert producer.flush(60) == 0
    assert "DataLossError" in query.start(availableNow=True).failure()
    # 3.
    options = query.options
    query.options = {**options, "failOnDataLoss": "false"}
    query.run()
    # 4.
    query.options = options
    rows = Counter((bytes(row.value), row.partition, row.offset) for row in query.run())
    assert rows == Counter([(b"old", *place) for place in once(10)] + [(b"new", *place) for place in once(12)])


def test_an_output_topic_that_is_created_again_gets_each_later_row_once(
    sink: Sink, queries: Queries, topic: MakeTopic, produce: Produce, admin: AdminClient
) -> None:
    source = topic()
    produce(source, [(None, f"before-{number}") for number in range(10)])
    rows = queries("a", source).load().select("value")
    # 1.
    sink.run(rows)
    # 2.
    delete_topic(admin, sink.target)
    sink.cluster.create_topic(sink.target, 3)
    later = [f"later-{number}" for number in range(20)]
    produce(source, [(None, value) for value in later[:10]])
    # 3.
    with pytest.raises(StreamingQueryException, match="BatchUnknown") as failed:
        sink.run(rows)
    (number,) = set(re.findall(r"rewriteBatch=(\d+)", str(failed.value)))
    sink.stop()
    sink.run(rows, rewriteBatch=number)
    produce(source, [(None, value) for value in later[10:]])
    sink.run(rows)
    assert sink.written() == sorted(later)


def test_two_queries_become_four_and_each_record_is_read_once(queries: Queries, topic: MakeTopic, cluster: Cluster) -> None:
    name = topic(partitions=4)
    four = [queries(which, name, **{"kafka.client.id": which}) for which in "abcd"]
    with producing(cluster, name, per_second=50):
        for query in four[:2]:
            query.start(processingTime="1 second").until_rows(20)
        # 1. and 3.
        admin = GroupAdmin({"bootstrap.servers": cluster.bootstrap_servers})

        def owners() -> set[str]:
            return {member.client_id for member in admin.describe(f"group-of-{name}").members if member.partitions}

        assert owners() == {"a", "b"}
        # 2.
        for query in four[2:]:
            query.start(processingTime="1 second").until_rows(20)
        until(lambda: owners() == {"a", "b", "c", "d"}, "each has partitions")
    ends = end_offsets(cluster, name)
    until(lambda: sum(len(query.offsets()) for query in four) >= sum(ends.values()), "all is read")
    for query in four:
        assert stop_gracefully(query.running, timeout_s=180)
    until(lambda: nothing_is_claimed(cluster, name), "nothing is claimed")
    rows = Counter(place for query in four for place in query.offsets())
    assert rows == Counter((partition, offset) for partition, end in ends.items() for offset in range(end))


def test_a_query_continues_where_its_checkpoint_was_moved_to(
    spark: SparkSession, queries: Queries, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    name = topic()
    produce(name, [(None, "x")] * 10)
    query, table = queries("a", name), tmp_path / "a" / "table"
    # 1.
    run_into(table, query)
    # 2.
    (tmp_path / "elsewhere").mkdir()
    query.folder = (tmp_path / "a").rename(tmp_path / "elsewhere" / "a")
    # 3.
    produce(name, [(None, "x")] * 5)
    run_into(query.folder / "table", query)
    rows = Counter((row.partition, row.offset) for row in spark.read.parquet(str(query.folder / "table")).collect())
    assert rows == Counter(once(15, partitions=1))


def test_rows_of_sparks_file_sink_are_missing_where_its_output_was_moved_to(
    spark: SparkSession, queries: Queries, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    """Why the page says not to move it."""
    name = topic()
    produce(name, [(None, "x")] * 10)
    query = queries("a", name)
    query.run()
    (tmp_path / "elsewhere").mkdir()
    query.folder = (tmp_path / "a").rename(tmp_path / "elsewhere" / "a")
    produce(name, [(None, "x")] * 5)
    query.start(availableNow=True)
    query.finish()
    assert spark.read.parquet(str(query.folder / "out")).count() == 5


def test_the_lag_of_a_topic_that_is_no_longer_subscribed_leaves_the_group(
    queries: Queries, topic: MakeTopic, produce: Produce, cluster: Cluster
) -> None:
    kept, old = topic(), topic()
    for name in (kept, old):
        produce(name, [(None, "x")] * 10)
    query = queries("a", kept, subscribe=f"{kept},{old}")
    # 1.
    query.run()
    until(lambda: nothing_is_claimed(cluster, kept), "nothing is claimed")
    # 2.
    query.options = {**query.options, "subscribe": kept}
    query.start(processingTime="200 milliseconds")
    for name in (kept, old):
        produce(name, [(None, "x")] * 5)
    query.until_rows(25)
    # 3.
    group = f"group-of-{kept}"
    ours = {"localhost:9092": cluster.bootstrap_servers, "billing": group, "orders-old": old}
    words = command("--delete-offsets", ours)
    tool = cluster.tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *words[1:])
    done = subprocess.run(tool, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stdout, done.stdout
    assert committed_offsets(cluster, group, old) == {}
    query.stop()
    view = GroupAdmin({"bootstrap.servers": cluster.bootstrap_servers}).describe(group)
    assert {seen.partition.topic for seen in view.partitions} == {kept}
    assert len(query.rows()) == 25


def test_what_a_sink_has_left_is_deleted(
    queries: Queries, topic: MakeTopic, produce: Produce, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(partitions=3)
    for partition in range(3):
        produce(name, [(None, f"{partition}-{number}") for number in range(5)], partition)
    ours = {"localhost:9092": sink.cluster.bootstrap_servers, "/data/checkpoints/invoices": str(sink.checkpoint)}
    look, delete = [
        shlex.split(replaced(line, ours))[1:] for block in blocks(PAGE, "sh") for line in block.splitlines() if "clean-up" in line
    ]
    admin = GroupAdmin({"bootstrap.servers": sink.cluster.bootstrap_servers})
    # 1.
    query = sink.run(queries("a", name).load().select("value"))
    groups = admin.groups(str(query.id))
    assert len(groups) == 3 + 3 + 1
    early = CliRunner().invoke(main, delete)
    assert early.exit_code == 1
    assert "may still be running" in early.output
    monkeypatch.setattr(clean_up, "QUIET_S", 0.0)  # 25 minutes have passed
    # 2.
    shown = CliRunner().invoke(main, look)
    assert "7 groups of query" in shown.output
    assert admin.groups(str(query.id)) == groups
    # 3.
    done = CliRunner().invoke(main, delete)
    assert done.exit_code == 0, done.output
    assert admin.groups(str(query.id)) == []
    assert len(sink.written()) == 15
