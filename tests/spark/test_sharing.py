"""Several consumers in one group: each record reaches the output once, and everybody sees who owns what."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer

from devtools.broker import Cluster
from tests.conftest import MakeTopic, Produce
from tests.support.group_offsets import committed_offsets, end_offsets, total_lag
from tests.support.producing import producing
from tests.support.queries import Pipeline, Queries
from tests.support.streams import member_stream
from tests.support.waiting import until


def every_record(written: Counter[int]) -> list[tuple[int, int]]:
    return sorted((partition, offset) for partition, count in written.items() for offset in range(count))


def owned_by(pipeline: Pipeline) -> int:
    """How many partitions the query's newest plan had."""
    pipeline.raise_if_ended()
    progress = pipeline.running.lastProgress
    end = None if progress is None else json.loads(progress.sources[0].json)["endOffset"]
    if end is None:
        return 0
    ranges: dict[str, dict[str, object]] = end["ranges"]
    return sum(len(partitions) for partitions in ranges.values())


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.long)])
def test_two_queries_of_one_group_read_each_record_once_while_one_stops_and_one_starts(
    queries: Queries, topic: MakeTopic, cluster: Cluster, protocol: str
) -> None:
    """0 lost and 0 doubled, with a query that stops and another that starts."""
    name = topic(partitions=6)
    a, b, c = (queries(one, name, maxOffsetsPerTrigger="3000", **{"kafka.group.protocol": protocol}) for one in "abc")
    with producing(cluster, name, per_second=1000) as written:
        a.start(processingTime="500 milliseconds")
        a.until_rows(1)
        b.start(processingTime="500 milliseconds")
        until(lambda: owned_by(a) == 3 and owned_by(b) == 3, "both queries own three partitions")
        b.stop()
        until(lambda: owned_by(a) == 6, "the first query has taken over")
        c.start(processingTime="500 milliseconds")
        until(lambda: owned_by(a) == 3 and owned_by(c) == 3, "the third query owns three partitions")
        until(lambda: written.total() >= 5_000, "5,000 records")
    # What the stopped query had claimed but not confirmed is its own: it reads it when it is started again.
    b.start(processingTime="500 milliseconds")
    until(lambda: total_lag(cluster, f"group-of-{name}", name) == 0, "lag 0 in the whole group", timeout_s=180)
    for pipeline in (a, b, c):
        pipeline.raise_if_ended()
        pipeline.stop()
    read = sorted(a.offsets() + b.offsets() + c.offsets())
    assert len(read) >= 5_000
    assert read == every_record(written)


def test_a_stopped_query_leaves_at_once(queries: Queries, topic: MakeTopic, produce: Produce) -> None:
    name = topic(partitions=4)
    produce(name, [(None, b"x")] * 40)
    a = queries("a", name, **{"kafka.session.timeout.ms": "45000"}).start()
    a.until_rows(40)
    with member_stream("peer", a.options) as peer:
        peer.until_owning(2)
        a.stop()
        assert peer.until_owning(4) < 35, "it waits for the session of 45 s to time out"


def described_by_kafka(cluster: Cluster, group: str) -> list[dict[str, str]]:
    """The rows of the table that kafka-consumer-groups prints."""
    argv = cluster.tool(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", cluster.bootstrap_servers, "--describe", "--group", group),
    )
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    rows = [line.split() for line in done.stdout.splitlines() if line.strip()]
    titles = next(row for row in rows if row[0] == "GROUP")
    return [dict(zip(titles, row, strict=False)) for row in rows[rows.index(titles) + 1 :]]


class ConsoleConsumer:
    """Kafka's own console consumer, cooperative-sticky, in the group; keeps what it printed."""

    def __init__(self, cluster: Cluster, topic: str, group: str, folder: Path) -> None:
        properties = folder / "console.properties"
        properties.write_text(
            "partition.assignment.strategy=org.apache.kafka.clients.consumer.CooperativeStickyAssignor\n"
            f"group.id={group}\nauto.offset.reset=earliest\nsession.timeout.ms=45000\nheartbeat.interval.ms=500\n"
        )
        argv = cluster.tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--command-config", str(properties)),
            *("--formatter-property", "print.partition=true", "--formatter-property", "print.offset=true"),
        )
        self._path = folder / "console.out"
        with self._path.open("wb") as printed, (folder / "console.err").open("wb") as complaints:
            self._process = subprocess.Popen(argv, stdout=printed, stderr=complaints)

    def offsets(self) -> list[tuple[int, int]]:
        found = re.findall(r"Partition:(\d+)\tOffset:(\d+)", self._path.read_text())
        return [(int(partition), int(offset)) for partition, offset in found]

    def leave(self) -> None:
        self._process.terminate()
        self._process.wait(60)


