"""Which lane plays which runs: two lanes side by side, each with a cluster and warm Sparks. Most of a run is waiting."""

from __future__ import annotations

import threading
import traceback
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.cases import CASES, Case
from tests.chaos.run import Outcome, Run
from tests.chaos.stalls import Stalls
from tests.chaos.ways import Way
from tests.harness.brokers import Brokers
from tests.harness.pool import STARTING, Pool

OLD = "4.1"


@dataclass(frozen=True)
class Job:
    """One run to play: `version` is Kafka's, None the newest. `way` is how its runners learn what is durable."""

    case: Case
    number: int
    protocol: str
    version: str | None
    way: Way

    @property
    def cluster(self) -> tuple[int, str | None]:
        """The cluster that it needs."""
        return self.case.nodes, self.version


@dataclass(frozen=True)
class Result:
    """One run that was played."""

    job: Job
    kafka: str
    outcome: Outcome
    folder: Path


def jobs(cases: Iterable[Case], rounds: int, ways: Collection[Way] = tuple(Way)) -> deque[Job]:
    """Return all runs, those of one cluster next to each other: a lane at each end seldom changes its cluster.

    Of three rounds the first two are the two protocols on the newest Kafka, and the third is one of them on the older. A run of
    a case is the same whatever other cases are played.
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

    Three rounds of a case with three ways have all of them. With two ways the old Kafka's run combines way and protocol as none
    before. Later rounds combine them in other ways.
    """
    turn, place = divmod(number - 1, 3)
    if place >= len(case.ways):
        place = int(protocol == "classic")
    return case.ways[(index + turn + place) % len(case.ways)]


class Lane:
    """Plays runs from one end of the queue until it is empty."""

    def __init__(self, name: str, folder: Path, take: Callable[[], Job], report: Callable[[Result], None]) -> None:
        self._name = name
        self._folder = folder
        self._take = take
        self._report = report
        self._thread = threading.Thread(target=self._run, name=f"lane {name}")
        self._stopping = threading.Event()
        self.failure: str | None = None
        """The failure that ended the lane too early, or None."""

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        """Wait for its end; Ctrl-C interrupts the wait."""
        while self._thread.is_alive():
            self._thread.join(0.5)

    def stop(self) -> None:
        """Start no other run."""
        self._stopping.set()

    def _run(self) -> None:
        with ExitStack() as stack:
            pool = Pool(self._folder / f"drivers-{self._name}", self._name)
            stack.callback(pool.close)
            brokers: tuple[tuple[int, str | None], Brokers] | None = None
            cluster = stack.enter_context(ExitStack())
            try:
                while not self._stopping.is_set():
                    job = self._take()
                    if brokers is None or brokers[0] != job.cluster:
                        cluster.close()
                        with STARTING:
                            brokers = job.cluster, cluster.enter_context(Brokers(*job.cluster))
                    pool.until_warm(job.case.drivers)
                    result = self._play(job, brokers[1], pool)
                    self._report(result)
                    if result.outcome.violations:
                        # What is wrong with one run may be wrong with its cluster.
                        brokers = None
            except IndexError:  # nothing is left to play
                return
            except Exception:  # noqa: BLE001 -- the other lane goes on, and the command reports this one
                self.failure = traceback.format_exc()

    def _play(self, job: Job, brokers: Brokers, pool: Pool) -> Result:
        folder = self._folder / f"{job.case.name}-{job.number}"
        case = job.case
        run = Run(
            case.name,
            job.number,
            brokers,
            pool,
            folder,
            job.protocol,
            case.sink,
            way=job.way,
            partitions=case.partitions,
            idle_streams=case.idle_streams,
        )
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
