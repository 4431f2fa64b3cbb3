"""`make bench-coordinator`: measures what commits cost the group's coordinator, on the development broker with stock JVM flags.

A query runs its cycle without Spark. Before each micro-batch, one record is written to every partition, so that every partition
has a new record and is committed. For comparison, the same records are written without any reader, and with a Java consumer that
commits or does not. The offsets topic's growth is read from its files, and the broker's CPU time from /proc.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from confluent_kafka.admin import AdminClient
from rich.console import Console
from rich.table import Table

from benchmarks.environment import environment, save
from benchmarks.flags import STOCK_FLAGS
from benchmarks.planning import PARTITIONS_OF_A_TOPIC, produce
from devtools.broker import Cluster
from spark_groupsource.observer import Observer
from spark_groupsource.options.model import Options
from spark_groupsource.partition import TopicPartition
from spark_groupsource.patience import Deadline
from spark_groupsource.query.cycle import Cycle
from spark_groupsource.spark.readers import collect_rarely

JAVA_COMMITS_S = 5.0
"""Java's `auto.commit.interval.ms`: its default."""

FASTEST_S = 0.06
"""The shortest interval of micro-batches that Spark reaches with single records: about 17 in a second."""

_JOIN_S = 120.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cost:
    """The cost of one client in one measurement.

    `commits` is the number of this source's OffsetCommit requests, or `None` for the Java consumer, which does not report them.
    `offset_bytes` is the growth of the offsets topic, and `broker_cpu_s` is the broker's total CPU time.
    """

    partitions: int
    client: str
    interval_s: float
    seconds: float
    rounds: int
    commits: int | None
    offset_bytes: int
    broker_cpu_s: float


