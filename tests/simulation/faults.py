"""Faults to seed: each is one mistake that the hand-off could have, and that the simulation has to notice.

A fault replaces one of the rules that the ledger uses, or one step of the ledger or of the world; everything else stays real.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

from spark_groupsource.errors import CommitError, GenerationChanged
from spark_groupsource.group.ledger import Claims, Ledger
from spark_groupsource.handoff import losses
from spark_groupsource.handoff import rules as handoff
from spark_groupsource.handoff.commit_record import CommitRecord, Foreign, GroupCommit
from spark_groupsource.handoff.owed_ranges import OutstandingClaims
from spark_groupsource.handoff.rules import Stream, Verdict
from spark_groupsource.partition import OffsetRange, Ranges, TopicPartition
from tests.simulation.counterexamples import (
    CUT_RANGE,
    LATE_CONFIRMATION,
    OWED_TO_ONESELF,
    OWING_ITSELF,
    RESTORED_CHECKPOINT,
    TWO_DRIVERS,
)
from tests.simulation.driver import Driver, FakeCommits
from tests.simulation.world import Setting, World

_USED_IN = {"evidence": "evidence"}
"""The modules of `group` that use a rule, where that is not the ledger."""


@dataclass(frozen=True)
class Fault:
    """One mistake. `rules` replace those of handoff/rules.py in the ledger."""

    name: str
    rules: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    world: type[World] = World
    setting: Setting | None = None
    """Where to look for it, when that takes more than a moment everywhere."""

    @contextmanager
    def seeded(self) -> Iterator[None]:
        """While the context lasts, the ledger makes this mistake."""
        with ExitStack() as stack:
            for rule, mistaken in self.rules.items():
                stack.enter_context(patch(f"spark_groupsource.group.{_USED_IN.get(rule, 'ledger')}.{rule}", mistaken))
            yield


# Mistakes in the rules.


def _owed_dropped(*arguments: Any, **named: Any) -> CommitRecord:
    return handoff.adopt(*arguments, **named).model_copy(update={"owed": ()})


def _position_from_committed_offset(stream: Stream, where: TopicPartition, commit: GroupCommit, **named: Any) -> CommitRecord:
    adopted = handoff.adopt(stream, where, commit, **named)
    return adopted.model_copy(update={"next": adopted.offset, "owed": (), "open": ()})


def _owed_dropped_without_evidence(record: CommitRecord, done: handoff.Evidence) -> CommitRecord:
    return record.model_copy(update={"owed": ()}) if record.owed else record


def _claimed_without_owning(*arguments: Any, **named: Any) -> Verdict:
    return handoff.claim(*arguments, **{**named, "owned": True, "held_since_planned": True})


def _planned(stream: Stream, where: TopicPartition, *_: Any) -> tuple[OffsetRange, ...]:
    return tuple(offsets for offsets in stream.ranges[where] if offsets.size)


def _everything_replayed(*arguments: Any, **named: Any) -> Verdict:
    verdict = handoff.claim(*arguments, **named)
    return verdict if verdict.write else Verdict(read=_planned(*arguments))


def _left_out_too_early(*arguments: Any, **named: Any) -> Verdict:
    verdict = handoff.claim(*arguments, **named)
    return replace(verdict, waits=False)


def _claimed_by_another_run(*arguments: Any, **named: Any) -> Verdict:
    return handoff.claim(*arguments, **{**named, "held_since_planned": True})


def _confirmed_before_durable(record: CommitRecord, stream: Stream) -> CommitRecord:
    return handoff.confirm(record, replace(stream, durable=stream.logged))


def _adopted_with_the_durable_plan(stream: Stream, *arguments: Any, **named: Any) -> CommitRecord:
    adopted = handoff.adopt(stream, *arguments, **named)
    return adopted if adopted.open else adopted.model_copy(update={"logged": stream.durable, "done": stream.durable})


def _open_claims_forgotten(stream: Stream, where: TopicPartition, commit: GroupCommit, **named: Any) -> CommitRecord:
    if isinstance(commit, CommitRecord) and commit.stream != stream.name:
        commit = commit.model_copy(update={"open": ()})
    return handoff.adopt(stream, where, commit, **named)


def _evidence_from_logged_plans(commits: Iterable[GroupCommit]) -> dict[str, int]:
    return {commit.stream: commit.logged for commit in commits if isinstance(commit, CommitRecord)}


def _foreign_commit_ignored(stream: Stream, where: TopicPartition, commit: GroupCommit, **named: Any) -> CommitRecord:
    return handoff.adopt(stream, where, None if isinstance(commit, Foreign) else commit, **named)


def _place_in_the_last_plan_ignored(stream: Stream, *arguments: Any, **named: Any) -> CommitRecord:
    return handoff.adopt(replace(stream, ranges={}), *arguments, **named)


def _newer_plan_overlooked(stream: Stream, *arguments: Any, **named: Any) -> CommitRecord:
    with patch("spark_groupsource.handoff.rules._newest_plan", return_value=-1):
        return handoff.adopt(stream, *arguments, **named)


def _adopted_off_by(by: int) -> Callable[..., CommitRecord]:
    def faulty(stream: Stream, where: TopicPartition, commit: GroupCommit, **named: Any) -> CommitRecord:
        adopted = handoff.adopt(stream, where, commit, **named)
        another = not isinstance(commit, CommitRecord) or commit.stream != stream.name
        return adopted.model_copy(update={"next": max(0, adopted.next + by)}) if another and not adopted.owed else adopted

    return faulty


def _next_off_by(by: int) -> Callable[..., Verdict]:
    def faulty(*arguments: Any, **named: Any) -> Verdict:
        verdict = handoff.claim(*arguments, **named)
        if verdict.write is None:
            return verdict
        return replace(verdict, write=verdict.write.model_copy(update={"next": verdict.write.next + by}))

    return faulty


def _claimed_as(change: Callable[[CommitRecord, CommitRecord], Mapping[str, Any]]) -> Callable[..., Verdict]:
    """Claims are written otherwise: `change` gives what differs, from the record that was and the one to write."""

    def faulty(stream: Stream, where: TopicPartition, commit: GroupCommit, **named: Any) -> Verdict:
        verdict = handoff.claim(stream, where, commit, **named)
        if verdict.write is None or not isinstance(commit, CommitRecord):
            return verdict
        return replace(verdict, write=verdict.write.model_copy(update=dict(change(commit, verdict.write))))

    return faulty


def _only_new_in_open(before: CommitRecord, written: CommitRecord) -> dict[str, Any]:
    return {"open": tuple(held for held in written.open if held.start >= before.next)}


def _reread_range_still_owed(before: CommitRecord, written: CommitRecord) -> dict[str, Any]:
    return {**_only_new_in_open(before, written), "owed": before.owed}


def _rest_forgotten(before: CommitRecord, written: CommitRecord) -> dict[str, Any]:
    return {"owed": tuple(entry for entry in written.owed if entry in before.owed)}


def _rest_owed_to_the_wrong_stream(before: CommitRecord, written: CommitRecord) -> dict[str, Any]:
    mine = (entry._replace(stream=written.stream, plan=written.logged) for entry in written.owed if entry not in before.owed)
    return {"owed": (*(entry for entry in written.owed if entry in before.owed), *mine)}


def _owed_part_left(*arguments: Any, **named: Any) -> Verdict:
    verdict = handoff.claim(*arguments, **named)
    return replace(verdict, read=tuple(offsets for offsets in verdict.read if offsets in _planned(*arguments)))


def _earlier_topic_believed(stream: Stream, where: TopicPartition, commit: GroupCommit, **named: Any) -> CommitRecord:
    if isinstance(commit, CommitRecord):
        commit = commit.model_copy(update={"topic_id": None})
    return handoff.adopt(replace(stream, topics={}), where, commit, **named)


def _still_held_of_an_earlier_topic(loss: losses.PartitionLoss, resume: int, record: CommitRecord) -> CommitRecord:
    written = losses.record_after(loss, resume, record)
    return written.model_copy(update={"owed": record.owed, "next": record.next}) if record.owed else written


def _position_of_an_earlier_topic(loss: losses.PartitionLoss, resume: int, record: CommitRecord) -> CommitRecord:
    return losses.record_after(loss, resume, record).model_copy(update={"next": record.next})


# Mistakes in the ledger's steps.


class _NothingWritten(FakeCommits):
    def commit(self, records: Mapping[TopicPartition, CommitRecord]) -> None:
        """Nothing reaches the group."""


class _NoAdoption(Ledger):
    def _adopt(self) -> None:
        real = self._commits
        assert isinstance(real, FakeCommits)
        self._commits = _NothingWritten(real.world, real.driver)
        super()._adopt()
        self._commits = real


class _AdoptedAlthoughRefused(_NoAdoption):
    def _adopt(self) -> None:
        try:
            Ledger._adopt(self)
        except CommitError:
            super()._adopt()


class _LostButKept(Ledger):
    def lost(self, partitions: frozenset[TopicPartition]) -> None:
        self._draining -= partitions


class _OwedToItselfForEver(Ledger):
    def settle(self) -> None:
        stream, self._stream = self._stream, replace(self._stream, name="-", durable=-1)
        try:
            super().settle()
        finally:
            self._stream = stream


class _RereadAlthoughHeld(Ledger):
    def to_reread(self) -> dict[TopicPartition, tuple[OffsetRange, ...]]:
        self._held_ranges.policy = OutstandingClaims(reread_after_s=0)
        return super().to_reread()


class _UnansweredConfirmationIgnored(Ledger):
    def _confirm_if_possible(self, partitions: Iterable[TopicPartition]) -> None:
        with suppress(CommitError):
            self._write_confirmed(partitions)


class _ClaimsCountBeforeTheyAreWritten(Ledger):
    def claim(self, stream: Stream) -> Claims:
        try:
            return super().claim(stream)
        except CommitError:
            return Claims(granted={where: _planned(stream, where) for where in stream.ranges}, waiting=frozenset())


def _with_ledger(ledger: type[Ledger]) -> type[World]:
    return type("World", (World,), {"ledger_type": ledger})


# Mistakes in the order of steps, and in what the tasks read.


class _ClaimedBeforeTheOffsetLog(Driver):
    def do_propose(self) -> bool:
        done = super().do_propose()
        if self.stage == "write":
            self.ledger.claim(self.as_logged())
        return done


class _ClaimsWhatIsGone(Driver):
    def still_there(self) -> Stream:
        return self.as_logged()


class _ClaimsOfAnEarlierTopic(World):
    driver_type = _ClaimsWhatIsGone


class _ClaimsEarly(World):
    driver_type = _ClaimedBeforeTheOffsetLog


class _SentAgain(World):
    """An unanswered commit is sent again in the background, under the generation of that time, and counts as refused."""

    def unanswered(self, driver: Driver, records: Mapping[TopicPartition, CommitRecord], *, late: bool) -> None:  # noqa: ARG002
        self.late.append((driver.member or "", -1, dict(records)))
        raise GenerationChanged("no answer; sent again")

    def do_arrive(self, index: int) -> bool:
        if index < len(self.late) and self.late[index][1] == -1:
            member, _, records = self.late[index]
            self.late[index] = (member, self.group.epochs.get(member, -1), records)
        return super().do_arrive(index)


def _reading(change: Callable[[OffsetRange], OffsetRange]) -> type[World]:
    class Faulty(World):
        def read(self, granted: Ranges) -> Ranges:
            return {where: tuple(map(change, offsets)) for where, offsets in granted.items()}

    return Faulty


RECREATED = Setting(streams=2, partitions=2, records=5, recreations=True)
REREADING = Setting(streams=2, partitions=2, records=5, outstanding=OutstandingClaims(reread_after_s=0))

FAULTS = (
    # Of the ten of docs/handoff.md, those that any history may show.
    Fault("owed list dropped at acquisition", {"adopt": _owed_dropped}),
    Fault("position from the committed offset", {"adopt": _position_from_committed_offset}),
    Fault("owed entry dropped without evidence", {"settle": _owed_dropped_without_evidence}),
    Fault("no ownership check at claim", {"claim": _claimed_without_owning}),
    Fault("replay of everything", {"claim": _everything_replayed}),
    Fault("a range left out before that was stable", {"claim": _left_out_too_early}),
    Fault("confirmation before durable", {"confirm": _confirmed_before_durable}),
    Fault("claim before the offset log", world=_ClaimsEarly),
    Fault("no adoption", world=_with_ledger(_NoAdoption)),
    # Both ends of a range.
    Fault("the new owner starts one too early", {"adopt": _adopted_off_by(-1)}),
    Fault("the new owner starts one too late", {"adopt": _adopted_off_by(1)}),
    Fault("the next plan starts one too early", {"claim": _next_off_by(-1)}),
    Fault("the next plan starts one too late", {"claim": _next_off_by(1)}),
    Fault("a task reads one too few at the start", world=_reading(lambda r: OffsetRange(r.start + 1, r.end))),
    Fault("a task reads one too few at the end", world=_reading(lambda r: OffsetRange(r.start, r.end - 1))),
    Fault("a task reads one too many at the start", world=_reading(lambda r: OffsetRange(max(0, r.start - 1), r.end))),
    # Ranges that are read in place of another stream.
    Fault("a reread range is still owed", {"claim": _claimed_as(_reread_range_still_owed)}, setting=REREADING),
    Fault("a reread range is not written to open", {"claim": _claimed_as(_only_new_in_open)}, setting=REREADING),
    Fault("the rest of a range that was cut is forgotten", {"claim": _claimed_as(_rest_forgotten)}, setting=REREADING),
    Fault(
        "the rest of a cut range is owed to another", {"claim": _claimed_as(_rest_owed_to_the_wrong_stream)}, setting=REREADING
    ),
    Fault("a range is reread although it is to be held", world=_with_ledger(_RereadAlthoughHeld)),
    # A topic that is deleted and created again.
    Fault("what an earlier topic's record says is believed", {"adopt": _earlier_topic_believed}, setting=RECREATED),
    Fault("ranges of an earlier topic are still held", {"record_after": _still_held_of_an_earlier_topic}, setting=RECREATED),
    Fault(
        "a new topic is read from the position in the earlier one",
        {"record_after": _position_of_an_earlier_topic},
        setting=RECREATED,
    ),
    Fault("a plan of an earlier topic waits to be claimed", world=_ClaimsOfAnEarlierTopic, setting=RECREATED),
    # Commits.
    Fault("a commit sent again after an unknown outcome", world=_SentAgain),
    Fault("adoption counts although it was refused", world=_with_ledger(_AdoptedAlthoughRefused)),
    Fault("claims count although they were refused", world=_with_ledger(_ClaimsCountBeforeTheyAreWritten)),
    # More.
    Fault("open claims of the earlier owner forgotten", {"adopt": _open_claims_forgotten}),
    Fault("evidence from plans that are only logged", {"evidence": _evidence_from_logged_plans}),
    Fault("a lost partition is kept", world=_with_ledger(_LostButKept)),
    Fault("another client's commit ignored", {"adopt": _foreign_commit_ignored}),
    Fault(
        "an expired record's place in the last plan ignored",
        {"adopt": _place_in_the_last_plan_ignored},
        setting=Setting(1, 1, 5, expiry=True),
    ),
)

UNLIKELY_FAULTS = (
    (
        Fault("a stream leaves what it is still owed of a cut range", {"claim": _owed_part_left}, setting=REREADING),
        CUT_RANGE,
    ),
    (
        Fault("adoption that writes the durable plan instead of the logged one", {"adopt": _adopted_with_the_durable_plan}),
        RESTORED_CHECKPOINT,
    ),
    (
        Fault("a plan claimed by a run that has not held the partition since", {"claim": _claimed_by_another_run}),
        TWO_DRIVERS,
    ),
    (
        Fault("a partition taken although its record has a newer plan of this stream", {"adopt": _newer_plan_overlooked}),
        OWING_ITSELF,
    ),
    (
        Fault("a range owed to oneself is never settled", world=_with_ledger(_OwedToItselfForEver)),
        OWED_TO_ONESELF,
    ),
    (
        Fault("a confirmation without an answer is taken for a refused one", world=_with_ledger(_UnansweredConfirmationIgnored)),
        LATE_CONFIRMATION,
    ),
)
"""Those that take an unlikely history to show, and such a history."""
