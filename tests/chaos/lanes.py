"""Distributes the runs to two parallel lanes, each with a cluster and warm Sparks, because most of a run is waiting."""

from __future__ import annotations

import threading
import traceback
from collections import deque
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.cases import CASES
from tests.chaos.run import Case, Job, Outcome, Run
from tests.chaos.stalls import Stalls
from tests.chaos.ways import Way
from tests.harness.brokers import Brokers
from tests.harness.pool import STARTING, Pool

OLD = "4.1"


@dataclass(frozen=True)
class Result:
    """One run that was played."""

    job: Job
    kafka: str
    outcome: Outcome
    folder: Path


def jobs(cases: Iterable[Case], rounds: int, ways: Collection[Way]) -> deque[Job]:
    """Return all runs, with those of one cluster next to each other, so that a lane at either end rarely changes its cluster.

    Of three rounds, the first two have the two protocols on the newest Kafka, and the third has one of them on the older Kafka. A
    case's run is the same no matter which other cases are played.
    """
    planned = []
    wanted = {case.name for case in cases}
    for index, case in enumerate(CASES.values()):
        if case.name not in wanted:
            continue
        for number in range(1, rounds + 1):
            old = number % 3 == 0
            consumer = (index + number // 3) % 2 == 0 if old else number % 3 == 2
            protocol = "consumer" if consumer else "classic"
            if (way := way_of(case, index, number, protocol)) in ways:
                planned.append(Job(case, number, protocol, OLD if old else None, way))
    return deque(sorted(planned, key=lambda job: (job.case.nodes, (job.version is None) == (job.case.nodes == 3))))


def way_of(case: Case, index: int, number: int, protocol: str) -> Way:
    """Return how the runners learn what is durable in run `number` of a case, the `index`-th of all.

    Three rounds of a case with three ways have all of them. With two ways, the old Kafka's run has a new combination of way and
    protocol. Later rounds combine them in other ways.
    """
    turn, place = divmod(number - 1, 3)
    if place >= len(case.ways):
        place = int(protocol == "classic")
    return case.ways[(index + turn + place) % len(case.ways)]


def play(queue: deque[Job], lanes: int, folder: Path, report: Callable[[Result], None]) -> list[str]:
    """Play all runs, and return the failures of lanes that ended too early. After Ctrl-C, no further run is started."""
    stopping = threading.Event()
    with ThreadPoolExecutor(lanes) as threads:
        takers = [("a", queue.popleft), ("b", queue.pop)][:lanes]
        started = [threads.submit(_play_lane, name, folder, take, report, stopping) for name, take in takers]
        try:
            wait(started)
        except KeyboardInterrupt:
            stopping.set()
    return ["".join(traceback.format_exception(error)) for lane in started if (error := lane.exception()) is not None]


def _play_lane(
    name: str, folder: Path, take: Callable[[], Job], report: Callable[[Result], None], stopping: threading.Event
) -> None:
    """Play runs from one end of the queue until it is empty."""
    with ExitStack() as stack:
        pool = Pool(folder / f"drivers-{name}", name)
        stack.callback(pool.close)
        brokers: tuple[tuple[int, str | None], Brokers] | None = None
        cluster = stack.enter_context(ExitStack())
        while not stopping.is_set():
            try:
                job = take()
            except IndexError:  # nothing is left to play
                return
            if brokers is None or brokers[0] != job.cluster:
                cluster.close()
                with STARTING:
                    brokers = job.cluster, cluster.enter_context(Brokers(*job.cluster))
            pool.until_warm(job.case.drivers)
            result = _play_run(job, brokers[1], pool, folder / f"{job.case.name}-{job.number}")
            report(result)
            if result.outcome.violations:
                # A run's failure may be its cluster's.
                brokers = None


def _play_run(job: Job, brokers: Brokers, pool: Pool, folder: Path) -> Result:
    run = Run(job, brokers, pool, folder)
    try:
        job.case.play(run)
        outcome = run.outcome()
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is this run's result
        problem = f"{type(error).__name__}: {error}"
        (folder / "problem.txt").write_text(f"{traceback.format_exc()}\n{run.last_words()}", encoding="utf-8")
        try:
            outcome = run.outcome(problem)
        except Exception as worse:  # noqa: BLE001
            outcome = Outcome(0, 0, 0, 0, Stalls({}, {}), (f"stuck: {problem}", f"and cannot be looked at: {worse}"), 0.0)
    finally:
        run.close()
    return Result(job, brokers.version, outcome, folder)
