"""Simulates one run of a stream: Spark's calls on a real ledger, one step at a time, and the run's membership in the group."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from spark_groupsource.group.survey import AskBrokers, ask_brokers
from spark_groupsource.handoff.commit_record import CommitRecord, OwedRange
from spark_groupsource.handoff.losses import LogState, PartitionLoss, partition_losses, plan_losses, to_validate
from spark_groupsource.handoff.plan_offset import PlanOffset
from spark_groupsource.handoff.planner import plan
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.partition import Ranges, TopicPartition
from tests.simulation.account import Violation, offsets_of
from tests.simulation.checkpoint import GROUP_ID, Checkpoint, cut_off
from tests.simulation.commits import FakeCommits
from tests.simulation.group import Register, partition
from tests.simulation.looks import FakeReader, HeldLooks
from tests.simulation.membership import Membership, Reports, named
from tests.simulation.twins import copy_of, twin_of

if TYPE_CHECKING:
    from tests.simulation.world import World


SPARKS_CALLS = (
    "durable",
    "plan",
    "propose",
    "confirm",
    "name",
    "rest",
    "write",
    "acknowledge",
    "claim",
    "sink",
    "commit",
    "leave",
)
"""Steps that can be taken only when they are next. In between comes `leave`, when something is lost."""


class Driver(Membership):
    """A driver process. Each `do_...` method is one step, and returns true if the step had an effect that others may wait for."""

    stage: str
    """Which of SPARKS_CALLS comes next."""

    def __init__(self, world: World, letter: str) -> None:
        checkpoint = world.streams[letter]
        super().__init__(world, f"{letter}.{checkpoint.drivers}")
        self.letter = letter
        self.plan = checkpoint.newest()
        """The newest plan that this run knows to be logged, or proposes."""
        self.batch = checkpoint.batches
        """The next batch to write."""
        self.ranges: Ranges = {}
        self.topics: Mapping[str, str] = {}
        """The ids of the topics of `ranges`, when they were planned."""
        self.epochs: Mapping[TopicPartition, int] = {}
        """The leader epochs of the partitions of `ranges`, when they were planned."""
        self.losses: Sequence[PartitionLoss] = ()
        self.again: Ranges = {}
        """What it may read in place of other streams, when it last asked."""
        self.answer = ""
        """What becomes of the next commit: `lost`, `applied` without an answer, `late` to arrive, or `split`, its rest lost."""
        self.knows: list[str] = []
        """The stream that wrote each partition's record, if its member was in the group, by the newest answer that it took."""
        self.knew: list[str] = []
        """The same when it last decided what to read in place of other streams."""
        self.lived: dict[str, float] = {}
        """When an answer that it took last showed a stream as alive, by its clock."""
        self.dead: dict[tuple[TopicPartition, str, int], float] = {}
        """Since when every answer that it took has shown the stream of a plan that it holds ranges of as dead."""
        self.answered_at = -math.inf
        """When it took the newest answer."""
        self.clock = _Clock()
        self.before: list[Register | None] | None = None
        """What the next fetch gets, when others write before it is used."""
        replays = checkpoint.committed < checkpoint.logged
        self.stage = "claim" if replays else "durable"
        self.rejoins = 2
        """How often it joins as a new member after a commit without an answer, before it ends."""
        self.done = self.plan
        """The plan before the newest one, while that is not durable."""
        self.away = False
        """Whether it has left the group after a commit without an answer, and has not joined it again."""
        self._begin(self.plan, durable=self.plan.plan - replays)

    def _begin(self, newest: PlanOffset, *, durable: int) -> None:
        """Begin a membership. The driver joins the group later."""
        world = self.world
        self.survey = world.survey_type(self.asking_brokers())
        self.ledger = world.ledger_type(
            Stream(newest.stream, newest.plan, durable, newest.by_partition, newest.topics, newest.epoch_of),
            FakeCommits(world, self),
            survey=self.survey,
            reader=FakeReader(self),
            fail_on_data_loss=False,
            held_claims=world.setting.held_claims,
            patience_s=math.inf,
            clock=self.clock,
            wall_clock=lambda: 1_700_000_000,
        )
        self.ledger._confirmed_plans = HeldLooks(FakeReader(self), clock=self.clock)

    def clone(self, world: World) -> Driver:
        twin = twin_of(self)
        twin.world = world
        twin.untold, twin.held, twin.draining = set(self.untold), set(self.held), set(self.draining)
        twin.ledger = copy_of(self.ledger)
        twin.ledger._held_ranges = twin_of(self.ledger._held_ranges)
        twin.ledger._confirmed_plans = self.looks.clone(FakeReader(twin))
        twin.ledger._closing = twin_of(self.ledger._closing)
        twin.lived, twin.dead = dict(self.lived), dict(self.dead)
        twin.ledger._commits = FakeCommits(world, twin)
        twin.ledger._adopting = adopting = copy_of(self.ledger._adopting)
        adopting._failures = twin_of(adopting._failures)
        twin.survey = adopting._survey = self.survey.clone(twin.asking_brokers())
        return twin

    def asking_brokers(self) -> AskBrokers:
        """The object that asks the brokers before a partition is adopted."""
        return partial(
            ask_brokers, starting_offsets=_from_the_beginning, topic_ids=self.topic_ids, log_starts=_from_the_beginning
        )

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str | None]:
        """Return the ids of these topics, as the brokers report them now."""
        return dict.fromkeys(topics, self.world.topic_id)

    @property
    def checkpoint(self) -> Checkpoint:
        return self.world.streams[self.letter]

    @property
    def newer(self) -> bool:
        """Whether the driver runs the next version of this package."""
        return self.name in self.world.newer

    def due(self) -> list[tuple[object, ...]]:
        """Return the steps that can be taken now. While a callback drains, the consumer's thread does nothing else."""
        group, name = self.world.group, self.name
        due: list[tuple[object, ...]] = [(self.stage, name)]
        if self.away:
            return due if self.stage in ON_ITS_OWN else [("join anew", name)]
        if self.stage == "plan":
            due = [("plan", name, None), ("plan", name, 1)]
        due += [("answer", name, number) for number in range(len(self.survey.waiting))]
        if self.looks.waits:
            due.append(("look", name))
        if self.member is None:
            return [*due, ("join", name)]
        if not self.known:
            return [*due, ("lost", name), *([("release", name)] if self.draining else [])]
        if self.epoch != group.epochs[self.member]:
            due.append(("sync", name))
        if group.to_assign(self.member):
            due.append(("assign", name))
        return [*due, *self._due_on_the_way_out(), *self._due_between_polls()]

    def _due_on_the_way_out(self) -> list[tuple[object, ...]]:
        if self.draining:
            return [("release", self.name)]
        if self.deaf:
            return [("rejoin", self.name)]
        return [("revoke", self.name)] if set(self.world.group.to_revoke(self.member or "")) - self.untold else []

    def _due_between_polls(self) -> list[tuple[object, ...]]:
        due: list[tuple[object, ...]] = []
        if self.untold and not self.draining:
            due.append(("on_assign", self.name))
        if self.ledger._adopting.partitions - self.ledger._draining or self.looks.answered:
            due.append(("idle", self.name))
        if self.reports.waits or self.ledger._closing._unclosed:
            due.append(("close", self.name))
        return due

    def may(self) -> list[tuple[object, ...]]:
        """Return the steps that may or may not happen: reports, and looks at held ranges, which take some time without a plan."""
        if self.away:
            return []
        reports = [("report", self.name, age) for age in (0, 1) if age <= self.durable_plan]
        noise = [("noise", self.name, of) for of in ("next", "another")]
        owed = any(record.owed for record in self.ledger._records.values())
        loses = self.world.setting.lost_answers and not self.deaf
        return [
            *reports,
            *noise,
            *([("idle", self.name)] if owed else []),
            *([("lose answer", self.name)] if loses else []),
        ]

    def do_begin(self) -> bool:
        """Read the group's commits before joining."""
        self.ledger.note_group(FakeReader(self).subscribed())
        self.knows = self.knew = self.world.written_by_members()
        return True

    # Micro-batches, in Spark's order of calls.

    def do_durable(self) -> bool:
        """latestOffset(start): `start` is in the commit log."""
        self.reports = self.reports._replace(claimed=None)
        self.ledger.durable(self.plan.plan)
        self._reads_again(self.ledger.begin_plan().reread)
        self.stage = "plan"
        return False

    def takes_answer(self, running: Collection[str], protected: Collection[str]) -> None:
        """Take the answer that these streams run. Other protected streams count as running, because others were not asked."""
        self.answered_at = self.clock.now
        self.lived |= dict.fromkeys(running, self.answered_at)
        held = [(where, entry.stream, entry.plan) for where, entry in self._held() if entry.stream not in protected]
        self.dead = {plan: self.dead.get(plan, self.answered_at) for plan in held}

    def _held(self) -> list[tuple[TopicPartition, OwedRange]]:
        """Return what the driver holds for other streams."""
        records = self.ledger._records.items()
        return [(where, entry) for where, record in records for entry in record.owed if entry.stream != record.stream]

    def _reads_again(self, again: Ranges) -> None:
        """Note the ranges that it reads in place of other streams, and check that these have been dead for long enough.

        A time that is counted from plan to plan may begin late, because the previous plan may be long ago. Or it may end early,
        because the stream may have been alive in between.
        """
        self.again, self.knew = again, self.knows
        after = self.world.setting.held_claims.reread_after_s
        if after is None:
            return
        protected = self.ledger._protected(self.ledger._records)
        for where, entry in self._held():
            lived = self.lived.get(entry.stream, -math.inf)
            reread = entry.range in again.get(where, ())
            if reread and self.clock.now - lived < after:
                raise Violation("reread too early", f"{where}: {entry}, alive {self.clock.now - lived:.0f} s ago")
            dead = self.answered_at - self.dead.get((where, entry.stream, entry.plan), math.inf)
            if not reread and dead >= after and entry.stream not in protected and where not in self.ledger._draining:
                raise Violation("reread too late", f"{where}: {entry}, dead for {dead:.0f} s")

    def do_plan(self, limit: int | None) -> bool:
        """Read the positions and the partitions' ends. 0: no broker answers."""
        ends = {partition(number): end for number, end in enumerate(self.world.ends)} if limit != 0 else {}
        records = self.ledger.confirmed_records()
        self.epochs = {where: self.world.epochs[where.partition] for where in ends}
        ids = self.topic_ids(where.topic for where in records)
        logs = LogState(ids, _from_the_beginning(records), ends, self.epochs, self.diverging(records))
        self.losses = partition_losses(records, logs if limit != 0 else LogState(), {})
        self.topics = {where.topic: record.topic_id for where, record in records.items() if record.topic_id}
        self.ranges = plan(self.ledger.positions, ends, limit or None, reread=self.again)
        self.stage = "leave" if self.losses else "propose"
        return False

    def diverging(self, records: Mapping[TopicPartition, CommitRecord]) -> dict[TopicPartition, int]:
        """Return where the logs were truncated below the positions, according to their leaders."""
        positions = to_validate({where: (record.next, record.epoch) for where, record in records.items()}, self.epochs)
        found = {where: self.world.epoch_end(where.partition, epoch) for where, (_, epoch) in positions.items()}
        return {where: end for where, end in found.items() if end < positions[where][0]}

    def do_leave(self) -> bool:
        """Skip what is lost, and read the positions again."""
        self.ledger.continue_after(self.losses)
        self._reads_again(self.ledger.plan_input().reread)
        self.stage = "plan"
        return False

    def do_propose(self) -> bool:
        """Return the plan to Spark from latestOffset, or `start` again."""
        kept = self.ledger.propose(self.ranges)
        if not any(offsets.size for ranges in kept.values() for offsets in ranges):
            self.stage = "confirm"
            return False
        self.done = self.plan
        self.plan = PlanOffset.build(
            stream=self.plan.stream,
            plan=self.plan.plan + 1,
            generation=1,
            member="",
            group=GROUP_ID,
            ranges=kept,
            topics=self.topics,
            epochs={where: epoch for where, epoch in self.epochs.items() if where in kept},
        )
        self.stage = "write"
        return True

    def do_confirm(self) -> bool:
        """Confirm the last plan, because nothing is left of the new one, and so no claim will confirm it."""
        self.ledger.confirm()
        self.stage = "rest" if self.batch else "name"
        return False

    def do_rest(self) -> bool:
        """Find nothing new: Spark asks again with the same start."""
        self.stage = "durable"
        return False

    def do_name(self) -> bool:
        """Run batch 0 without a plan: start and end are the same, so nothing is claimed."""
        if self._log():
            self.stage = "rest"
        return True

    def do_write(self) -> bool:
        """Write the plan to the offset log."""
        if self._log():
            self.checkpoint.offset_log.append(json.dumps(self.plan.to_json()))
            self.stage = "acknowledge"
        return True

    def _log(self) -> bool:
        """Write the next batch to the offset log. A driver that finds one there dies."""
        checkpoint = self.checkpoint
        if checkpoint.put_aside is not None:
            raise Violation("a restored checkpoint goes on", f"{self.name} logs batch {self.batch}")
        if checkpoint.batches != self.batch:
            self.do_crash()
            return False
        checkpoint.batches = self.batch = self.batch + 1
        checkpoint.named = self.plan.stream
        return True

    def do_acknowledge(self) -> bool:
        """commit(end of the previous batch)."""
        self.ledger.durable(self.plan.plan - 1)
        self.stage = "claim"
        return True

    def do_claim(self) -> bool:
        """partitions(start, end)."""
        self.reports = self.reports._replace(claimed=None)
        claims = self.ledger.claim(self.still_there())
        if claims.waiting:
            return False
        # A report that came before is not believed.
        self.reports = self.reports._replace(claimed=(self.plan.stream, self.plan.plan), newest=None)
        self.ranges = claims.granted
        self.stage = "sink"
        if not self.current:
            if self.ranges:
                raise Violation("read in another topic", f"{self.name} reads {_listed(claims.granted)}")
            return True
        if self.plan.plan > self.checkpoint.committed:
            before = self.checkpoint.granted.setdefault(self.plan.plan, claims.granted)
            if self.world.account.exactly_once and not self.world.account.may_have_become(before, claims.granted):
                now = f"{self.name} reads {_listed(claims.granted)} for plan {self.plan.plan}"
                raise Violation("an answer changed", f"{now}; before, it was {_listed(before)}")
        return True

    @property
    def current(self) -> bool:
        """Whether the newest plan is of the topic as it is now."""
        return self.plan.topics.get("orders", self.world.topic_id) == self.world.topic_id

    def as_logged(self) -> Stream:
        """Return the stream's own state once its plan is in the offset log."""
        plan = self.plan
        return Stream(plan.stream, plan.plan, plan.plan - 1, plan.by_partition, plan.topics, plan.epoch_of)

    def still_there(self) -> Stream:
        """Return the plan without the ranges that were deleted with their topic."""
        stream = self.as_logged()
        lost = {loss.partition for loss in plan_losses(stream, self.topic_ids(stream.topics))}
        return replace(stream, ranges={where: planned for where, planned in stream.ranges.items() if where not in lost})

    def do_sink(self) -> bool:
        """Commit the tasks' rows in the sink, unless it already has this plan."""
        number = self.plan.plan
        self.stage = "commit"
        if number not in self.checkpoint.sink:
            if not self.current:
                self.ranges = {}  # nothing of it is there any more
            self.checkpoint.sink[number] = self.ranges = self.of_the_planned_log()
            for where, offsets in self.world.read(self.ranges).items():
                for offset in offsets_of(offsets):
                    self.world.account.written(where.partition, offset, f"{self.plan.stream} in plan {number}")
        return True

    def of_the_planned_log(self) -> Ranges:
        """Return what the tasks read: a range ends with the log, or before a record with a later leader epoch than the plan's."""
        ranges = self.ranges
        for where, epoch in self.plan.epoch_of.items():
            ranges = cut_off(ranges, where, self.world.epoch_end(where.partition, epoch))
        return ranges

    def do_commit(self) -> bool:
        """Write the plan to the commit log."""
        if self.checkpoint.put_aside is not None:
            raise Violation("a restored checkpoint goes on", f"{self.name} commits plan {self.plan.plan}")
        if self.plan.plan > self.checkpoint.committed:
            self.checkpoint.committed = self.plan.plan
            if self.current:
                self.world.account.confirmed(self.checkpoint.sink[self.plan.plan])
        self.stage = "durable"
        return True

    # Reports that a plan is durable, from another thread.

    @property
    def durable_plan(self) -> int:
        """The newest plan that may be reported: it is in the commit log, no matter which driver wrote it."""
        return self.checkpoint.committed

    def do_report(self, age: int) -> bool:
        """Report the newest durable plan, or an older one late."""
        plan = self.durable_plan - age
        if plan >= 0:
            self._report(self.checkpoint.named, plan)
        return False

    def do_noise(self, of: str) -> bool:
        """Report something unrelated to the newest claims: the `next` plan to claim, or `another` stream's plan."""
        to_claim = self.stage in {"write", "acknowledge", "claim"}
        if of == "next":
            self._report(self.plan.stream, self.plan.plan + (not to_claim))
        else:
            self._report(f"{self.plan.stream}-", self.plan.plan)
        return False

    def _report(self, stream: str, plan: int) -> None:
        self.reports = self.reports._replace(newest=(stream, plan), waits=True)
        self.ledger.report_durable(stream, plan)

    # The end of it.

    def leaves(self, *, answered: bool) -> bool:
        """Leave after a commit without a response: close what is durable, or vanish until the session expires."""
        if answered and self.known:
            held = named(self.held)
            with self.looking_at_reports(self.held, owed_too=False):
                self.ledger.draining(held)
                self.ledger.released(held)
            self.world.group.remove(self.member or "")
        self.away, self.member, self.reports = True, None, Reports()
        self.held, self.untold, self.draining = set(), set(), set()
        self.deaf = self.leaving = False
        if self.stage in {"plan", "propose", "confirm", "leave"}:
            self.stage = "durable"  # Spark's call begins again
        return True

    def do_join_anew(self) -> bool:
        """Rejoin the group as a new member at Spark's next call, with the checkpoint's state from that call."""
        if not self.away or self.stage in ON_ITS_OWN:
            return False
        self.away = False
        newest = self.done if self.stage == "acknowledge" else self.plan
        self._begin(newest, durable=newest.plan - (self.stage == "claim"))
        return self.do_begin()

    def do_crash(self) -> bool:
        """Crash. The member stays in the group until its session expires."""
        self.world.account.graceful = False
        del self.world.drivers[self.name]
        return True

    def do_stop(self) -> bool:
        """Handle SIGTERM: give everything back, and leave."""
        if not self.known:
            return self.do_crash()
        held = named(self.held)
        with self.looking_at_reports(self.held, owed_too=False):
            self.ledger.draining(held)
            self.world.account.graceful &= not self.ledger.in_flight(held) and self.stage not in {"sink", "commit"}
            self.ledger.released(held)
        self.world.group.remove(self.member or "")
        del self.world.drivers[self.name]
        return True

    def do_ask(self) -> bool:
        """Ask for the group's commits, and use the answer late."""
        self.before = list(self.world.group.registers)
        return False

    def do_cut(self, how: str) -> bool:
        """Break the connection at the next commit."""
        self.answer = how
        return False

    def key(self) -> tuple[object, ...]:
        """A key that is equal for drivers that behave alike. It has whether the epoch is current, and what was assigned since."""
        ledger = self.ledger
        return (
            *(self.name, self.stage, self.plan.plan, self.batch, self.member, self.answer, self.away),
            *(self.epoch == self.world.group.epochs.get(self.member or ""), repr(self.before)),
            tuple(self.world.group.has_had(self.member, number, self.epoch) for number in range(len(self.world.ends))),
            *(
                frozenset(self.untold),
                frozenset(self.held),
                frozenset(self.draining),
                (self.deaf, self.leaving),
                frozenset(self.ranges.items()),
                frozenset(self.again.items()),
                frozenset(self.topics.items()),
                frozenset(self.epochs.items()),
            ),
            *(
                ledger._stream.logged,
                ledger._stream.durable,
                frozenset(ledger._adopting.partitions),
                ledger._planned,
                self.looks.key(ledger._stream.name, liveness_matters=ledger._held_ranges.liveness_matters),
                frozenset(ledger._held_ranges._dead_since),
            ),
            *(ledger._closing._claimed, ledger._closing._report, ledger._closing._unclosed, self.reports),
            *(ledger._blocked_at is None, self.survey.key()),
            frozenset((where, record.metadata(), record.epoch) for where, record in ledger._records.items()),
        )


ON_ITS_OWN = frozenset({"rest", "name", "write", "sink", "commit"})
"""Steps of Spark, with which it asks nothing of the source."""

LOOK_S = 3600.0


class _Clock:
    """A clock on which much time passes between readings, so that only what takes several readings is delayed."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += LOOK_S
        return self.now


def _from_the_beginning(partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    return dict.fromkeys(partitions, 0)


def _listed(ranges: Ranges) -> str:
    return ", ".join(f"{where} {' '.join(map(str, offsets))}" for where, offsets in sorted(ranges.items())) or "nothing"