class CountedCommits(Observer):
    """Counts one run's commits."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def commit(self) -> Iterator[None]:
        """Count one."""
        self.count += 1
        yield


class Bench:
    """The measurements on one broker with one number of partitions."""

    def __init__(self, cluster: Cluster, data: Path, count: int, seconds: float) -> None:
        self._cluster = cluster
        self._data = data
        self._seconds = seconds
        # Kafka allows at most 10,000 metadata changes in one request.
        self._topics = [f"committed-{count}-{begin}" for begin in range(0, count, PARTITIONS_OF_A_TOPIC)]
        size = min(count, PARTITIONS_OF_A_TOPIC)
        for topic in self._topics:
            cluster.create_topic(topic, size)
        self._partitions = [TopicPartition(topic, number) for topic in self._topics for number in range(size)]

    def nobody(self, interval_s: float) -> Cost:
        """Write the records, and read nothing."""
        return self._measure("nobody", interval_s, lambda: None, lambda: None)

    def ours(self, interval_s: float) -> Cost:
        """Run a query's micro-batches with this source."""
        commits = CountedCommits()
        options = Options.parse(
            {
                "kafka.bootstrap.servers": self._cluster.bootstrap_servers,
                "kafka.group.id": f"ours-{len(self._partitions)}-{interval_s:g}",
                "subscribe": ",".join(self._topics),
                "startingOffsets": "earliest",
            }
        )
        cycle = Cycle(options, observer=commits)
        done = cycle.first()

        def batch() -> None:
            nonlocal done
            planned = cycle.plan(done, limited=False)
            if planned is not None:
                cycle.claim(done, planned)
                done = planned

        try:
            limit = Deadline(_JOIN_S)
            while len(cycle.session.positions) < len(self._partitions):
                if limit.over:
                    raise SystemExit(f"the group did not assign {len(self._partitions)} partitions within {_JOIN_S:.0f} s")
                batch()
            return self._measure("this source", interval_s, batch, lambda: commits.count)
        finally:
            cycle.stop()

    def java(self, *, commits: bool) -> Cost:
        """Run Kafka's console consumer, which reads the records, and commits every five seconds or never."""
        name = f"java-{'commits' if commits else 'reads'}-{len(self._partitions)}"
        command = self._cluster.tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", self._cluster.bootstrap_servers, "--include", f"{self._topics[0].rpartition('-')[0]}-.*"),
            *("--group", name, "--consumer-property", f"enable.auto.commit={str(commits).lower()}"),
            *("--consumer-property", f"auto.commit.interval.ms={JAVA_COMMITS_S * 1000:.0f}"),
        )
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as consumer:
            try:
                self._until_assigned(name)
                kind = "Java consumer" if commits else "Java consumer, no commits"
                return self._measure(kind, JAVA_COMMITS_S, lambda: None, lambda: None, news_s=1.0)
            finally:
                consumer.kill()

    def _until_assigned(self, group: str) -> None:
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap_servers})
        for _ in Deadline(_JOIN_S).attempts():
            members = admin.describe_consumer_groups([group])[group].result().members
            if sum(len(member.assignment.topic_partitions) for member in members) == len(self._partitions):
                return
        raise SystemExit(f"the Java consumer got no assignment within {_JOIN_S:.0f} s")

    def _measure(
        self,
        client: str,
        interval_s: float,
        batch: Callable[[], None],
        commits: Callable[[], int | None],
        *,
        news_s: float | None = None,
    ) -> Cost:
        """Once per interval, write one record to each partition and run a micro-batch."""
        produce(self._cluster, self._partitions)
        batch()
        rounds, began = 0, time.monotonic()
        before = commits(), self._offset_bytes(), self._broker_cpu_s()
        while time.monotonic() - began < self._seconds:
            produce(self._cluster, self._partitions)
            batch()
            rounds += 1
            time.sleep(max(0.0, began + rounds * (news_s or interval_s) - time.monotonic()))
        after = commits(), self._offset_bytes(), self._broker_cpu_s()
        return Cost(
            len(self._partitions),
            client,
            interval_s,
            time.monotonic() - began,
            rounds,
            after[0] - before[0] if after[0] is not None and before[0] is not None else None,
            after[1] - before[1],
            after[2] - before[2],
        )

    def _offset_bytes(self) -> int:
        return sum(file.stat().st_size for file in self._data.glob("**/__consumer_offsets-*/*.log"))

    def _broker_cpu_s(self) -> float:
        ticks = 0
        for node in self._cluster.nodes:
            fields = Path(f"/proc/{node.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / _TICKS_PER_S


def print_costs(console: Console, costs: Sequence[Cost]) -> None:
    """Print a line for each measurement, with costs per second."""
    table = Table(
        "partitions", "client", "interval", "micro-batches/s", "commits/s", "kB/s of offsets", "B/partition", "broker CPU"
    )
    for cost in costs:
        each = cost.offset_bytes / (cost.rounds * cost.partitions)
        table.add_row(
            f"{cost.partitions:,}",
            cost.client,
            f"{cost.interval_s:g} s" if cost.client != "nobody" else "",
            f"{cost.rounds / cost.seconds:.1f}" if cost.client in ("nobody", "this source") else "",
            f"{cost.commits / cost.seconds:.1f}" if cost.commits is not None else "",
            f"{cost.offset_bytes / cost.seconds / 1000:,.1f}",
            f"{each:,.0f}" if cost.client == "this source" else "",
            f"{100 * cost.broker_cpu_s / cost.seconds:.1f} %",
        )
    console.print(table)


@click.command()
@click.option("--partitions", type=int, multiple=True, default=(1, 100, 1_000, 10_000), show_default=True)
@click.option("--interval", "intervals", type=float, multiple=True, default=(FASTEST_S, 1.0, 10.0), show_default=True)
@click.option("--seconds", default=30.0, show_default=True, help="How long each client is measured.")
@click.option("--json", "output", type=click.Path(path_type=Path), default=Path("build/bench-coordinator.json"))
def main(partitions: Sequence[int], intervals: Sequence[float], seconds: float, output: Path) -> None:
    """Measure what commits from this source and from a Java consumer cost the coordinator."""
    collect_rarely()  # like the runner
    console = Console(width=140)
    costs = []
    # One segment per partition, so that compaction removes nothing during the measurement. The number of partitions is the
    # default.
    config = {"offsets.topic.segment.bytes": str(2**31 - 1), "offsets.topic.num.partitions": "50"}
    with tempfile.TemporaryDirectory() as name:
        data = Path(name)
        with Cluster(config=config, data_dir=data, jvm_options=STOCK_FLAGS, progress=console.print) as cluster:
            for count in partitions:
                bench = Bench(cluster, data, count, seconds)
                measured = [bench.java(commits=False), bench.java(commits=True)]
                for interval_s in intervals:
                    measured += [bench.nobody(interval_s), bench.ours(interval_s)]
                print_costs(console, measured)
                costs += measured
    save(output, {"environment": environment(), "rows": [asdict(cost) for cost in costs]})
    console.print(f"written to {output}")


if __name__ == "__main__":
    main()
