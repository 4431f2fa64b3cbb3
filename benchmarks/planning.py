"""`make bench-planning`: measures how long planning takes with many partitions, on the development broker.

For each micro-batch, it times `latestOffset` and `partitions`, and subtracts the time spent waiting for brokers. In half of the
micro-batches, every partition has new records; in the others, one partition in a hundred does.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from confluent_kafka import Producer
from rich.console import Console
from rich.table import Table

from benchmarks.environment import environment, save
from devtools.broker import Cluster
from spark_groupsource.handoff.plan_offset import PlanOffset
from spark_groupsource.options.model import Options
from spark_groupsource.partition import TopicPartition
from spark_groupsource.query.cycle import Cycle
from spark_groupsource.spark.readers import collect_rarely

ROUNDS = 7
PARTITIONS_OF_A_TOPIC = 1000
COLUMNS = ("partitions", "with news", "latestOffset", "broker", "partitions()", "broker", "offset JSON")


class Stopwatch:
    """Counts the seconds spent waiting for a broker since the last `read`."""

    def __init__(self) -> None:
        self._waited_s = 0.0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time inside the `with` block."""
        since = time.perf_counter()
        try:
            yield
        finally:
            self._waited_s += time.perf_counter() - since

    def read(self) -> float:
        """Return the counted seconds, and reset the count to zero."""
        waited_s, self._waited_s = self._waited_s, 0.0
        return waited_s


class TimedAdmin:
    """An AdminClient that counts the time spent waiting for answers."""

    def __init__(self, admin: Any, watch: Stopwatch) -> None:
        self._admin = admin
        self._watch = watch

    def list_offsets(self, *args: Any, **more: Any) -> Mapping[Any, Any]:
        """Call the client's method; waiting for the first answer is counted."""
        futures: Mapping[Any, Any] = self._admin.list_offsets(*args, **more)
        first = next(iter(futures))
        return {**futures, first: TimedAnswer(futures[first], self._watch)}

    def describe_topics(self, *args: Any, **more: Any) -> Mapping[Any, Any]:
        """Call the client's method, and wait for all answers."""
        futures: Mapping[Any, Any] = self._admin.describe_topics(*args, **more)
        with self._watch.waiting():
            wait(futures.values())
        return futures

    def __getattr__(self, name: str) -> Any:
        return getattr(self._admin, name)


class TimedAnswer:
    """A future that counts the time spent waiting for it."""

    def __init__(self, future: Any, watch: Stopwatch) -> None:
        self._future = future
        self._watch = watch

    def result(self) -> Any:
        """Call the future's method."""
        with self._watch.waiting():
            return self._future.result()


class TimedConsumer:
    """A consumer that counts the time of its commits and of its fetches of commits."""

    def __init__(self, consumer: Any, watch: Stopwatch) -> None:
        self._consumer = consumer
        self._watch = watch

    def commit(self, **more: Any) -> Any:
        """Call the consumer's method."""
        with self._watch.waiting():
            return self._consumer.commit(**more)

    def committed(self, *args: Any, **more: Any) -> Any:
        """Call the consumer's method."""
        with self._watch.waiting():
            return self._consumer.committed(*args, **more)


def produce(cluster: Cluster, partitions: Sequence[TopicPartition]) -> None:
    """Write one record to each of these partitions."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 50})
    for partition in partitions:
        producer.produce(partition.topic, b"x", partition=partition.partition)
    if producer.flush(120):
        raise SystemExit("the broker did not take all records within 120 s")


def measure(cluster: Cluster, count: int, progress: Console) -> list[dict[str, Any]]:
    """Run micro-batches over this many partitions."""
    progress.print(f"creating {count:,} partitions", style="dim")
    # Kafka allows at most 10,000 metadata changes in one request.
    topics = [f"planned-{count}-{begin}" for begin in range(0, count, PARTITIONS_OF_A_TOPIC)]
    for topic in topics:
        cluster.create_topic(topic, min(count, PARTITIONS_OF_A_TOPIC))
    partitions = [TopicPartition(topic, number) for number in range(min(count, PARTITIONS_OF_A_TOPIC)) for topic in topics]
    options = Options.parse(
        {
            "kafka.bootstrap.servers": cluster.bootstrap_servers,
            "kafka.group.id": topics[0],
            "subscribe": ",".join(topics),
            "startingOffsets": "earliest",
        }
    )
    watch = Stopwatch()
    cycle = Cycle(options)
    cycle._topics._admin = TimedAdmin(cycle._topics._admin, watch)  # type: ignore[assignment]
    done = cycle.first()
    progress.print("joining the group", style="dim")
    try:
        while cycle.plan(done, limited=True) is not None or len(cycle.session.positions) < count:
            time.sleep(0.1)
        commits = cycle.session.ledger._commits
        commits._consumer = TimedConsumer(commits._consumer, watch)  # type: ignore[assignment]
        found = []
        for name, step in (("all", 1), ("1 in 100", 100)):
            rounds = []
            for _ in range(ROUNDS + 1):
                produce(cluster, partitions[::step])
                done, round_ = batch(cycle, done, watch)
                rounds.append(round_)
            # The first is a warm-up.
            medians = {key: statistics.median(one[key] for one in rounds[1:]) for key in rounds[0]}
            found.append({"partitions": count, "news": name, **medians})
        return found
    finally:
        cycle.stop()


def batch(cycle: Cycle, done: PlanOffset, watch: Stopwatch) -> tuple[PlanOffset, dict[str, float]]:
    """Run one micro-batch: Spark's calls, from JSON to JSON."""
    start = done.to_json()
    watch.read()
    since = time.perf_counter()
    planned = cycle.plan(PlanOffset.parse(start, done.group), limited=True)
    if planned is None:
        raise SystemExit("nothing was planned")
    end = planned.to_json()
    plan_s, plan_broker_s = time.perf_counter() - since, watch.read()
    since = time.perf_counter()
    cycle.claim(PlanOffset.parse(start, done.group), PlanOffset.parse(end, done.group))
    claim_s, claim_broker_s = time.perf_counter() - since, watch.read()
    return planned, {
        "plan_ms": 1000 * (plan_s - plan_broker_s),
        "plan_broker_ms": 1000 * plan_broker_s,
        "claim_ms": 1000 * (claim_s - claim_broker_s),
        "claim_broker_ms": 1000 * claim_broker_s,
        "offset_bytes": float(len(json.dumps(end))),
    }


@click.command()
@click.option("--partitions", type=int, multiple=True, default=(1_000, 10_000), show_default=True)
@click.option("--json", "output", type=click.Path(path_type=Path), default=Path("build/bench-planning.json"), show_default=True)
def main(partitions: Sequence[int], output: Path) -> None:
    """Measure planning, and print medians next to the time spent waiting for the broker."""
    collect_rarely()  # like the runner
    console = Console(width=120)
    with Cluster(progress=lambda line: console.print(line, style="dim")) as cluster:
        found = [row for count in partitions for row in measure(cluster, count, console)]
    table = Table(*COLUMNS)
    for row in found:
        times = [f"{row[key]:.1f} ms" for key in ("plan_ms", "plan_broker_ms", "claim_ms", "claim_broker_ms")]
        table.add_row(f"{row['partitions']:,}", row["news"], *times, f"{row['offset_bytes'] / 1000:.0f} kB")
    console.print(table)
    save(output, {"environment": environment(), "rows": found})
    console.print(f"written to {output}")


if __name__ == "__main__":
    main()
