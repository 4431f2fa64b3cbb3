"""One run of a stream: Spark's calls, one step at a time, on a real ledger, and its membership in the group."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from spark_groupsource.group.fenced_commits import FencedCommits
from spark_groupsource.handoff.commit_record import CommitRecord, GroupCommit
from spark_groupsource.handoff.losses import LogState, PartitionLoss, partition_losses, plan_losses
from spark_groupsource.handoff.plan_offset import PlanOffset
from spark_groupsource.handoff.planner import plan
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.partition import Ranges, TopicPartition
from tests.simulation.account import Violation, offsets_of
from tests.simulation.checkpoint import GROUP_ID, Checkpoint
from tests.simulation.group import Register, as_commit, as_commit_of_any_version, partition

if TYPE_CHECKING:
    from tests.simulation.world import World


class FakeCommits(FencedCommits):
    """The group's registers as one driver reaches them."""

    def __init__(self, world: World, driver: Driver) -> None:
        self.world = world
        self.driver = driver

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, GroupCommit]:
        """Return what the group holds; for partitions of others it may be what it held a moment ago."""
        before, self.driver.before = self.driver.before, None
        now, held = self.world.group.registers, self.driver.held
        earlier = before or now
        read = as_commit_of_any_version if self.driver.newer else as_commit
        return {asked: read((now if asked.partition in held else earlier)[asked.partition]) for asked in partitions}

    def parts(self, records: Mapping[TopicPartition, CommitRecord]) -> Iterator[Mapping[TopicPartition, CommitRecord]]:
        """All in one commit; or in two, of which the second is lost."""
        if records and self.driver.answer == "split":
            self.driver.answer = ""
            first, *others = sorted(records)
            if others:
                yield {first: records[first]}
            self.driver.answer = "lost"
            yield {where: records[where] for where in others or [first]}
        elif records:
            yield records

    def commit(self, records: Mapping[TopicPartition, CommitRecord]) -> None:
        """Write, fenced; or lose the request or its answer."""
        how, self.driver.answer = self.driver.answer, ""
        self.world.group.fence(self.driver.member, self.driver.epoch)
        if how in {"", "applied"}:
            self.world.write(records, self.driver.name)
        if how:
            self.world.unanswered(self.driver, records, late=how == "late")


