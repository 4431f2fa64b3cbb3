"""Spark around the sink: drivers that run micro-batches from a checkpoint, tries of tasks that overlap, and what goes wrong."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest.mock import patch

from spark_groupsource.errors import BatchUnknown, GroupKafkaError, ReplayDiffers
from spark_groupsource.patience import Deadline
from spark_groupsource.sink import finishing, tokens, writing
from spark_groupsource.sink.settings import SinkSettings
from spark_groupsource.sink.writing import Attempt, Report
from tests.simulation.sink.broker import Broker
from tests.simulation.sink.processes import TOPIC, FakeTokens, make_producer, record_batches
from tests.simulation.sink.steps import Killed, Steps, clock

PREFIX = "q"
MOST_FAILURES = 4
"""`spark.task.maxFailures`."""
SETTLED_AFTER = 4000
LATE_S = 3600.0
"""More than any step of the sink may take."""


class Violation(AssertionError):
    """The sink has broken a promise."""


@dataclass
class Driver:
    """One run of the query."""

    run: str
    batch: int
    running: dict[int, list[Steps]] = field(default_factory=dict)
    """The tries of each task that run."""
    failures: dict[int, int] = field(default_factory=dict)
    done: dict[int, Report] = field(default_factory=dict)
    finishing: Steps | None = None
    error: BaseException | None = None
    """Why the query ended."""


@dataclass
class World:
    """A query whose micro-batches have the same rows in the same tasks, however often they are run.

    With `uneven` a replay may have the rows in other tasks, and with `fewer` all of them in one. Then they may be in the topic
    twice, but not without an error.
    """

    seed: int
    tasks: int = 2
    batches: int = 3
    rows: int = 2
    expiry: bool = False
    uneven: bool = False
    fewer: bool = False
    name_topics: bool = False
    """Whether rows name their topics, in turn."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.broker = Broker()
        self.committed = -1
        """The newest micro-batch in Spark's commit log, which survives the drivers."""
        self.settings = SinkSettings({}, {}, None if self.name_topics else TOPIC, exactly_once=True, prefix=PREFIX)
        self.drivers: list[Driver] = []
        self.orphans: list[Steps] = []
        """Tries that still run, of drivers that are dead or of tasks that are done."""
        self.processes: list[Steps] = []
        self.differs = self.uneven or self.fewer
        """Whether a replay may have the rows in other tasks."""
        self.pauses: set[int] = set()
        """When nothing of the query ran."""
        self.trace: list[str] = []
        self.runs = 0

    def rows_of(self, batch: int, task: int, run: int = 0) -> list[str]:
        """The rows of a task. The last task of each second micro-batch has none; in an uneven one, that of each second run."""
        if self.tasks_of(run) < self.tasks:
            return [row for each in range(self.tasks) for row in self.rows_of(batch, each)]
        if self.uneven:
            task = (task + run) % self.tasks
        count = 0 if task == self.tasks - 1 and (self.uneven or batch % 2) else self.rows
        return [f"{batch}.{task}.{number}" for number in range(count)]

    def expected(self, batches: int) -> set[str]:
        """Every row of the first micro-batches."""
        return {row for batch in range(batches) for task in range(self.tasks) for row in self.rows_of(batch, task)}

    def tasks_of(self, run: int) -> int:
        """How many tasks a micro-batch has: with `fewer` one in each second run. Run 0 is what there is to write."""
        return 1 if self.fewer and run and run % 2 == 0 else self.tasks

    # What can happen.

    def actions(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """What may happen next, by name."""
        for driver in self.drivers:
            yield "step", partial(self._step, driver)
            yield "step", partial(self._step, driver)
        for orphan in self.orphans:
            yield "orphan", partial(self._step_orphan, orphan)
        for group in self.broker.pending:
            yield "settle", partial(self.broker.settle, group)

    def trouble(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """What may go wrong next, by name."""
        for driver in self.drivers:
            yield "kill driver", partial(self._end, driver, None)
            for task, tries in driver.running.items():
                if tries:
                    yield "kill worker", partial(self._kill_try, driver, task, tries[0])
                    yield "speculate", partial(self._try, driver, task)
                    yield "lose a request", partial(setattr, tries[0], "loses", "request")
                    yield "lose an answer", partial(setattr, tries[0], "loses", "answer")
                    yield "run out of time", partial(self._run_out_of_time, tries[0])
        if len(self.drivers) < (1 if self.differs else 2):
            yield "second driver", self.start
        for orphan in self.orphans:
            yield "kill orphan", partial(self._end_orphan, orphan)
        # What was committed while the query ran expires within a short time; it is not taken apart here.
        if self._may_expire():
            yield "expire", lambda: self.broker.expire(self.random.choice(sorted(self.pauses)))
        for name, found in self.broker.ids.items():
            if found.open is not None:
                yield "time out", partial(self.broker.time_out, name)

    def _may_expire(self) -> bool:
        """Whether nothing of the query runs. Until its driver has kept a first token docs/sink.md makes no promise."""
        return self.expiry and self.committed >= 0 and not self.drivers and not self.orphans

    def _note_pause(self) -> None:
        if self._may_expire():
            self.pauses.add(self.broker.now)

    def start(self) -> None:
        """Start a driver from the checkpoint."""
        self.runs += 1
        self.drivers.append(Driver(f"{self.runs:08x}", self.committed + 1))

    def _step(self, driver: Driver) -> None:
        number = self.tasks_of(int(driver.run, 16))
        if driver.batch >= self.batches:
            self.drivers.remove(driver)
        elif driver.finishing is not None:
            self._step_finish(driver, driver.finishing)
        elif len(driver.done) == number:
            rows = sum(one.written + one.skipped for one in driver.done.values())
            empty = frozenset(task for task, one in driver.done.items() if not one.written and not one.skipped)
            topics = tuple(sorted({topic for one in driver.done.values() for topic in one.topics}))
            tasks = finishing.Tasks(number, rows, topics, empty)
            driver.finishing = self._process(partial(finishing.finish, self.settings, PREFIX, driver.batch, driver.run, tasks))
        else:
            self._step_task(driver, self.random.choice([task for task in range(number) if task not in driver.done]))

    def _step_task(self, driver: Driver, task: int) -> None:
        tries = driver.running.setdefault(task, [])
        if not tries:
            self._try(driver, task)
            return
        one = self.random.choice(tries)
        one.step()
        if not one.done:
            return
        tries.remove(one)
        if one.error is None:
            assert isinstance(one.result, Report)
            driver.done[task] = one.result
            self.orphans += tries
            tries.clear()
        else:
            self._failed(driver, task, one.error)

    def _failed(self, driver: Driver, task: int, error: BaseException) -> None:
        if not isinstance(error, GroupKafkaError | Killed):
            raise error
        self.trace.append(f"{driver.run} batch {driver.batch} task {task}: {type(error).__name__}")
        driver.failures[task] = driver.failures.get(task, 0) + 1
        if driver.failures[task] >= MOST_FAILURES:
            self._end(driver, error)

    def _step_finish(self, driver: Driver, process: Steps) -> None:
        process.step()
        if not process.done:
            return
        if process.error is not None:
            self._end(driver, process.error)
            return
        # Two drivers on one checkpoint: Spark's log refuses the second one's entry.
        if self.committed >= driver.batch:
            self._end(driver, None)
            return
        self.committed = driver.batch
        driver.batch += 1
        driver.running, driver.failures, driver.done, driver.finishing = {}, {}, {}, None

    def _try(self, driver: Driver, task: int) -> None:
        rows = record_batches(self.rows_of(driver.batch, task, int(driver.run, 16)), name_topics=self.name_topics)
        work = partial(writing.write_once, self.settings, PREFIX, Attempt(driver.batch, task, driver.run), rows)
        driver.running.setdefault(task, []).append(self._process(work))

    def _process(self, work: Callable[[], Any]) -> Steps:
        self.processes = [one for one in self.processes if not one.done]
        self.processes.append(Steps(self.broker, work))
        return self.processes[-1]

    def _kill_try(self, driver: Driver, task: int, one: Steps) -> None:
        one.kill()
        driver.running[task].remove(one)
        self._failed(driver, task, Killed())

    def _run_out_of_time(self, one: Steps) -> None:
        """Lose the next request or its answer, until after all that the process waits for."""
        one.loses = self.random.choice(["request", "answer"])
        one.late_s += LATE_S

    def _end(self, driver: Driver, error: BaseException | None) -> None:
        if isinstance(error, GroupKafkaError):
            driver.error = error
        if driver in self.drivers:
            self.drivers.remove(driver)
        tries = [one for each in driver.running.values() for one in each]
        if self.differs:
            # A try that outlives its driver, and that the replay has no rows to fence it with, is not noticed: docs/sink.md.
            for one in tries:
                one.kill()
        else:
            self.orphans += tries
        if driver.finishing is not None:
            driver.finishing.kill()

    def _step_orphan(self, one: Steps) -> None:
        one.step()
        if one.done:
            self.orphans.remove(one)

    def _end_orphan(self, one: Steps) -> None:
        one.kill()
        self.orphans.remove(one)

    # What must be true.

    def check(self) -> None:
        """Check that no row is there twice, and that a micro-batch in Spark's commit log is there."""
        finished = self.expected(self.committed + 1)
        doubled = sorted(row for row, count in self.broker.visible.items() if count > 1 and (not self.differs or row in finished))
        if doubled:
            raise Violation(f"doubled: {doubled}")
        lost = sorted(finished - set(self.broker.visible))
        if lost:
            raise Violation(f"lost: {lost}")

    def play(self, steps: int, trouble: float) -> None:
        """Let things happen, and go wrong; then let the query come to its end."""
        for _ in range(steps):
            self._note_pause()
            happens = list(self.actions())
            if not happens or self.random.random() < trouble:
                happens = list(self.trouble())
            name, action = self.random.choice(happens)
            self.trace.append(name)
            action()
            self.check()
        self.settle()

    def play_planned(self, wrong_at: Mapping[int, int], steps: int) -> list[int]:
        """Let things happen in one order, and go wrong as planned; then let the query come to its end.

        `wrong_at` says what goes wrong at which step: its place in `trouble()` then. Return how many things could have gone wrong
        at each step.
        """
        counts = []
        for step in range(steps):
            wrong = list(self.trouble())
            counts.append(len(wrong))
            happens = list(self.actions())
            if step not in wrong_at and not happens:
                break
            name, action = wrong[wrong_at[step]] if step in wrong_at else happens[step % len(happens)]
            self.trace.append(name)
            action()
            self.check()
        self.settle()
        return counts

    def settle(self) -> None:
        """Let the query come to its end, with nothing going wrong any more."""
        ended: list[Driver] = []
        for count in range(SETTLED_AFTER):
            if not self.drivers:
                if self.committed == self.batches - 1:
                    break
                self.start()
                ended.append(self.drivers[0])
                if self.expiry and len(ended) > 1 and isinstance(ended[-2].error, BatchUnknown):
                    return
                if self.differs and len(ended) > 1 and isinstance(ended[-2].error, ReplayDiffers):
                    return
                if len(ended) > MOST_FAILURES:
                    raise Violation(f"the query stops each time: {ended[-2].error}")
            self._note_pause()
            happens = list(self.actions())
            # A coordinator ends a transaction that nobody ends.
            if count % 50 == 0:
                happens += [wrong for wrong in self.trouble() if wrong[0] == "time out"]
            name, action = self.random.choice(happens)
            self.trace.append(name)
            action()
            self.check()
        else:
            raise Violation("the query does not come to its end")
        while self.orphans or self.broker.pending:
            next(action for name, action in self.actions() if name in ("orphan", "settle"))()
            for name in [name for name, found in self.broker.ids.items() if found.open is not None and not self.orphans]:
                self.broker.time_out(name)
        self.check()

    def kill_all(self) -> None:
        """End every thread."""
        for one in self.processes:
            one.kill()


@contextmanager
def simulated() -> Iterator[None]:
    """Have the sink's code use the simulated processes."""
    with ExitStack() as patches:
        patches.enter_context(patch.object(writing, "make_producer", make_producer))
        patches.enter_context(patch.object(writing, "Tokens", FakeTokens))
        patches.enter_context(patch.object(finishing, "Tokens", FakeTokens))
        patches.enter_context(patch.object(tokens, "LISTS_APART_S", 0))
        patches.enter_context(patch.object(writing, "Deadline", partial(Deadline, clock=clock, sleep=lambda _: None)))
        yield


def every_trouble(most: int, steps: int = 60, **setting: Any) -> Iterator[str | None]:
    """Play every history in which up to `most` things go wrong, at any step each. Yields what `run` returns."""
    plans: list[dict[int, int]] = [{}]
    while plans:
        plan = plans.pop()
        world = World(0, **setting)
        world.start()
        try:
            counts = world.play_planned(plan, steps)
        except Violation as violation:
            yield f"{plan}: {violation}\n" + "\n".join(world.trace[-60:])
        else:
            yield None
            if len(plan) < most:
                begin = max(plan, default=-1) + 1
                plans += [{**plan, step: one} for step in range(begin, len(counts)) for one in range(counts[step])]
        finally:
            world.kill_all()


def run(seed: int, *, steps: int = 150, trouble: float = 0.08, **setting: Any) -> str | None:
    """Play one random history. Returns what went wrong, `None` if nothing did."""
    world = World(seed, **setting)
    world.start()
    try:
        world.play(steps, trouble)
    except Violation as violation:
        return f"seed {seed}: {violation}\n" + "\n".join(world.trace[-60:])
    finally:
        world.kill_all()
    return None
