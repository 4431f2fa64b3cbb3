"""One run: a cluster, three queries of one group, a producer, what happens to them, and what is left at the end."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

from devtools.broker import Cluster, Node
from devtools.broker.ready import quiet_client
from spark_groupsource.patience import Deadline
from tests.conftest import SHORT_SESSIONS
from tests.harness.account import MOST_NAMED, Account, Count
from tests.harness.brokers import in_sync
from tests.harness.counter import CountingProducer
from tests.harness.pool import Pool, reading
from tests.soak.claims import Group
from tests.soak.meter import Meter, Sample
from tests.soak.outputs import COPIES_PARTITIONS, Copies
from tests.soak.query import Query
from tests.soak.schedule import LONG_LIVED, PARTITIONS, STRUCK, Disturbance, Kind, Plan
from tests.support.waiting import until

TOPIC = GROUP = "soak"
LOOK_EVERY_S = 0.5
COUNT_EVERY_S = 15.0
BEGIN_LIMIT_S = 300.0
BACK_LIMIT_S = 240.0
DRAIN_LIMIT_S = 240.0
MOST_FAILURES = 20
"""A query that ends by itself more often than that is not started again."""

Report = Callable[[str], object]

UNKNOWN_OUTCOME = "CommitOutcomeUnknown"
"""A query may end with it while a broker is away: its coordinator died during a commit, and the commit may have been written."""
NO_WORKER = "Python worker failed to connect back"
"""A query may end with it right after a start: Spark forks its workers then, and the machine has too much to do."""
EXCUSED_FOR_S = 60.0
"""How long after a broker's return, and after a query's start, these errors are excused."""


@dataclass(frozen=True)
class Happened:
    """A disturbance that was played `at` this second of the run. What it ended was back after `back_s` seconds."""

    at: float
    disturbance: Disturbance
    back_s: float


@dataclass(frozen=True)
class Failure:
    """A query that ended by itself, `at` this second of the run."""

    at: float
    stream: str
    error: str
    excused: bool


@dataclass
class Result:
    """All that the report shows."""

    plan: Plan
    kafka: str = ""
    seconds: float = 0.0
    """From the first micro-batches until the producer stops. The group drains after that."""
    count: Count = field(default_factory=Count)
    partitions: int = 0
    deleted: int = 0
    """Records that retention has deleted."""
    drain_s: float = 0.0
    drained: bool = False
    unsettled: list[str] = field(default_factory=list)
    happened: list[Happened] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    micro_batches: dict[str, int] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    problem: str = ""
    """What ended the run before its time."""
    trace: str = ""
    into_topics: bool = False
    """Whether the queries write into topics. Otherwise they write files."""

    @property
    def violations(self) -> list[str]:
        """All that is wrong, except for memory."""
        unclean = [f"{one.stream} ended by itself: {one.error[:300]}" for one in self.failures if not one.excused]
        wrong = [f"{kind}: {', '.join(places[:MOST_NAMED])}" for kind, places in self.count.wrong.items() if places]
        lost = "; ".join(wrong) if self.drained else ""
        # Kafka deletes whole segments, an eighth of the retention each.
        kept = self.seconds > 1.5 * self.plan.retention_s and not self.deleted
        retention = "retention has deleted nothing" if self.drained and kept else ""
        held = f"the group has not settled: {'; '.join(self.unsettled)}" if self.unsettled else ""
        return [one for one in (self.problem[-1000:], lost, retention, held, *unclean) if one]


def play(plan: Plan, folder: Path, source: Mapping[str, str], report: Report, *, into_topics: bool) -> Result:
    """Play the whole run. What goes wrong is in the result.

    Args:
        plan: how long, and what happens.
        folder: where everything is written.
        source: which source the queries use, as a command to their drivers.
        report: takes a line for each thing that happens.
        into_topics: whether the queries write into topics, each row once, instead of files.
    """
    result = Result(plan, into_topics=into_topics)
    try:
        with _Running(plan, folder, source, result, report) as running, _noted(result):
            running.play()
    except Exception:  # noqa: BLE001 -- of several errors the first one is the cause
        result.problem = result.problem or "the run could not be ended"
        result.trace = traceback.format_exc()
    return result


@contextmanager
def _noted(result: Result) -> Iterator[None]:
    """Put an error into the result: what was seen so far is still worth a report."""
    try:
        yield
    except Exception as error:
        result.problem = f"the run ended before its time: {type(error).__name__}: {error}"
        raise


class _Running(ExitStack):
    """The parts of a run, which end with it."""

    def __init__(self, plan: Plan, folder: Path, source: Mapping[str, str], result: Result, report: Report) -> None:
        super().__init__()
        self._plan = plan
        self._folder = folder
        self._source = source
        self._result = result
        self._report = report
        self._account = Account()
        self._count_at = 0.0
        self._begin = time.monotonic()
        self._broker_back_at = -math.inf
        """The second of the run when the last broker was back. Infinite while one is away."""

    def play(self) -> None:
        self._set_up()
        self._meter.start()
        self._producer.start()
        for disturbance in self._plan.disturbances():
            self._until(disturbance.at)
            if self._is_due(disturbance):
                self._disturb(disturbance)
        self._until(self._plan.run_s)
        self._result.seconds = self._now()
        self._end()

    # The beginning and the end.

    def _set_up(self) -> None:
        plan = self._plan
        # Retention deletes whole segments: they are closed often, and looked at often.
        config = {**SHORT_SESSIONS, "log.retention.check.interval.ms": "5000"}
        self._report("starting three brokers")
        self._cluster = self.enter_context(Cluster(nodes=3, config=config))
        self._result.kafka = self._cluster.version
        keeps = {"retention.ms": _ms(plan.retention_s), "segment.ms": _ms(plan.retention_s / 8), "min.insync.replicas": "2"}
        self._cluster.create_topic(TOPIC, PARTITIONS, keeps)
        self._group = Group(self._cluster.bootstrap_servers, GROUP, TOPIC)
        self.callback(self._group.close)
        pool = Pool(self._folder / "drivers", "soak")
        self.callback(pool.close)
        self._report("starting three Sparks")
        pool.until_warm(1 + len(STRUCK))
        self._pool = pool
        self._queries = {name: self._query(name) for name in (LONG_LIVED, *STRUCK)}
        self._producer = CountingProducer(self._cluster.bootstrap_servers, TOPIC, PARTITIONS)
        self.callback(self._producer.cancel)
        for query in self._queries.values():
            query.ask()
        for query in self._queries.values():
            query.until_started()
        queries = self._queries.values()
        until(lambda: all(query.micro_batches for query in queries), "each query has had a micro-batch", BEGIN_LIMIT_S)
        # A spare, for the first driver that is killed.
        pool.refill(1)
        self._begin = time.monotonic()
        self._meter = Meter(plan.sample_s, self._sessions, self._begin)
        self.callback(self._meter.stop)

    def _query(self, name: str) -> Query:
        options = {
            **reading(self._cluster.bootstrap_servers, TOPIC, self._plan.protocol, name),
            "kafka.topic.metadata.refresh.interval.ms": "5000",
            # The default, and meant: the topic keeps records for longer than any query is away, so a loss is a fault.
            "failOnDataLoss": "true",
        }
        copies = self._copies(name) if self._result.into_topics else None
        return Query(name, self._folder / name, self._pool, options, self._source, copies)

    def _copies(self, name: str) -> Copies:
        topic = f"copies-{name}"
        self._cluster.create_topic(topic, COPIES_PARTITIONS, {"min.insync.replicas": "2"})
        return Copies(self._cluster.bootstrap_servers, topic)

    def _end(self) -> None:
        """Stop the producer, let the group drain, stop the queries, and count."""
        result = self._result
        produced = self._producer.stop()
        # Statistics end with the traffic.
        self._meter.stop()
        result.samples = list(self._meter.samples)
        result.partitions = self._producer.partitions
        self._report("the producer has stopped; the group drains")
        begin = time.monotonic()
        while (problems := self._group.unsettled(produced)) and time.monotonic() - begin < DRAIN_LIMIT_S:
            self._look_after()
            time.sleep(LOOK_EVERY_S)
        result.drain_s = time.monotonic() - begin
        result.drained = not problems
        result.deleted = self._group.deleted(produced)
        for query in self._queries.values():
            query.stop()
        result.unsettled = problems or self._group.unsettled(produced)
        self._count()
        result.count = self._account.count(produced)
        result.micro_batches = {name: query.micro_batches for name, query in self._queries.items()}

    # In between.

    def _now(self) -> float:
        return time.monotonic() - self._begin

    def _until(self, at: float) -> None:
        """Wait for this second of the run, and look after the queries meanwhile."""
        while (left := at - self._now()) > 0:
            self._look_after()
            time.sleep(min(LOOK_EVERY_S, left))

    def _look_after_until(self, done: Callable[[], bool], limit_s: float) -> bool:
        """Look after the queries until it is done, and return whether it was within the time limit."""
        for _ in Deadline(limit_s).attempts(LOOK_EVERY_S):
            if done():
                return True
            self._look_after()
        return False

    def _look_after(self) -> None:
        """Start again what has ended by itself, and count the outputs from time to time."""
        for query in self._queries.values():
            if self._note_failure(query):
                query.start()
                self._pool.refill(1)
        if self._now() >= self._count_at:
            self._count_at = self._now() + COUNT_EVERY_S
            self._count()

    def _note_failure(self, query: Query) -> bool:
        """Note that the query has ended by itself, and return whether it has."""
        error, started = query.failure(), query.started_at - self._begin
        if error is None:
            return False
        at = self._now()
        excused = is_excused(error, since_broker=at - self._broker_back_at, since_start=at - started)
        self._result.failures.append(Failure(at, query.name, error, excused))
        self._report(f"{at:6.0f} s  {query.name} ended by itself{' (excused)' if excused else ''}: {error[:200]}")
        assert len(self._result.failures) <= MOST_FAILURES, "queries end by themselves again and again"
        return True

    def _count(self) -> None:
        for name, query in self._queries.items():
            self._account.add(name, query.new_rows())

    def _is_due(self, disturbance: Disturbance) -> bool:
        """Return whether it is to happen. A run that is late, on a slow machine, leaves out what is overdue."""
        if disturbance.kind is Kind.ADD:
            return self._queries[disturbance.target].session is None
        if disturbance.kind is Kind.GROW:
            late = self._now() > self._plan.half_s
        else:
            late = self._now() - disturbance.at > self._plan.every_s
        if late:
            self._report(f"{self._now():6.0f} s  left out, the run is late: {disturbance.kind.value}")
        return not late

    def _sessions(self) -> dict[str, int]:
        return {name: session for name, query in self._queries.items() if (session := query.session) is not None}

    def _disturb(self, disturbance: Disturbance) -> None:
        at = self._now()
        if disturbance.kind is Kind.GROW:
            self._grow()
        elif disturbance.kind is Kind.ADD:
            self._add(self._queries[disturbance.target])
        elif disturbance.target in self._queries:
            self._strike_query(self._queries[disturbance.target], disturbance)
        else:
            self._strike_broker(disturbance)
        happened = Happened(at, disturbance, self._now() - at)
        self._result.happened.append(happened)
        self._report(f"{at:6.0f} s  {disturbance.kind.value}: {disturbance.target}, {happened.back_s:.0f} s")

    def _strike_query(self, query: Query, disturbance: Disturbance) -> None:
        # It may have ended by itself a moment ago: the strike must not hide that.
        self._note_failure(query)
        strike = {
            Kind.KILL_DRIVER: query.kill,
            Kind.KILL_RUNNER: query.kill_runner,
            Kind.TERMINATE: query.terminate,
            Kind.TAKE_AWAY: query.take_away,
        }
        strike[disturbance.kind]()
        if disturbance.kind is not Kind.TAKE_AWAY:
            self._until(self._now() + disturbance.away_s)
            self._add(query)
            self._pool.refill(1)

    def _add(self, query: Query) -> None:
        """Start the query, and wait for its next micro-batch: what it is owed is read before it is struck again."""
        before = query.micro_batches
        query.start()
        is_back = self._look_after_until(lambda: query.micro_batches != before, BACK_LIMIT_S)
        assert is_back, f"{query.name} has had no micro-batch for {BACK_LIMIT_S:.0f} s after its start"

    def _strike_broker(self, disturbance: Disturbance) -> None:
        node: Node = next(node for node in self._cluster.nodes if str(node.id) == disturbance.target)
        self._broker_back_at = math.inf
        try:
            if disturbance.kind is Kind.KILL_BROKER:
                node.kill()
            else:
                node.stop()
            self._until(self._now() + disturbance.away_s)
            node.start()
            # All replicas are in sync again before the next broker is struck.
            client = quiet_client(self._cluster.bootstrap_servers)
            self._look_after_until(lambda: in_sync(client.list_topics(TOPIC, timeout=10).topics.values()), self._plan.every_s * 2)
        finally:
            self._broker_back_at = self._now()

    def _grow(self) -> None:
        partitions = self._producer.partitions + 1
        client = quiet_client(self._cluster.bootstrap_servers)
        client.create_partitions([NewPartitions(TOPIC, partitions)])[TOPIC].result()
        self._producer.partitions = partitions


def is_excused(error: str, *, since_broker: float, since_start: float) -> bool:
    """Return whether a query may end by itself with this error.

    Args:
        error: the text.
        since_broker: seconds since the last broker was back; negative while one is away.
        since_start: seconds since the query was started.
    """
    if UNKNOWN_OUTCOME in error:
        return since_broker <= EXCUSED_FOR_S
    return NO_WORKER in error and since_start <= EXCUSED_FOR_S


def _ms(seconds: float) -> str:
    return str(int(seconds * 1000))
