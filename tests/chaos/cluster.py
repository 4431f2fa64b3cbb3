"""`make chaos-cluster`: a standalone cluster copies a live topic into files and a topic while its processes are killed.

Executors, workers, Python daemons and Python workers are killed at random, and executors and workers are decommissioned, with
speculation and a shuffle before each sink. Half of the time, dynamic allocation adds and removes executors. At the end, each
record must be in the files and in the topic once, and no query may have ended.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click
import pyarrow.parquet as pq

from devtools.broker import Cluster
from devtools.demo.count import committed_files
from tests.chaos.cluster_processes import CASES, FOUND, Processes
from tests.chaos.cluster_program import EVENTS, FILES
from tests.chaos.cluster_report import Attempts, Run, attempts, lines, violations
from tests.chaos.copying import END_LIMIT_S, PARTITIONS, START_LIMIT_S, Bursts, order_of
from tests.chaos.copying_program import SOURCE, TARGET
from tests.chaos.copying_reader import CommittedReader
from tests.chaos.visible import Copy, Strike
from tests.support.group_offsets import end_offsets


def files_of(folder: Path) -> Copy:
    """Return the files that the query into files has written."""
    copy = Copy()
    for file in committed_files(folder / FILES):
        for value in pq.read_table(file, columns=["value"], partitioning=None).column("value").to_pylist():
            copy.add(value)
    copy.look(0.0)
    return copy


def attempts_of(folder: Path) -> Attempts:
    """Return the attempts from all drivers' event logs. The last line from a killed driver may be truncated."""
    logs = sorted((folder / EVENTS).rglob("events_*"))
    return attempts(line for log in logs for line in log.read_text().splitlines() if line.endswith("}"))


def play(
    brokers: Cluster,
    folder: Path,
    cases: Sequence[str],
    kinds: Sequence[str],
    minutes: float,
    every: float,
    chance: random.Random,
) -> Run:
    """Strike in each case for its part of the time, and wait for the rest to be copied."""
    reader = CommittedReader(brokers, TARGET, PARTITIONS)
    bursts = Bursts(brokers, reader)
    processes = Processes(brokers, folder, chance)
    struck: list[Strike] = []
    faults: list[str] = []
    try:
        for thread in (reader, bursts):
            thread.start()
        for case in cases:
            processes.begin(case)
            seen = reader.copy.seen
            if not processes.until(lambda seen=seen: reader.copy.seen > seen, START_LIMIT_S):  # type: ignore[misc]
                faults.append(f"{case}: nothing is copied")
                break
            begin, over = time.monotonic(), time.monotonic() + 60 * minutes / len(cases)
            for kind in order_of(kinds, chance):
                processes.until(lambda: False, chance.uniform(0.5, 2 * every))
                if time.monotonic() > over or processes.driver_ended:
                    break
                strike = processes.decommission(kind) if kind.endswith("-decommissioned") else processes.kill(kind)
                if strike is not None:
                    struck.append(strike)
                    click.echo(f"{case} {strike.end - begin:6.1f} s: {strike.kind} at {strike.struck}", err=True)
            if case == cases[-1]:
                bursts.finish()
                processes.until(lambda: reader.copy.seen == bursts.sent, END_LIMIT_S)
                processes.until(lambda: files_of(folder).seen == bursts.sent, END_LIMIT_S)
            if not processes.driver_ended:
                processes.stop()
    finally:
        left = processes.close()
        reader.finish()
    there = sum(end_offsets(brokers, SOURCE).values())
    faults += [f"it has written {there} of {bursts.sent} records"] if there != bursts.sent else []
    faults += [] if reader.error is None else [f"{reader.error!r}"]
    return Run(kinds, struck, bursts.sent, reader.copy, files_of(folder), processes.ended, attempts_of(folder), left, faults)


@click.command()
@click.option("--minutes", default=4.0, show_default=True, help="For how long it strikes, in all cases together.")
@click.option("--seed", default=0, show_default=True, help="What is struck, and when.")
@click.option("--every", default=6.0, show_default=True, help="Seconds between two strikes, on average.")
@click.option("--case", "cases", type=click.Choice(list(CASES)), multiple=True, default=tuple(CASES), help="Only these cases.")
@click.option("--strikes", "kinds", type=click.Choice(list(FOUND)), multiple=True, default=tuple(FOUND), help="Only these kinds.")
def main(minutes: float, seed: int, every: float, cases: Sequence[str], kinds: Sequence[str]) -> None:
    """Strike, wait for the rest to be copied, and count every record in the files and in the topic."""
    folder = Path(tempfile.mkdtemp(prefix="groupkafka-cluster-"))
    with Cluster() as brokers:
        for topic in (SOURCE, TARGET):
            brokers.create_topic(topic, PARTITIONS)
        run = play(brokers, folder, list(dict.fromkeys(cases)), kinds, minutes, every, random.Random(seed))
    click.echo(f"{len(run.strikes)} strikes in {minutes:g} minutes, seed {seed}, cases: {', '.join(cases)}")
    for line in lines(run):
        click.echo(line)
    wrong = violations(run)
    if wrong:
        raise click.ClickException("\n".join([*wrong, f"The logs and checkpoints are in {folder}"]))
    shutil.rmtree(folder)
    click.echo("right: each record is in the files and in the topic once, and no query has ended")


if __name__ == "__main__":
    main()