def test_a_stopped_static_query_does_not_leave(queries: Queries, topic: MakeTopic, produce: Produce) -> None:
    name = topic(partitions=4)
    produce(name, [(None, b"x")] * 40)
    static = {"kafka.group.instance.id": "driver-1", "kafka.session.timeout.ms": "45000"}
    a = queries("a", name, **static).start()
    a.until_rows(40)
    dynamic = {key: value for key, value in a.options.items() if key != "kafka.group.instance.id"}
    with member_stream("peer", dynamic) as peer:
        peer.until_owning(2)
        generation = peer.member.assignment.generation
        a.stop()
        produce(name, [(None, b"y")] * 40)
        a.start()
        until(lambda: len(a.offsets()) > 40, "the restarted query reads on")
        assert len(peer.owned) == 2
        assert peer.member.assignment.generation == generation
        a.stop()


def test_a_topic_whose_last_entry_ends_a_transaction_shows_no_lag(queries: Queries, topic: MakeTopic, cluster: Cluster) -> None:
    name = topic(partitions=2)
    a = queries("a", name, **{"kafka.isolation.level": "read_committed"})
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(60)

    def transaction(partition: int, *, commit: bool) -> None:
        producer.begin_transaction()
        producer.produce(name, b"x", partition=partition)
        producer.flush(60)
        (producer.commit_transaction if commit else producer.abort_transaction)(60)

    transaction(0, commit=True)
    transaction(1, commit=False)
    a.start()
    until(lambda: committed_offsets(cluster, f"group-of-{name}", name) == {0: 2, 1: 2}, "a commit behind each marker")
    transaction(0, commit=False)
    transaction(1, commit=True)
    until(lambda: total_lag(cluster, f"group-of-{name}", name) == 0, "no lag")
    assert committed_offsets(cluster, f"group-of-{name}", name) == {0: 4, 1: 4}
    a.stop()
    assert len(a.offsets()) == 2


def test_a_java_consumer_joins_and_leaves_and_every_record_is_read_once(
    queries: Queries, topic: MakeTopic, cluster: Cluster, tmp_path: Path
) -> None:
    """Kafka's own tool shows the query as an active member without lag."""
    name = topic(partitions=4)
    group = f"group-of-{name}"
    a = queries("a", name, **{"kafka.client.id": "the-query"})
    with producing(cluster, name, per_second=500) as written:
        a.start()
        until(lambda: owned_by(a) == 4, "the query owns everything")
        java = ConsoleConsumer(cluster, name, group, tmp_path)
        until(lambda: len({partition for partition, _ in java.offsets()}) == 2, "the Java consumer reads two partitions")
        until(lambda: owned_by(a) == 2, "the query keeps two")
        java.leave()
        until(lambda: owned_by(a) == 4, "the query owns everything again")
        mark = written.total()
        until(lambda: written.total() > mark + 250, "records after the Java consumer has left")
    until(lambda: total_lag(cluster, group, name) == 0, "lag 0")
    shown = described_by_kafka(cluster, group)
    a.raise_if_ended()
    a.stop()
    assert {row["PARTITION"] for row in shown} == {"0", "1", "2", "3"}
    assert {row["LAG"] for row in shown} == {"0"}
    assert {row["CLIENT-ID"] for row in shown} == {"the-query"}
    assert all(row["CONSUMER-ID"].startswith("the-query-") for row in shown)
    assert sum(int(row["CURRENT-OFFSET"]) for row in shown) == written.total()
    assert end_offsets(cluster, name) == dict(written)
    assert sorted(a.offsets() + java.offsets()) == every_record(written)
