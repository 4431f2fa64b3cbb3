"""Runs one case once: with a new topic, group and checkpoints, a producer, a sampler, and the verdict at the end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from spark_groupsource.handoff.commit_record import CommitRecord
from spark_groupsource.timeouts import AT_STOP_S
from tests.chaos.checker import check
from tests.chaos.stalls import Stalls, stalls
from tests.chaos.stream import TRIGGER, Stream
from tests.chaos.ways import EARLY, Way
from tests.harness.brokers import Brokers
from tests.harness.counter import CountingProducer
from tests.harness.events import Event, EventLog
from tests.harness.evidence import Evidence, Grant, Range, Sample
from tests.harness.pool import PATIENCE_S, SESSION_S, Pool, reading
from tests.harness.sampler import Sampler, commits_in
from tests.support.consumers import records_for_a_plain_consumer
from tests.support.waiting import until

PARTITIONS = 4
MOST_PARTITIONS = 6
"""The number of partitions, with those that a case adds."""
AWAY_S = SESSION_S + 3.0
"""How long a process is paused, or a connection held: longer than its session and its `max.poll.interval.ms`."""
TRIGGER_S = 1.0
CONFIRMED_AFTER_S = 5.0
"""After this time without new records a query has confirmed its last micro-batch."""
ALLOWANCE_S = 8.0
"""What a loaded machine with two cores may add to a stall: several JVMs and Python processes share them."""
CLOSED_AFTER_S = AT_STOP_S + 1.0
"""After this time at most, what a stopped query had finished is no longer claimed: its runner waits for the last report, commits,
and a sample shows it."""
FEW_RECORDS = 20
BYSTANDER_S = 5.0
"""The longest stall allowed to partitions that no fault hit: below a session, so that waiting for a dead member is detected."""


@dataclass(frozen=True)
class Case:
    """A case: the size of its cluster, its streams' sink, and the number of drivers that are warm before it starts."""

    name: str
    play: Callable[[Run], None]
    nodes: int = 1
    sink: str = "file"
    drivers: int = 3
    partitions: int = PARTITIONS
    ways: tuple[Way, ...] = tuple(Way)
    """How its runners learn what is durable: one of these in each run."""
    idle_streams: bool = False
    """Whether a stream may own nothing, or may have ended, while others read every partition."""


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
        return self.case.nodes, self.version


@dataclass(frozen=True)
class Outcome:
    """The outcome of one run. `violations` is empty when all is well."""

    records: int
    lost: int
    doubled: int
    closed: int
    """How many commits closed a plan before the next trigger did."""
    stalls: Stalls
    violations: tuple[str, ...]
    seconds: float


