"""Simulates Spark around the sink: drivers that run micro-batches from a checkpoint, overlapping task attempts, and failures."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest.mock import patch

from spark_groupsource.brokers.client_pool import ClientPool
from spark_groupsource.errors import (
    BatchUnknown,
    CheckpointBehindSink,
    GroupKafkaError,
    ReplayDiffers,
    WrittenElsewhere,
)
from spark_groupsource.patience import Deadline
from spark_groupsource.sink import finishing, names, producer, token_store, writing
from spark_groupsource.sink.names import Names
from spark_groupsource.sink.rules import Choice
from spark_groupsource.sink.settings import SinkSettings
from spark_groupsource.sink.writing import Attempt, Report
from spark_groupsource.spark import worker
from tests.simulation.sink.broker import Broker
from tests.simulation.sink.processes import TOPIC, FakeTokenStore, make_producer, record_batches
from tests.simulation.sink.steps import Killed, Steps, clock

PREFIX = "q"
MOST_FAILURES = 4
"""`spark.task.maxFailures`."""
MOST_STARTS = 30
SETTLED_AFTER = 6000
LATE_S = 3600.0
"""More than any step of the sink may take."""
CHOOSES = (BatchUnknown, ReplayDiffers, WrittenElsewhere, CheckpointBehindSink)
"""Errors after which a person chooses."""
CLIENT = {"queue.buffering.max.kbytes": "1024", "transaction.timeout.ms": "120000"}


class Violation(AssertionError):
    """The sink has broken a promise."""


@dataclass
class Query:
    """The state that survives a query's drivers."""

    number: int
    committed: int = -1
    """The newest micro-batch in Spark's commit log."""
    prefix: str = PREFIX
    topic: str = TOPIC
    choices: dict[int, str] = field(default_factory=dict)
    """What the user has chosen, by micro-batch: `rewrite` or `skip`."""
    error: GroupKafkaError | None = None
    """Why its last run ended."""
    twice: set[int] = field(default_factory=set)
    """Micro-batches of which rows may be there twice: an error has said so."""
    missing: set[int] = field(default_factory=set)
    """The same, of rows that may be missing."""
    overlooked: set[int] = field(default_factory=set)
    """Micro-batches of which a task may have missed what is elsewhere: the driver says so at their end."""

    @property
    def id(self) -> str:
        return f"{self.number:08x}-0000-0000-0000-000000000000"


class Worker:
    """One of Spark's Python workers, which runs one task attempt at a time, and keeps its clients for the next one."""

    def __init__(self) -> None:
        self.pool = ClientPool(clock=lambda: 0.0)
        self.runs: Steps | None = None

    @property
    def is_idle(self) -> bool:
        return self.runs is None or self.runs.done

    def fork(self) -> Worker:
        """Return a child with a copy of the worker's memory."""
        child = Worker()
        for key, idle in self.pool._idle.items():
            client = copy.copy(idle.client)
            child.pool.add(client)
            child.pool.keep(key, client)
        child.pool.abandon()
        return child


@dataclass
class Driver:
    """One run of a query."""

    run: str
    query: Query
    settings: SinkSettings
    names: Names
    batch: int
    first: int
    """The micro-batch that it began with."""
    running: dict[int, list[Steps]] = field(default_factory=dict)
    """The tries of each task that run."""
    failures: dict[int, int] = field(default_factory=dict)
    done: dict[int, Report] = field(default_factory=dict)
    finishing: Steps | None = None
    aborting: Steps | None = None
    """It has given the micro-batch up, and ends what its tasks may have left."""


