"""`make chaos-sink`: two queries in one group copy a live topic into another, while they and the brokers are struck at random.

A `read_committed` consumer reads all the time: it must never see a part of a task, and never wait longer than a strike and 10 s.
At the end, each record must be in the output once.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from confluent_kafka import Producer

from devtools.broker import Cluster
from tests.chaos.copying_program import SOURCE, TARGET
from tests.chaos.copying_queries import Queries
from tests.chaos.copying_reader import CommittedReader, StableOffsets
from tests.chaos.copying_report import GRACE_S, Run, lines, violations
from tests.chaos.strikes import BROKER_KILLED, KINDS, Strikes
from tests.chaos.visible import Strike, outside
from tests.support.group_offsets import end_offsets

PARTITIONS = 4
BURST = 40_000
"""Records that are sent at once, whenever the copy has all but so many: there is always a micro-batch to strike at."""
START_LIMIT_S = 180.0
END_LIMIT_S = 300.0
LAST_LOOK_S = 30.0


class Bursts(threading.Thread):
    """Writes the numbers from 0 on."""

    def __init__(self, cluster: Cluster, reader: CommittedReader) -> None:
        super().__init__(daemon=True)
        self._servers = cluster.bootstrap_servers
        self._reader = reader
        self._ends = threading.Event()
        self.sent = 0

    def run(self) -> None:
        """Send a burst whenever the last but one has been copied."""
        producer = Producer({"bootstrap.servers": self._servers, "enable.idempotence": True, "log_level": 2, "linger.ms": 20})
        while not self._ends.wait(0.1):
            if self.sent - self._reader.copy.seen <= BURST:
                for number in range(self.sent, self.sent + BURST):
                    producer.produce(SOURCE, str(number))
                self.sent += BURST
            producer.poll(0)
        producer.flush()

    def finish(self) -> None:
        """Stop, and wait until the brokers have all records."""
        self._ends.set()
        self.join()


def order_of(kinds: Sequence[str], chance: random.Random) -> Iterator[str]:
    """Yield the kinds in random order without end, each as often as the others."""
    while True:
        yield from chance.sample(kinds, len(kinds))


def play(cluster: Cluster, folder: Path, kinds: Sequence[str], minutes: float, every: float, chance: random.Random) -> Run:
    """Strike, and wait for the rest to be copied."""
    reader, offsets = CommittedReader(cluster, TARGET, PARTITIONS), StableOffsets(cluster, TARGET, PARTITIONS)
    bursts = Bursts(cluster, reader)
    queries = Queries(cluster, folder, chance)
    strikes = Strikes(cluster, folder, queries, offsets, chance)
    struck: list[Strike] = []
    try:
        for thread in (reader, offsets, bursts):
            thread.start()
        queries.until(lambda: reader.copy.seen > 0, START_LIMIT_S)
        over = time.monotonic() + 60 * minutes
        for kind in order_of(kinds, chance):
            queries.until(lambda: False, chance.uniform(0.5, 2 * every))
            if time.monotonic() > over:
                break
            strike = strikes.strike(kind)
            if strike is not None:
                struck.append(strike)
                click.echo(f"{strike.end - over + 60 * minutes:6.1f} s: {strike.kind} of {strike.struck}", err=True)
        bursts.finish()
        queries.until(lambda: reader.copy.seen == bursts.sent, END_LIMIT_S)
        # Duplicates may come last, and every open transaction must be closed.
        queries.until(lambda: not offsets.stable, LAST_LOOK_S)
    finally:
        queries.close()
        for watcher in (reader, offsets):
            watcher.finish()
    there = sum(end_offsets(cluster, SOURCE).values())
    faults = [
        *([f"it has written {there} of {bursts.sent} records"] if there != bursts.sent else []),
        *(
            f"it has not seen partition {partition} for {seconds:.0f} s"
            for (partition, begin), end in offsets.blind.items()
            if (seconds := outside(begin, end, struck)) > GRACE_S
        ),
        *(f"{watcher.error!r}" for watcher in (reader, offsets) if watcher.error is not None),
    ]
    hidden = sorted(offsets.stable)
    return Run(kinds, struck, reader.copy, bursts.sent, offsets.stills.found(), queries.starts, queries.errors, hidden, faults)


@click.command()
@click.option("--minutes", default=3.0, show_default=True, help="For how long it strikes.")
@click.option("--seed", default=0, show_default=True, help="What is struck, and when.")
@click.option(
    "--nodes",
    default="3",
    show_default=True,
    type=click.Choice(["1", "3"]),
    help="Brokers. With 3 they are killed, too.",
)
@click.option("--every", default=6.0, show_default=True, help="Seconds between two strikes, on average.")
@click.option("--strikes", "kinds", type=click.Choice(list(KINDS)), multiple=True, help="Only these kinds.")
def main(minutes: float, seed: int, nodes: str, every: float, kinds: Sequence[str]) -> None:
    """Strike, wait for the rest to be copied, and judge what `read_committed` consumers saw."""
    chosen = [kind for kind in KINDS if kind in (kinds or KINDS) and (nodes == "3" or kind != BROKER_KILLED)]
    folder = Path(tempfile.mkdtemp(prefix="groupkafka-copying-"))
    with Cluster(nodes=int(nodes)) as cluster:
        for topic in (SOURCE, TARGET):
            cluster.create_topic(topic, PARTITIONS, {"min.insync.replicas": "2" if nodes == "3" else "1"})
        run = play(cluster, folder, chosen, minutes, every, random.Random(seed))
    click.echo(f"{len(run.strikes)} strikes in {minutes:g} minutes, seed {seed}, brokers: {nodes}")
    for line in lines(run):
        click.echo(line)
    wrong = violations(run)
    if wrong:
        raise click.ClickException("\n".join([*wrong, f"The logs and checkpoints are in {folder}"]))
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
