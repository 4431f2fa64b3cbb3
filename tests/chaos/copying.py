"""`make chaos-sink`: two queries of one group copy a live topic into another; drivers, workers and brokers are killed at random.

At the end a reader of committed records counts: each record is there once. The reader is librdkafka with
`isolation.level=read_committed`.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import click
from confluent_kafka import KafkaException, Producer

from devtools.broker import Cluster
from devtools.broker.ready import quiet_client
from spark_groupsource.patience import Deadline
from tests.harness.brokers import in_sync
from tests.support.committed import read_committed
from tests.support.group_offsets import total_lag
from tests.support.processes import processes_with
from tests.support.spark_process import SparkProcess

SOURCE, TARGET, GROUP = "orders", "copies", "copying"
PARTITIONS = 4
RECORDS_A_SECOND = 500
END_LIMIT_S = 300.0
IN_SYNC_LIMIT_S = 180.0
BROKERS_SHARE = 0.15
"""How many of the kills hit a broker, if there are three."""
MARK = f"COPYING_{os.getpid()}"
"""Stands in the environment of all processes of a query."""

PROGRAM = """
import sys
from pyspark.sql import SparkSession

name, servers = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2,4]").appName(name).config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
)
orders = (
    spark.readStream.format("groupkafka")
    .option("kafka.bootstrap.servers", servers)
    .option("kafka.group.id", "copying")
    .option("kafka.session.timeout.ms", 6000)
    .option("subscribe", "orders")
    .option("startingOffsets", "earliest")
    .option("checkpointLocation", f"{name}/checkpoint")
    .load()
)
query = (
    orders.select("key", "value")
    .writeStream.format("groupkafka")
    .option("kafka.bootstrap.servers", servers)
    .option("topic", "copies")
    .option("checkpointLocation", f"{name}/checkpoint")
    .start()
)
print("started", file=sys.stderr, flush=True)
query.awaitTermination()
"""


class Queries:
    """The two queries: each is started again whenever it has ended."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._running: dict[str, SparkProcess] = {}
        self.starts: Counter[str] = Counter()
        (folder / "copying_query.py").write_text(PROGRAM)

    def keep_running(self) -> None:
        """Start those that do not run."""
        for name in "AB":
            if name not in self._running or self._running[name].ended:
                self.starts[name] += 1
                command = [sys.executable, "copying_query.py", name, self._cluster.bootstrap_servers]
                if name in self._running:
                    self._running[name].close()
                self._running[name] = SparkProcess(f"{name}-{self.starts[name]}", self._folder, command, {MARK: name})

    def kill(self, chance: random.Random) -> str | None:
        """Kill a process of one query, with SIGKILL: its driver, or a Python worker of it. None if it has no such process yet."""
        name = chance.choice("AB")
        processes = processes_with(f"{MARK}={name}")
        drivers = [pid for pid, command in processes.items() if "java" in command.partition(" ")[0]]
        workers = [pid for pid, command in processes.items() if "pyspark.daemon" in command]
        kind, among = ("worker", workers) if workers and chance.random() < 0.5 else ("driver", drivers)
        if not among:
            return None
        os.kill(chance.choice(among), signal.SIGKILL)
        return f"a {kind} is killed"

    def close(self) -> None:
        """Kill both."""
        for process in self._running.values():
            process.close()


def kill_broker(cluster: Cluster, chance: random.Random, queries: Queries) -> str:
    """Kill a broker with SIGKILL, and start it again. It leads partitions, and coordinates groups and transactions."""
    node = chance.choice(cluster.nodes)
    node.kill()
    time.sleep(chance.uniform(1, 15))
    queries.keep_running()
    node.start()
    # Before another one is killed: a partition with one replica in sync takes no records.
    client = quiet_client(cluster.bootstrap_servers)
    for _ in Deadline(IN_SYNC_LIMIT_S).attempts(1.0):
        with contextlib.suppress(KafkaException):
            if in_sync(client.list_topics(timeout=30).topics.values()):
                break
    return "a broker is killed"


def produce(cluster: Cluster, ends: threading.Event, sent: list[int]) -> None:
    """Write the numbers from 0 on until the event is set. What is sent is read back from the topic at the end."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "log_level": 2})
    began = time.monotonic()
    while not ends.wait(0.1):
        for number in range(sent[0], int((time.monotonic() - began) * RECORDS_A_SECOND)):
            producer.produce(SOURCE, str(number))
            sent[0] = number + 1
        producer.poll(0)
    producer.flush()


@click.command()
@click.option("--minutes", default=3.0, show_default=True, help="For how long processes are killed.")
@click.option("--seed", default=0, show_default=True, help="Which are killed, and when.")
@click.option(
    "--nodes",
    default="3",
    show_default=True,
    type=click.Choice(["1", "3"]),
    help="Brokers. With 3 they are killed, too.",
)
@click.option("--every", default=6.0, show_default=True, help="Seconds between two kills, on average.")
def main(minutes: float, seed: int, nodes: str, every: float) -> None:
    """Kill, wait for the rest to be copied, and count."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="groupkafka-copying-") as folder, Cluster(nodes=int(nodes)) as cluster:
        for topic in (SOURCE, TARGET):
            cluster.create_topic(topic, PARTITIONS, {"min.insync.replicas": "2" if nodes == "3" else "1"})
        ends, sent, kills = threading.Event(), [0], Counter[str]()
        writer = threading.Thread(target=produce, args=(cluster, ends, sent), daemon=True)
        queries = Queries(cluster, Path(folder))
        try:
            queries.keep_running()
            writer.start()
            over = time.monotonic() + 60 * minutes
            while time.monotonic() < over:
                time.sleep(chance.uniform(0.5, 2 * every))
                hits_broker = nodes == "3" and chance.random() < BROKERS_SHARE
                done = kill_broker(cluster, chance, queries) if hits_broker else queries.kill(chance)
                if done is not None:
                    kills[done] += 1
                queries.keep_running()
            ends.set()
            writer.join()
            expected = Counter(read_committed(cluster, SOURCE))
            for _ in Deadline(END_LIMIT_S).attempts(2.0):
                queries.keep_running()
                if total_lag(cluster, GROUP, SOURCE) == 0 and expected.total() <= len(read_committed(cluster, TARGET)):
                    break
            else:
                click.echo(f"not copied within {END_LIMIT_S:.0f} s; what is missing counts as lost")
        finally:
            queries.close()
        found = Counter(read_committed(cluster, TARGET))
        lost, doubled = expected - found, found - expected
        click.echo(f"{sum(kills.values())} kills in {minutes:g} minutes, seed {seed}: {dict(kills)}")
        click.echo(f"starts: {dict(queries.starts)}")
        click.echo(f"{expected.total():,} records, {lost.total()} lost, {doubled.total()} doubled")
        if lost or doubled:
            raise click.ClickException(f"lost {sorted(lost)[:5]}, doubled {sorted(doubled)[:5]}")
        if expected.total() < sent[0]:
            raise click.ClickException(f"the harness itself has written {expected.total()} of {sent[0]} records")


if __name__ == "__main__":
    main()