class Run:
    """The object with which a case works."""

    def __init__(self, job: Job, brokers: Brokers, pool: Pool, folder: Path) -> None:
        self.number = job.number
        self.way = job.way
        self.brokers = brokers
        self.folder = folder
        self.protocol = job.protocol
        self.topic = self.group = f"{job.case.name}-{job.number}-{job.protocol}"
        folder.mkdir(parents=True)
        self.log = EventLog(folder / "events.jsonl")
        self._case = job.case
        self._pool = pool
        self._begin = time.time()
        self._fault_at = 0.0
        self._fault_end = 0.0
        self._struck: frozenset[str] = frozenset()
        self._bystanders = True
        self._held_s = 0.0
        self._fed = False
        self._left: tuple[str, ...] = ()
        self._read_again = 0
        self._streams: dict[str, Stream] = {}
        self._retired: set[str] = set()
        self._checkpoints: dict[str, Path] = {}
        brokers.create_topic(self.topic, self._case.partitions)
        self.producer = CountingProducer(brokers.bootstrap_servers, self.topic, self._case.partitions)
        self._sampler = Sampler(brokers.bootstrap_servers, self.group, self.topic, MOST_PARTITIONS, self._checkpoints, self.log)

    # Steps of a case.

    def stream(
        self, name: str, more: Mapping[str, str] | None = None, *, proxied: bool = False, trigger: str = TRIGGER
    ) -> Stream:
        """Return a stream of the group, not started yet, with `more` options; its connections may go through the proxies."""
        servers = self.brokers.through_proxies if proxied else self.brokers.bootstrap_servers
        often = {"kafka.topic.metadata.refresh.interval.ms": "1000"}
        options = {**reading(servers, self.topic, self.protocol, name), **often, **(more or {})}
        made = Stream(name, self.folder / name, self._pool, self.log, options, self._case.sink, trigger, self.way)
        self._streams[name] = made
        self._checkpoints[name] = made.checkpoint
        return made

    def feed(self) -> None:
        """Start the producer before any stream, so that even a query's first micro-batch finds records in each partition."""
        self._fed = True
        self._sampler.start()
        self.producer.start()
        partitions = range(self.producer.partitions)
        until(lambda: all(self.producer.sent[one] >= FEW_RECORDS for one in partitions), "there are records", PATIENCE_S)

    def begin(self, *streams: Stream) -> None:
        """Start the producer and these streams. Wait until each has its share and has read a micro-batch from it."""
        if not self._fed:
            self._sampler.start()
        for one in streams:
            one.ask()
        for one in streams:
            one.until_started()
        if not self._fed:
            self.producer.start()
        until(lambda: self._shared_by(streams), f"{len(streams)} streams share the partitions", PATIENCE_S)
        since = time.time()
        self.until_durable_since(since)

    def pair(self, more: Mapping[str, str] | None = None, *, proxied: bool = False) -> tuple[Stream, Stream]:
        """Begin with two streams that share the partitions. Only the connections of the first one may go through the proxies."""
        a, b = self.stream("A", more, proxied=proxied), self.stream("B", more)
        self.begin(a, b)
        return a, b

    def fault(self, *struck: Stream, bystanders: bool = True) -> None:
        """Note that the fault hits these streams now. With `bystanders`, the others' partitions must not be affected."""
        self._fault_at = time.time()
        self._struck = frozenset(one.name for one in struck)
        self._bystanders = bystanders
        self.log.append("fault", struck=sorted(self._struck))

    def held(self) -> None:
        """Note that the fault itself ends now. Until here, the stall is part of the case."""
        self._held_s = time.time() - self._fault_at
        self.log.append("held", seconds=self._held_s)

    def allow(self, seconds: float) -> None:
        """Note that the case itself makes partitions stall for this long, as a long trigger does."""
        self._held_s += seconds

    def over(self) -> None:
        """Note that the fault and its stalls are over, so the next step is part of the case itself."""
        self._fault_end = time.time()

    def retire(self, stream: Stream) -> None:
        """Stop a stream that never comes back."""
        self.log.append("retire", stream=stream.name)
        self._retired.add(stream.name)
        stream.stop()

    def stop_and_look(self, stream: Stream, seconds: float) -> None:
        """Stop the group's only stream. What it has finished must soon stop counting as lag, and stay so while it is stopped."""
        ends: dict[int, int] = {}
        for event in stream.granted():
            for partition, _, end in event["ranges"]:
                ends[partition] = max(end, ends.get(partition, 0))
        stream.stop()
        stopped = time.time()

        def unfinished(sample: Event) -> list[str]:
            committed = {int(number): offset for number, offset in sample["committed"].items()}
            behind = [] if committed == ends else [f"committed is {committed}, and finished is {ends}"]
            return [*behind, *_unconfirmed(sample)]

        def now() -> list[str]:
            later = [sample for sample in self.log.look("sample")[-1:] if sample["at"] > stopped]
            return unfinished(later[0]) if later else ["no sample"]

        until(lambda: not now(), f"nothing is claimed after a stop of {stream.name}", CLOSED_AFTER_S)
        since = time.time()
        self.log.append("nothing claimed", stream=stream.name, seconds=since - stopped)
        time.sleep(seconds)
        looked = [sample for sample in self.log.look("sample") if sample["at"] > since]
        assert looked, "no sample was taken while the query was away"
        found = [problem for sample in looked for problem in unfinished(sample)]
        assert not found, f"while {stream.name} was away: {found[0]}"

    def claimed_by(self, stream: Stream) -> list[str]:
        """Return the stream's own claims that are open now."""
        return [problem for problem in self.unconfirmed() if problem.endswith(f" claimed by {stream.in_records}")]

    def unconfirmed(self) -> list[str]:
        """Return the ranges that are claimed or owed now."""
        since = time.time()

        def later() -> list[Event]:
            return [sample for sample in self.log.look("sample") if sample["at"] > since]

        # The first one may have been asked for before.
        until(lambda: len(later()) > 1, "the group is looked at", PATIENCE_S)
        return _unconfirmed(later()[-1])

    @property
    def ever_owed(self) -> list[str]:
        """Return the ranges that were owed to a stream in any sample."""
        samples = self.log.look("sample")
        return [problem for sample in samples for problem in _unconfirmed(sample) if " owed " in problem]

    def until_members(self, count: int) -> None:
        """Wait until the group has this many members. Only while no broker stops: see brokers.Brokers.coordinator."""
        client = self.brokers.client()

        def members() -> int:
            return len(client.describe_consumer_groups([self.group])[self.group].result(30).members)

        until(lambda: members() == count, f"{self.group} has {count} members", PATIENCE_S)

    def until_recovered(self) -> None:
        """Wait until every partition has had a durable micro-batch that began after the fault."""
        self.until_durable_since(self._fault_at)

    def until_durable_since(self, since: float, partitions: Collection[int] | None = None) -> None:
        """Wait until a plan that was granted after `since` has become durable, for each of these partitions (None: for all)."""
        until(
            lambda: self._durable_since(since) >= set(range(self.producer.partitions) if partitions is None else partitions),
            "every partition goes on",
            PATIENCE_S,
        )

    def until_shared(self) -> None:
        """Wait until every stream that is not retired has its share; restart those whose queries have ended on their own."""
        everybody = [one for one in self._streams.values() if one.name not in self._retired]
        until(lambda: not self._restarted() and self._shared_by(everybody), "all streams share the partitions", PATIENCE_S)

    def finish(self, *, leaving: Stream | None = None) -> None:
        """End the run when every stream is back: stop the producer, let the group drain, stop the streams.

        A stream that is `leaving` is stopped as soon as everything has been read, so that another one gets its partitions.
        """
        self.until_shared()
        self.until_durable_since(time.time())
        self._fault_end = self._fault_end or time.time()
        produced = self.producer.stop()
        self.log.append("produced", counts=produced)
        if leaving is not None:
            everything = sum(produced.values())
            until(lambda: sum(len(one.rows()) for one in self._streams.values()) >= everything, "all is read", PATIENCE_S)
            time.sleep(CONFIRMED_AFTER_S)
            leaving.stop()
        until(lambda: not self._restarted() and self._sampler.committed == produced, "everything is committed", PATIENCE_S)
        self._sampler.stop()
        for one in self._streams.values():
            one.stop()
        self._left = tuple(_unconfirmed(self.log.look("sample")[-1]))

    def finish_with(self, stream: Stream) -> None:
        """Start this stream again when the others have taken over, and end the run."""
        self.until_recovered()
        stream.start()
        self.finish()

    def read_again(self) -> None:
        """Have a plain consumer join the group that all streams have left, and count what it reads."""
        self._read_again = records_for_a_plain_consumer(
            self.brokers.bootstrap_servers, self.group, self.topic, self.producer.partitions, self.protocol
        )
        self.log.append("read again", records=self._read_again)

    def close(self) -> None:
        """Stop everything, also after a case that failed."""
        self.producer.cancel()
        with contextlib.suppress(Exception):  # `finish` has reported it
            self._sampler.stop()
        for one in self._streams.values():
            one.end()

    # The verdict.

    def outcome(self, problem: str | None = None) -> Outcome:
        """Check the run's evidence. `problem` is what stopped the case, if anything did."""
        evidence = self.evidence()
        verdict = check(evidence, drained=problem is None)
        found = stalls(evidence, self._fault_at, self._fault_end, self._struck) if self._fault_end else Stalls({}, {})
        return Outcome(
            verdict.records,
            verdict.lost,
            verdict.doubled,
            closed := len(self.log.look("closed")),
            found,
            (
                *([f"stuck: {problem}"] if problem else self._of_the_way(closed)),
                *verdict.violations,
                *self._too_long(found),
            ),
            time.time() - self._begin,
        )

    def evidence(self) -> Evidence:
        return Evidence(
            produced=dict(self.producer.sent),
            outputs={name: one.rows() for name, one in self._streams.items()},
            grants=[
                Grant(event["stream"], event["plan"], frozenset(Range(*offsets) for offsets in event["ranges"]))
                for event in self.log.look("granted")
            ],
            durable=[durable for one in self._streams.values() for durable in one.durable()],
            samples=[
                Sample(event["at"], {int(number): offset for number, offset in event["committed"].items()}, event["newest"])
                for kind in ("sample", "closing")
                for event in self.log.look(kind)
            ],
            left=self._left,
            read_again=self._read_again,
        )

    def last_words(self) -> str:
        """Return the ends of all drivers' logs, for a failed run."""
        return "\n".join(f"--- {name}\n{one.last_words()}" for name, one in self._streams.items())

    def _of_the_way(self, closed: int) -> list[str]:
        """Return whether claims were closed before the next trigger although no plans are reported.

        With a way they need not be: a trigger of a second may come before the look at the checkpoint, which is as often. The
        cases with a long trigger wait for it.
        """
        if self.way not in EARLY and closed:
            return [f"{closed} claims were closed before the next trigger, although nobody reported it"]
        return []

    def _too_long(self, found: Stalls) -> list[str]:
        moved = SESSION_S + TRIGGER_S + ALLOWANCE_S + self._held_s
        kept = BYSTANDER_S if self._bystanders else moved
        return [*_above("moved", found.moved, moved), *_above("bystander", found.kept, kept)]

    def _restarted(self) -> bool:
        """Restart the queries that have ended on their own, and return whether there were any."""
        restarted = [one.name for one in self._streams.values() if one.start_if_it_failed()]
        return bool(restarted)

    def _shared_by(self, streams: Collection[Stream]) -> bool:
        """Return whether each of these runs and has planned a share, and together they have every partition once.

        In a case with idle streams it is enough that those that run have planned every partition.
        """
        if self._case.idle_streams:
            return set().union(*(one.owned for one in streams if one.running)) >= set(range(self.producer.partitions))
        shares = [one.owned for one in streams if one.running]
        planned = sorted(partition for share in shares for partition in share)
        return len(shares) == len(streams) and all(shares) and planned == list(range(self.producer.partitions))

    def _durable_since(self, since: float) -> set[int]:
        granted = {
            (event["stream"], event["plan"]): {offsets[0] for offsets in event["ranges"]}
            for event in self.log.look("granted")
            if event["at"] > since
        }
        durable = {(one.stream, one.plan) for each in self._streams.values() for one in each.durable()}
        return set().union(*(partitions for plan, partitions in granted.items() if plan in durable))


def away(since: float) -> None:
    """Wait until the session and `max.poll.interval.ms` of a process that is away have expired: the case requires it."""
    time.sleep(max(0.0, since + AWAY_S - time.time()))


def _unconfirmed(sample: Event) -> list[str]:
    """Return the ranges that are claimed or owed in a sample."""
    found = []
    for partition, commit in commits_in(sample).items():
        if isinstance(commit, CommitRecord):
            found += [f"{partition}: [{start}, {end}) claimed by {commit.stream}" for start, end in commit.open]
            found += [f"{partition}: {owed.range} owed to {owed.stream}" for owed in commit.owed]
    return found


def _above(kind: str, found: Mapping[int, float], limit: float) -> list[str]:
    return [
        f"stalled: {kind} partition {partition} for {seconds:.1f} s, at most {limit:.1f} s are right"
        for partition, seconds in found.items()
        if seconds > limit
    ]