@dataclass
class World:
    """The queries. Their micro-batches have the same rows in the same tasks, no matter how often they are run.

    With `uneven`, a replay may have the rows in other tasks, and with `fewer`, all of them in one. They may then be duplicated in
    the topic, but not without an error.
    """

    seed: int
    tasks: int = 2
    batches: int = 3
    rows: int = 2
    queries: int = 1
    """How many share the prefix and the topic."""
    cancels: bool = False
    """Whether Spark cancels micro-batches: a stop, or another task that fails."""
    expiry: bool = False
    uneven: bool = False
    fewer: bool = False
    renames: bool = False
    """Whether the prefix or the topic is changed between two runs."""
    restores: bool = False
    """Whether an older copy of the checkpoint is restored between two runs."""
    recreates: bool = False
    """Whether the topic is deleted and created again."""
    name_topics: bool = False
    """Whether rows name their topics, in turn."""
    remembers: bool = True
    """Whether a task can begin again with its first row once it has written one."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.broker = Broker()
        self.at_drivers = ClientPool(clock=lambda: 0.0)
        """The clients that the drivers' process keeps: one session may start a query again and again."""
        self.all = [Query(number) for number in range(self.queries)]
        self.drivers: list[Driver] = []
        self.orphans: list[Steps] = []
        """Tries that still run, of drivers that are dead or of tasks that are done."""
        self.processes: list[Steps] = []
        self.workers: list[Worker] = []
        """They outlive the drivers, as those of a session that starts a query again."""
        self.differs = self.uneven or self.fewer
        """Whether a replay may have the rows in other tasks."""
        self.may_overlap = not (self.differs or self.renames or self.restores or self.expiry)
        """Whether a query may have two drivers at once."""
        self.pauses: set[int] = set()
        """When nothing of a query ran."""
        self.gone: set[str] = set()
        """Rows that were, or may have been, in a topic that was deleted."""
        self.trace: list[str] = []
        self.runs = 0

    def rows_of(self, query: Query, batch: int, task: int, run: int = 0) -> list[str]:
        """Return a task's rows. The last task has none in every second micro-batch, or every second run if it is uneven."""
        if self.tasks_of(run) < self.tasks:
            return [row for each in range(self.tasks) for row in self.rows_of(query, batch, each)]
        if self.uneven:
            task = (task + run) % self.tasks
        count = 0 if task == self.tasks - 1 and (self.uneven or batch % 2) else self.rows
        return [f"{query.number}:{batch}.{task}.{number}" for number in range(count)]

    def expected(self, query: Query, batches: int) -> set[str]:
        """Return every row of the first micro-batches."""
        return {row for batch in range(batches) for task in range(self.tasks) for row in self.rows_of(query, batch, task)}

    def tasks_of(self, run: int) -> int:
        """Return a micro-batch's number of tasks: with `fewer`, one in every second run. Run 0 has the rows to write."""
        return 1 if self.fewer and run and run % 2 == 0 else self.tasks

    # What can happen.

    def actions(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Return what may happen next, by name."""
        for driver in self.drivers:
            yield "step", partial(self._step, driver)
            yield "step", partial(self._step, driver)
        for orphan in self.orphans:
            yield "orphan", partial(self._step_orphan, orphan)
        for group in self.broker.pending:
            yield "settle", partial(self.broker.settle, group)

    def trouble(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Return what may go wrong next, by name."""
        for driver in self.drivers:
            yield from self._trouble_of(driver)
        for query in self.all:
            if sum(driver.query is query for driver in self.drivers) < (2 if self.may_overlap else 1):
                yield "start a driver", partial(self.start, query)
        for orphan in self.orphans:
            yield "kill orphan", partial(self._end_orphan, orphan)
        yield from (("fork", partial(self._fork, worker)) for worker in self.workers if worker.is_idle)
        if self._may_expire():
            yield from self._expiry()
        if self.recreates:
            yield "create the topic again", self._create_again
        for name in [name for name, found in self.broker.ids.items() if found.open is not None]:
            yield "time out", partial(self.broker.time_out, name)

    def _expiry(self) -> Iterator[tuple[str, Callable[[], None]]]:
        # Offsets that were committed while the query ran expire at about the same time, so they are not treated separately here.
        for _ in range(3):
            yield "expire", lambda: self.broker.expire(self.random.choice([*sorted(self.pauses)[-3:], *self.pauses]))
        for name, found in self.broker.ids.items():
            if found.open is None:
                yield "expire an id", partial(self.broker.expire_id, name)

    def _trouble_of(self, driver: Driver) -> Iterator[tuple[str, Callable[[], None]]]:
        yield "kill driver", partial(self._end, driver, None)
        tries = [(task, one) for task, each in driver.running.items() for one in each[:1]]
        if self.cancels and tries and driver.aborting is None:
            yield "cancel", partial(self._cancel, driver, None)
        for task, one in tries:
            yield "kill worker", partial(self._kill_try, driver, task, one)
            if driver.aborting is None:
                yield "speculate", partial(self._try, driver, task)
            yield "lose a request", partial(setattr, one, "loses", "request")
            yield "lose an answer", partial(setattr, one, "loses", "answer")
            yield "run out of time", partial(self._run_out_of_time, one)
        if driver.finishing is None and driver.aborting is None:
            for task in driver.done:
                yield "run again", partial(self._run_again, driver, task)

    def _may_expire(self) -> bool:
        """Return whether every query is idle: it is not running, or its driver is waiting for the next micro-batch.

        docs/sink.md promises nothing until a driver has stored its first token.
        """
        rests = all(driver.batch > driver.first and not driver.running and not driver.finishing for driver in self.drivers)
        return self.expiry and all(query.committed >= 0 for query in self.all) and rests and not self.orphans

    def _note_pause(self) -> None:
        if self._may_expire():
            self.pauses.add(self.broker.now)

    def start(self, query: Query | None = None) -> None:
        """Start a driver from the checkpoint, with the changes that the user has made in the meantime."""
        query = query or self.all[0]
        if not any(driver.query is query for driver in self.drivers):
            self._change(query)
        self.runs += 1
        batch = query.committed + 1
        chosen = query.choices.get(batch)
        choice = Choice(batch if chosen == "rewrite" else None, batch if chosen == "skip" else None)
        client = CLIENT if self.remembers else {**CLIENT, "queue.buffering.max.kbytes": "0"}
        settings = SinkSettings(
            client, {}, None if self.name_topics else query.topic, exactly_once=True, prefix=query.prefix, choice=choice
        )
        self.drivers.append(Driver(f"{self.runs:08x}", query, settings, settings.names(query.id), batch, batch))

    def _change(self, query: Query) -> None:
        """Do what a user does between two runs: follow an error's advice, change a name, or restore a checkpoint."""
        error, query.error = query.error, None
        batch = query.committed + 1
        if isinstance(error, CheckpointBehindSink) and not self.restores:
            return  # a second driver was faster
        if isinstance(error, CHOOSES):
            self._check_cause(query, batch, error)
            self.trace.append(f"query {query.number} batch {batch}: chooses after {type(error).__name__}")
            if isinstance(error, CheckpointBehindSink):
                query.prefix += "x"
                query.choices[batch] = "rewrite"
                query.twice |= set(range(batch, self.batches))
            else:
                query.choices[batch] = self.random.choice(["rewrite", "skip"])
            if query.choices[batch] == "rewrite":
                query.twice.add(batch)
            else:
                query.missing.add(batch)
            if isinstance(error, ReplayDiffers) or batch in query.overlooked:
                query.twice.add(batch)
        elif self.renames and self.random.random() < 0.4:
            # To something new, or back to the previous name.
            name = self.random.choice(["prefix", "topic"])
            value = {"q": "p", "p": "q", TOPIC: "out2", "out2": TOPIC}[getattr(query, name)]
            self.trace.append(f"query {query.number}: {name}={value}")
            setattr(query, name, value)
        elif self.restores and query.committed > 0 and self.random.random() < 0.3:
            query.committed -= 1
            self.trace.append(f"query {query.number}: restored to {query.committed}")

    def _check_cause(self, query: Query, batch: int, error: GroupKafkaError) -> None:
        """Check that there is a reason to ask the user, because users do not trust a tool that stops without one."""
        causes: dict[type[GroupKafkaError], bool] = {
            ReplayDiffers: self.differs or self.recreates,
            # A driver that a second one has overtaken may commit its token late.
            BatchUnknown: self.expiry
            or self.recreates
            or batch in query.overlooked
            or any(query.id in group for group in self.broker.set_back),
            WrittenElsewhere: self.renames,
            CheckpointBehindSink: self.restores,
        }
        if not causes[type(error)] or batch in query.choices:
            raise Violation(f"without a reason: {error}")
        late_token = not (self.expiry or self.recreates or batch in query.overlooked)
        if isinstance(error, BatchUnknown) and late_token and "a second driver" not in str(error):
            raise Violation(f"with another reason: {error}")

    def _create_again(self) -> None:
        """Recreate a topic. Everything that is written, or is being written, may be in the deleted topic."""
        for query in self.all:
            begun = max([query.committed, *(driver.batch for driver in self.drivers if driver.query is query)])
            self.gone |= self.expected(query, begun + 1)
            # Rows written after that may be in the topic although their transaction began before.
        self.broker.create_again(TOPIC)

    def _step(self, driver: Driver) -> None:
        number = self.tasks_of(int(driver.run, 16))
        if driver.aborting is not None:
            self._step_aborting(driver, driver.aborting)
        elif driver.batch >= self.batches:
            self.drivers.remove(driver)
        elif driver.finishing is not None:
            self._step_finish(driver, driver.finishing)
        elif len(driver.done) == number:
            driver.finishing = self._finish(driver, number)
        else:
            self._step_task(driver, self.random.choice([task for task in range(number) if task not in driver.done]))

    def _finish(self, driver: Driver, number: int) -> Steps:
        done = driver.done
        tasks = finishing.Tasks(
            number,
            sum(one.written + one.skipped for one in done.values()),
            tuple(sorted({topic for one in done.values() for topic in one.topics})),
            wrote=frozenset(task for task, one in done.items() if one.written or one.skipped),
            empty=frozenset(task for task, one in done.items() if not one.written and not one.skipped and not one.left),
            retried=frozenset(driver.failures),
        )
        work = partial(finishing.finish, driver.settings, driver.names, driver.batch, driver.run, tasks)
        return self._process(work, self.at_drivers)

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
            self._cancel(driver, error)

    def _cancel(self, driver: Driver, error: BaseException | None) -> None:
        """Make Spark cancel the micro-batch: every attempt's input ends, and then Spark asks the driver's writer to abort."""
        if isinstance(error, GroupKafkaError):
            driver.query.error = error
        for tries in driver.running.values():
            for one in tries:
                one.is_cut = True
        unfinished = set(range(self.tasks_of(int(driver.run, 16)))) - driver.done.keys()
        work = partial(finishing.abort, driver.settings, driver.names, unfinished)
        driver.aborting = self._process(work, self.at_drivers)

    def _step_aborting(self, driver: Driver, process: Steps) -> None:
        """Let the driver's writer continue, or an attempt that has to notice that it was cancelled."""
        tries = [(task, one) for task, each in driver.running.items() for one in each]
        if tries and self.random.random() < 0.5:
            task, one = self.random.choice(tries)
            one.step()
            if one.done:
                driver.running[task].remove(one)
            return
        process.step()
        if process.done:
            self._end(driver, None)

    def _step_finish(self, driver: Driver, process: Steps) -> None:
        process.step()
        if not process.done:
            return
        if process.error is not None:
            self._end(driver, process.error)
            return
        query = driver.query
        # Two drivers use one checkpoint: Spark's log rejects the second one's entry.
        if query.committed >= driver.batch:
            self._end(driver, None)
            return
        if driver.batch == driver.first:
            self._check_transactions(driver)
        query.committed = driver.batch
        driver.batch += 1
        driver.running, driver.failures, driver.done, driver.finishing = {}, {}, {}, None

    def _try(self, driver: Driver, task: int) -> None:
        rows = record_batches(self.rows_of(driver.query, driver.batch, task, int(driver.run, 16)), name_topics=self.name_topics)
        attempt = Attempt(driver.batch, task, driver.run, driver.names.query)

        def work() -> Report:
            process: Steps = Steps.here.steps
            whole = worker.whole(rows, lambda: not process.is_cut)
            return writing.write_once(driver.settings, driver.names, attempt, whole)

        taken = self._worker()
        taken.runs = self._process(work, taken.pool)
        driver.running.setdefault(task, []).append(taken.runs)
        if self.renames and self.random.random() < 0.2:
            self._overlook(driver, driver.running[task][-1])

    def _worker(self) -> Worker:
        """Return a worker for a task, usually one that has run other tasks, otherwise a new one."""
        idle = [worker for worker in self.workers if worker.is_idle]
        if not idle or self.random.random() < 0.1:
            idle = [Worker()]
            self.workers += idle
        return self.random.choice(idle)

    def _fork(self, worker: Worker) -> None:
        self.workers.append(worker.fork())

    def _run_again(self, driver: Driver, task: int) -> None:
        """Run a task again because its stage is retried, although the task has written."""
        del driver.done[task]
        self._try(driver, task)

    def _process(self, work: Callable[[], Any], pool: ClientPool) -> Steps:
        self.processes = [one for one in self.processes if not one.done]
        self.processes.append(Steps(self.broker, work, pool))
        return self.processes[-1]

    def _kill(self, one: Steps) -> None:
        """Kill a process together with its worker."""
        one.kill()
        self.workers = [worker for worker in self.workers if worker.runs is not one]

    def _kill_try(self, driver: Driver, task: int, one: Steps) -> None:
        self._kill(one)
        driver.running[task].remove(one)
        if driver.aborting is None:
            self._failed(driver, task, Killed())

    def _overlook(self, driver: Driver, one: Steps) -> None:
        driver.query.overlooked.add(driver.batch)
        one.overlooks = True

    def _run_out_of_time(self, one: Steps) -> None:
        """Lose the next request or its response until the process has stopped waiting for it."""
        one.loses = self.random.choice(["request", "answer"])
        one.late_s += LATE_S

    def _end(self, driver: Driver, error: BaseException | None) -> None:
        if isinstance(error, GroupKafkaError):
            driver.query.error = error
        if driver in self.drivers:
            self.drivers.remove(driver)
        tries = [one for each in driver.running.values() for one in each]
        if self.differs or self.renames:
            # An attempt that outlives its driver, and that the replay does not fence, is not detected (docs/sink.md).
            for one in (*tries, *self.orphans):
                self._kill(one)
            self.orphans.clear()
        else:
            self.orphans += tries
        for process in (driver.finishing, driver.aborting):
            if process is not None and not process.done:
                process.kill()

    def _step_orphan(self, one: Steps) -> None:
        one.step()
        if one.done:
            self.orphans.remove(one)

    def _end_orphan(self, one: Steps) -> None:
        self._kill(one)
        self.orphans.remove(one)

    # What must be true.

    def check(self) -> None:
        """Check that no row is duplicated, and that every micro-batch in Spark's commit log is in the topic."""
        for query in self.all:
            finished = self.expected(query, query.committed + 1)
            for row, count in self.broker.visible.items():
                owner, _, rest = row.partition(":")
                batch = int(rest.partition(".")[0])
                if int(owner) != query.number or count < 2 or batch in query.twice:
                    continue
                if row in finished or not (self.differs or batch in query.overlooked):
                    raise Violation(f"doubled: {row}")
            for batch in range(self.batches if not self.differs else 0):
                for task in range(self.tasks):
                    rows = set(self.rows_of(query, batch, task))
                    if rows & self.broker.visible.keys() and not rows <= self.broker.visible.keys():
                        raise Violation(f"a part of a task is visible: {sorted(rows & self.broker.visible.keys())}")
            lost = sorted(
                row
                for row in finished - set(self.broker.visible) - self.gone
                if int(row.partition(":")[2].partition(".")[0]) not in query.missing
            )
            if lost:
                raise Violation(f"lost: {lost}")

    def _check_transactions(self, driver: Driver) -> None:
        """Check that a run's first micro-batch has closed earlier attempts' transactions, which would block readers."""
        for name, found in self.broker.ids.items():
            owner = found.owner
            if name.startswith(f"{driver.names.driver}-") and found.open is not None and isinstance(owner, Steps) and owner.done:
                raise Violation(f"a transaction of {name}, whose process is dead, is still open")

    def play(self, steps: int, trouble: float) -> None:
        """Let things happen and go wrong, and then let the queries finish."""
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
        """Let things happen in one order and go wrong as planned, and then let the queries finish.

        `wrong_at` has what goes wrong at which step, as its index in `trouble()` at that step. Return how many things could have
        gone wrong at each step.
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
        """Let the queries finish, with nothing more going wrong. The user follows the advice of errors."""
        starts = 0
        for count in range(SETTLED_AFTER):
            waiting = [
                query
                for query in self.all
                if query.committed < self.batches - 1 and not any(driver.query is query for driver in self.drivers)
            ]
            if waiting:
                starts += 1
                if starts > MOST_STARTS:
                    raise Violation(f"the query stops each time: {waiting[0].error}")
                self.start(waiting[0])
            elif not self.drivers:
                break
            self._note_pause()
            happens = list(self.actions())
            # A coordinator aborts an abandoned transaction.
            if count % 50 == 0:
                happens += [wrong for wrong in self.trouble() if wrong[0] == "time out"]
            name, action = self.random.choice(happens)
            self.trace.append(name)
            action()
            self.check()
        else:
            raise Violation("the query does not come to its end")
        for count in itertools.count(1):
            if not self.orphans and not self.broker.pending:
                break
            self.random.choice([action for name, action in self.actions() if name in ("orphan", "settle")])()
            # A coordinator aborts an abandoned transaction. An orphaned task may be waiting for that to read its token.
            if not self.orphans or count % 50 == 0:
                for name in [name for name, found in self.broker.ids.items() if found.open is not None]:
                    self.broker.time_out(name)
        self.check()

    def kill_all(self) -> None:
        """End every thread."""
        for one in self.processes:
            one.kill()


@contextmanager
def simulated() -> Iterator[None]:
    """Make the sink's code use the simulated processes."""
    with ExitStack() as patches:
        for module in (names, token_store):
            # Small ones, so that the rest is reached as well.
            patches.enter_context(patch.object(module, "FIRST_REACH", 2))
            patches.enter_context(patch.object(module, "REACHES", (4,)))
        for module in (writing, finishing):
            patches.enter_context(patch.object(module, "make_producer", make_producer))
            patches.enter_context(patch.object(module, "TokenStore", FakeTokenStore))
        for module in (writing, finishing):
            patches.enter_context(patch.object(module, "pool", lambda: Steps.here.steps.pool))
        patches.enter_context(patch.object(writing, "with_batch_size", lambda client, _topics: client))
        for module in (writing, finishing, producer, token_store):
            patches.enter_context(patch.object(module, "Deadline", partial(Deadline, clock=clock, sleep=lambda _: None)))
        yield


def every_trouble(most: int, steps: int = 60, **setting: Any) -> Iterator[str | None]:
    """Play every history in which up to `most` things go wrong, each at any step. Yield the results of `run`."""
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
    """Play one random history. Return what went wrong, or `None`."""
    world = World(seed, **setting)
    for query in world.all:
        world.start(query)
    try:
        world.play(steps, trouble)
    except Violation as violation:
        return f"seed {seed}: {violation}\n" + "\n".join(world.trace[-60:])
    finally:
        world.kill_all()
    return None


def renamed_and_back(seed: int) -> str | None:
    """Play a history in which the prefix is changed during a micro-batch and later changed back. Return the result of `run`."""
    world = World(seed, batches=2)
    query = world.all[0]

    def step_until(reached: Callable[[Driver], bool]) -> None:
        world.start(query)
        driver = world.drivers[-1]
        while driver in world.drivers and not reached(driver):
            _, action = world.random.choice(list(world.actions()))
            action()
            world.check()
        world._end(driver, None)

    try:
        step_until(lambda _: query.committed == 0)
        query.prefix = "p"
        step_until(lambda driver: 0 in driver.done)
        query.prefix = PREFIX
        step_until(lambda driver: 0 in driver.done)
    except Violation as violation:
        return f"seed {seed}: {violation}"
    finally:
        world.kill_all()
    return None if isinstance(query.error, WrittenElsewhere) else f"seed {seed}: {query.error}"