class Driver:
    """A driver process. Each `do_...` is one step; it gives true when something came of it that others may wait for."""

    stage: str
    """Spark's next call: durable, plan, propose, name or rest, write, acknowledge, claim, sink, commit; in between `leave`, when
    something is lost."""

    def __init__(self, world: World, stream: int) -> None:
        self.world = world
        self.stream = stream
        checkpoint = self.checkpoint
        self.name = f"{checkpoint.letter}.{checkpoint.drivers}"
        self.plan = checkpoint.newest()
        """The newest plan that this run knows to be logged, or proposes."""
        self.batch = checkpoint.batches
        """The next batch to write."""
        self.ranges: Ranges = {}
        self.topics: Mapping[str, str] = {}
        """The ids of the topics of `ranges`, when they were planned."""
        self.losses: Sequence[PartitionLoss] = ()
        self.again: Ranges = {}
        """What it may read in place of other streams, when it last asked."""
        self.member: str | None = None
        self.epoch = -1
        self.untold: set[int] = set()
        """Given by the coordinator; `on_assign` has not run yet."""
        self.held: set[int] = set()
        self.draining: set[int] = set()
        self.answer = ""
        """What becomes of the next commit: `lost`, `applied` without an answer, `late` to arrive, or `split`, its rest lost."""
        self.before: list[Register | None] | None = None
        """What the next fetch gets, when others write before it is used."""
        replays = checkpoint.committed < checkpoint.logged
        self.stage = "claim" if replays else "durable"
        self.ledger = world.ledger_type(
            Stream(self.plan.stream, self.plan.plan, self.plan.plan - replays, self.plan.by_partition, self.plan.topics),
            FakeCommits(world, self),
            starting_offsets=_from_the_beginning,
            all_partitions=world.partitions,
            topic_ids=self.topic_ids,
            log_starts=_from_the_beginning,
            fail_on_data_loss=False,
            outstanding=world.setting.outstanding,
            patience_s=math.inf,
            clock=_Clock(),
            wall_clock=lambda: 1_700_000_000,
        )

    def clone(self, world: World) -> Driver:
        """An independent copy that lives in `world`."""
        twin = copy.copy(self)
        twin.world = world
        twin.untold, twin.held, twin.draining = set(self.untold), set(self.held), set(self.draining)
        twin.ledger = copy.copy(self.ledger)
        for attribute, value in vars(self.ledger).items():
            if isinstance(value, set | dict):
                setattr(twin.ledger, attribute, copy.copy(value))
        twin.ledger._held_ranges = copy.copy(self.ledger._held_ranges)
        twin.ledger._confirmed_plans = copy.copy(self.ledger._confirmed_plans)
        twin.ledger._adoption = copy.copy(self.ledger._adoption)
        twin.ledger._commits = FakeCommits(world, twin)
        twin.ledger._topic_ids = twin.topic_ids
        return twin

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str | None]:
        """What the brokers say of these topics now."""
        return dict.fromkeys(topics, self.world.topic_id)

    @property
    def checkpoint(self) -> Checkpoint:
        """Its stream's checkpoint."""
        return self.world.streams[self.stream]

    @property
    def known(self) -> bool:
        """Whether the coordinator has it as a member."""
        return self.member in self.world.group.epochs

    @property
    def newer(self) -> bool:
        """Whether it is of the next version of this package."""
        return self.name in self.world.newer

    def due(self) -> list[tuple[object, ...]]:
        """Steps that can be taken now. While a callback drains, the consumer's thread does nothing else."""
        group, name = self.world.group, self.name
        due: list[tuple[object, ...]] = [(self.stage, name)]
        if self.stage == "plan":
            due = [("plan", name, None), ("plan", name, 1)]
        if self.member is None:
            return [*due, ("join", name)]
        if not self.known:
            return [*due, ("lost", name), *([("release", name)] if self.draining else [])]
        if self.epoch != group.epochs[self.member]:
            due.append(("sync", name))
        if self.draining:
            due.append(("release", name))
        elif set(group.to_revoke(self.member)) - self.untold:
            due.append(("revoke", name))
        if group.to_assign(self.member):
            due.append(("assign", name))
        if self.untold and not self.draining:
            due.append(("on_assign", name))
        if self.ledger._acquired and not self.draining:
            due.append(("idle", name))
        return due

    # Micro-batches, in Spark's order of calls.

    def do_durable(self) -> bool:
        """latestOffset(start): `start` is in the commit log."""
        if self.stage == "durable":
            self.ledger.durable(self.plan.plan)
            self.ledger.settle()
            self.again = self.ledger.to_reread()
            self.stage = "plan"
        return False

    def do_plan(self, limit: int | None) -> bool:
        """Look at the positions and the partitions' ends; 0: no broker answers."""
        if self.stage == "plan":
            ends = {partition(number): end for number, end in enumerate(self.world.ends)} if limit != 0 else {}
            records = self.ledger.known()
            logs = LogState(self.topic_ids(where.topic for where in records), _from_the_beginning(records), ends)
            self.losses = partition_losses(records, logs if limit != 0 else LogState(), {})
            self.topics = {where.topic: record.topic_id for where, record in records.items() if record.topic_id}
            self.ranges = plan(self.ledger.positions, ends, limit or None, again=self.again)
            self.stage = "leave" if self.losses else "propose"
        return False

    def do_leave(self) -> bool:
        """Something is lost: it is left behind, and the positions are looked at again."""
        if self.stage == "leave":
            self.ledger.go_on(self.losses)
            self.again = self.ledger.to_reread()
            self.stage = "plan"
        return False

    def do_propose(self) -> bool:
        """latestOffset gives the plan to Spark, or `start` again."""
        if self.stage != "propose":
            return False
        kept = self.ledger.propose(self.ranges)
        if not any(one.size for offsets in kept.values() for one in offsets):
            self.stage = "rest" if self.batch else "name"
            return False
        self.plan = PlanOffset.build(
            stream=self.plan.stream,
            plan=self.plan.plan + 1,
            generation=1,
            member="",
            group=GROUP_ID,
            ranges=kept,
            topics=self.topics,
        )
        self.stage = "write"
        return True

    def do_rest(self) -> bool:
        """Nothing new: Spark asks again, with the same start."""
        if self.stage == "rest":
            self.ledger.confirm()
            self.stage = "durable"
        return False

    def do_name(self) -> bool:
        """Batch 0 without a plan: start and end are the same, so that nothing is claimed."""
        if self.stage != "name":
            return False
        if self._log():
            self.stage = "rest"
        return True

    def do_write(self) -> bool:
        """The plan is written to the offset log."""
        if self.stage != "write":
            return False
        if self._log():
            self.checkpoint.offset_log.append(json.dumps(self.plan.to_json()))
            self.stage = "acknowledge"
        return True

    def _log(self) -> bool:
        """Write the next batch to the offset log; a driver that finds one there dies."""
        checkpoint = self.checkpoint
        if checkpoint.batches != self.batch:
            self.do_crash()
            return False
        checkpoint.batches = self.batch = self.batch + 1
        checkpoint.named = self.plan.stream
        return True

    def do_acknowledge(self) -> bool:
        """commit(end of the previous batch)."""
        if self.stage != "acknowledge":
            return False
        self.ledger.durable(self.plan.plan - 1)
        self.stage = "claim"
        return True

    def do_claim(self) -> bool:
        """partitions(start, end)."""
        if self.stage != "claim":
            return False
        claims = self.ledger.claim(self.still_there())
        if claims.waiting:
            return False
        self.ranges = claims.granted
        self.stage = "sink"
        if not self.current:
            if self.ranges:
                raise Violation("read in another topic", f"{self.name} reads {_shown(claims.granted)}")
            return True
        if self.plan.plan > self.checkpoint.committed:
            before = self.checkpoint.granted.setdefault(self.plan.plan, claims.granted)
            if self.world.account.exactly_once and not self.world.account.may_have_become(before, claims.granted):
                now = f"{self.name} reads {_shown(claims.granted)} for plan {self.plan.plan}"
                raise Violation("an answer changed", f"{now}; before, it was {_shown(before)}")
        return True

    @property
    def current(self) -> bool:
        """Whether the newest plan is of the topic as it is now."""
        return self.plan.topics.get("orders", self.world.topic_id) == self.world.topic_id

    def as_logged(self) -> Stream:
        """What the stream knows of itself when its plan is in the offset log."""
        return Stream(self.plan.stream, self.plan.plan, self.plan.plan - 1, self.plan.by_partition, self.plan.topics)

    def still_there(self) -> Stream:
        """The same, without the ranges that were deleted with their topic."""
        stream = self.as_logged()
        lost = {loss.partition for loss in plan_losses(stream, self.topic_ids(stream.topics))}
        return replace(stream, ranges={where: planned for where, planned in stream.ranges.items() if where not in lost})

    def do_sink(self) -> bool:
        """The tasks have read, and the sink commits, unless it has this plan."""
        if self.stage != "sink":
            return False
        number = self.plan.plan
        self.stage = "commit"
        if number not in self.checkpoint.sink:
            if not self.current:
                self.ranges = {}  # nothing of it is there any more
            self.checkpoint.sink[number] = self.ranges
            for where, offsets in self.world.read(self.ranges).items():
                for offset in offsets_of(offsets):
                    self.world.account.written(where.partition, offset, f"{self.plan.stream} in plan {number}")
        return True

    def do_commit(self) -> bool:
        """The plan is written to the commit log."""
        if self.stage != "commit":
            return False
        if self.plan.plan > self.checkpoint.committed:
            self.checkpoint.committed = self.plan.plan
            if self.current:
                self.world.account.confirmed(self.checkpoint.sink[self.plan.plan])
        self.stage = "durable"
        return True

    # Membership.

    def do_join(self) -> bool:
        """Join the group."""
        if self.member is not None:
            return False
        self.member = self.world.group.join(self.name)
        self.epoch = self.world.group.epochs[self.member]
        return True

    def do_sync(self) -> bool:
        """Learn of the new generation, or epoch."""
        if not self.known or self.epoch == self.world.group.epochs[self.member or ""]:
            return False
        self.epoch = self.world.group.epochs[self.member or ""]
        return True

    def do_lost(self) -> bool:
        """on_lost: it was thrown out."""
        if self.member is None or self.known:
            return False
        self.ledger.lost(_named(self.held))
        self.member = None
        self.held, self.untold, self.draining = set(), set(), set()
        return True

    def do_assign(self) -> bool:
        """The coordinator gives it what is free; it does not know yet."""
        given = self.world.group.assign(self.member) if self.member and self.known else []
        self.untold |= set(given)
        self.world.account.note_owner(self.name[0], given)
        return bool(given)

    def do_on_assign(self) -> bool:
        """on_assign. Under the classic protocol it sees the new generation, under KIP-848 the old epoch."""
        if not self.untold or self.draining:
            return False
        given, self.untold = self.untold, set()
        self.held |= given
        if self.world.group.protocol == "classic":
            self.do_sync()
        self.ledger.acquired(_named(given))
        return True

    def do_idle(self) -> bool:
        """Between polls: adopt what could not be adopted."""
        if not self.draining:
            self.ledger.idle()
        return False

    def do_revoke(self) -> bool:
        """on_revoke begins."""
        going = set(self.world.group.to_revoke(self.member)) - self.untold
        if self.draining or not going:
            return False
        self.draining = going
        self.ledger.draining(_named(going))
        return True

    def do_release(self) -> bool:
        """on_revoke ends, because nothing is in flight."""
        return not self.ledger.in_flight(_named(self.draining)) and self.do_let_go()

    def do_let_go(self) -> bool:
        """on_revoke ends, whatever is in flight: past the drain timeout, or without waiting at all."""
        if not self.draining:
            return False
        going, self.draining = self.draining, set()
        self.world.account.graceful &= not self.ledger.in_flight(_named(going))
        self.ledger.released(_named(going))
        self.held -= going
        if self.member is not None:
            self.world.group.release(self.member, sorted(going))
        return True

    # The end of it.

    def do_crash(self) -> bool:
        """It dies. Its member stays in the group until its session is over."""
        self.world.account.graceful = False
        del self.world.drivers[self.name]
        return True

    def do_stop(self) -> bool:
        """SIGTERM: it gives everything back and leaves."""
        if not self.known:
            return self.do_crash()
        held = _named(self.held)
        self.ledger.draining(held)
        self.world.account.graceful &= not self.ledger.in_flight(held) and self.stage not in {"sink", "commit"}
        self.ledger.released(held)
        self.world.group.remove(self.member or "")
        del self.world.drivers[self.name]
        return True

    def do_ask(self) -> bool:
        """It asks what the group holds, and is slow to use the answer."""
        self.before = list(self.world.group.registers)
        return False

    def do_cut(self, how: str) -> bool:
        """The connection breaks with the next commit."""
        self.answer = how
        return False

    def key(self) -> tuple[object, ...]:
        """Equal for drivers that behave alike. Of the epoch it matters whether it is the current one."""
        ledger = self.ledger
        return (
            *(self.name, self.stage, self.plan.plan, self.batch, self.member, self.answer),
            *(self.epoch == self.world.group.epochs.get(self.member or ""), repr(self.before)),
            *(
                frozenset(self.untold),
                frozenset(self.held),
                frozenset(self.draining),
                frozenset(self.ranges.items()),
                frozenset(self.again.items()),
                frozenset(self.topics.items()),
            ),
            *(
                ledger._stream.logged,
                ledger._stream.durable,
                frozenset(ledger._acquired),
                ledger._planned,
                ledger._confirmed_plans.spared,
            ),
            ledger._blocked_at is None,
            frozenset((where, record.metadata()) for where, record in ledger._records.items()),
        )


LOOK_S = 3600.0


class _Clock:
    """Every look at it is long after the last one: nothing is put off, but what takes several looks."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += LOOK_S
        return self.now


def _from_the_beginning(partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    return dict.fromkeys(partitions, 0)


def _named(numbers: Iterable[int]) -> frozenset[TopicPartition]:
    return frozenset(partition(number) for number in numbers)


def _shown(ranges: Ranges) -> str:
    return ", ".join(f"{where} {' '.join(map(str, offsets))}" for where, offsets in sorted(ranges.items())) or "nothing"
