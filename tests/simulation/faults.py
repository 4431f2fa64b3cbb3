"""Defines faults: each is a mistake that the hand-off could make and that the simulation must detect.

A fault replaces one of the rules that the ledger uses, or one step of the ledger or of the world; everything else stays real.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

from spark_groupsource.errors import CommitError, CommitOutcomeUnknown, GenerationChanged
from spark_groupsource.group.ledger import Claims, Ledger
from spark_groupsource.group.survey import BrokersAnswer
from spark_groupsource.handoff import rules as handoff
from spark_groupsource.handoff.commit_record import CommitRecord
from spark_groupsource.handoff.rules import HeldClaims, Stream
from spark_groupsource.partition import OffsetRange, Ranges, TopicPartition
from tests.simulation import counterexamples, mistaken
from tests.simulation.checkpoint import cut_off
from tests.simulation.driver import LOOK_S, Driver
from tests.simulation.setting import Setting
from tests.simulation.world import Action, World
from tests.support.held_survey import HeldSurvey

_USED_IN = {
    "evidence": "evidence",
    "alive": "evidence",
    "adopt": "adopting",
    "believed": "closing",
    "with_room": "held_ranges",
}
"""The modules of `group` that use a rule, where that is not the ledger."""


@dataclass(frozen=True)
class Fault:
    """A mistake. `rules` replace those in handoff/rules.py where the ledger and its parts use them."""

    name: str
    rules: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    ledger: type[Ledger] = Ledger
    driver: type[Driver] = Driver
    survey: type[HeldSurvey] = HeldSurvey
    """These take the places of the real ones in every world."""
    world: type[World] = World
    setting: Setting | None = None
    """Where to look for it, when that takes more than a moment everywhere."""
    shown_as: Collection[str] = ()
    """The names of the violations that show it. Empty: any may."""
    reports: bool = False
    """Whether it takes reports that plans are durable."""
    history: Sequence[Action] = ()
    """What shows it, if that is unlikely to be drawn."""
    seed: int = 0
    """A history that shows it today. The search begins there, and looks at all the others if it shows nothing any more."""

    @contextmanager
    def seeded(self) -> Iterator[None]:
        """Make the ledger make this mistake inside the `with` block."""
        with ExitStack() as stack:
            stack.enter_context(patch.multiple(World, ledger_type=self.ledger, driver_type=self.driver, survey_type=self.survey))
            for rule, mistaken in self.rules.items():
                stack.enter_context(patch(f"spark_groupsource.group.{_USED_IN.get(rule, 'ledger')}.{rule}", mistaken))
            yield


# Mistakes in the ledger's steps.


class _NoAdoption(Ledger):
    def _adopt(self, found: BrokersAnswer) -> None:
        with patch.object(self._commits, "commit", lambda _: None):
            super()._adopt(found)


class _AdoptedAlthoughRefused(_NoAdoption):
    def _adopt(self, found: BrokersAnswer) -> None:
        try:
            Ledger._adopt(self, found)
        except CommitError:
            super()._adopt(found)


class _LostButKept(Ledger):
    def lost(self, partitions: frozenset[TopicPartition]) -> None:
        self._draining -= partitions


class _OwedToItselfForEver(Ledger):
    def _settle(self) -> None:
        with patch.object(self, "_stream", replace(self._stream, name="-", durable=-1)):
            super()._settle()


class _RereadAlthoughHeld(Ledger):
    def to_reread(self) -> dict[TopicPartition, tuple[OffsetRange, ...]]:
        self._held_ranges.policy = HeldClaims(reread_after_s=0)
        return super().to_reread()


class _DeathsCountFromPlanToPlan(Ledger):
    """Counts the time from plan to plan, and ignores the answers in between."""

    def idle(self) -> None:
        held = self._held_ranges
        before = held._dead_since, held._noted_at
        super().idle()
        held._dead_since, held._noted_at = before

    def to_reread(self) -> dict[TopicPartition, tuple[OffsetRange, ...]]:
        self._held_ranges.note(self._records, self._stream, self._clock(), self._protected(self._records))
        return super().to_reread()


class _UnansweredConfirmationIgnored(Ledger):
    def _confirm_if_possible(self, partitions: Iterable[TopicPartition]) -> None:
        with suppress(CommitError):
            self._write(self._confirmed(partitions))


class _ReadBackAndGoesOn(Ledger):
    """Learns the outcome of an unanswered commit from the group's commits, and stays the same member."""

    def _write(self, records: Mapping[TopicPartition, CommitRecord]) -> None:
        try:
            super()._write(records)
        except CommitOutcomeUnknown:
            held = self.commits_of(records)
            if any(held[where] != record for where, record in records.items()):
                raise GenerationChanged("not written") from None
            self._note_written(records)


class _ClaimsCountBeforeTheyAreWritten(Ledger):
    def claim(self, stream: Stream) -> Claims:
        try:
            return super().claim(stream)
        except CommitError:
            return Claims(granted={where: mistaken.planned(stream, where) for where in stream.ranges}, waiting=frozenset())


class _JoinsAgainWithItsRecords(Driver):
    def do_rejoin(self) -> bool:
        if not self.deaf or self.draining or not self.known:
            return False
        self._leave_for_a_moment()
        return True


# Mistakes with a commit that is accepted in part.


class _PartlyAccepted(Ledger):
    """Learns that a rejected commit was accepted for some partitions."""

    def _accepted(self, records: Mapping[TopicPartition, CommitRecord]) -> bool:
        return any(held == records[where] for where, held in self.commits_of(records).items())


class _PartlyAcceptedCounts(_PartlyAccepted):
    def _write(self, records: Mapping[TopicPartition, CommitRecord]) -> None:
        try:
            super()._write(records)
        except GenerationChanged:
            if not self._accepted(records):
                raise
            self._note_written(records)


class _PartlyAcceptedForgotten(_PartlyAccepted):
    """Treats the plan as if nothing of it was claimed."""

    def claim(self, stream: Stream) -> Claims:
        self._wrote_part = False
        try:
            return super().claim(stream)
        except GenerationChanged:
            if not self._wrote_part:
                raise
            return Claims(granted={}, waiting=frozenset())

    def _write(self, records: Mapping[TopicPartition, CommitRecord]) -> None:
        try:
            super()._write(records)
        except GenerationChanged:
            self._wrote_part = self._accepted(records)
            raise


# Mistakes with reports that a plan is durable.


class _EarlyReportKept(Ledger):
    def claim(self, stream: Stream) -> Claims:
        early = self._closing._report
        claims = super().claim(stream)
        self._closing._report = early
        return claims


class _ClosedFromMemory(Ledger):
    """Writes the records from memory, even if the group's commits have changed."""

    _kept: Mapping[TopicPartition, CommitRecord] = {}

    def _keep(self, plan: int) -> None:
        durable = replace(self._stream, durable=plan)
        self._kept = {where: handoff.confirm(record, durable) for where, record in self._records.items()}

    def close_reported(self) -> None:
        if self._kept_is_due():
            kept, self._kept = self._kept, {}
            self._write({where: record for where, record in kept.items() if where in self._records})
        super().close_reported()

    def _kept_is_due(self) -> bool:
        return bool(self._kept)


class _ClosedAsWhenReported(_ClosedFromMemory):
    def report_durable(self, stream: str, plan: int) -> None:
        super().report_durable(stream, plan)
        if (stream, plan) == (self._stream.name, self._closing._claimed):
            self._keep(plan)


class _ClosedAsWhenClaimed(_ClosedFromMemory):
    def claim(self, stream: Stream) -> Claims:
        claims = super().claim(stream)
        self._keep(stream.logged)
        return claims

    def _kept_is_due(self) -> bool:
        claimed = self._closing._claimed
        return claimed is not None and self._closing._report == (self._stream.name, claimed)


class _RefusedCloseCounts(Ledger):
    def close_reported(self) -> None:
        super().close_reported()
        if self._closing._unclosed:
            self._records |= self._confirmed(self._records)
            self._closing._unclosed = False


class _RefusedCloseForgotten(Ledger):
    def close_reported(self) -> None:
        super().close_reported()
        self._closing._unclosed = False


class _UnansweredCloseIgnored(Ledger):
    def close_reported(self) -> None:
        with suppress(CommitError):
            super().close_reported()


class _NothingClosedInADrain(Ledger):
    def close_reported(self) -> None:
        if not self._draining:
            super().close_reported()


class _ReleasedWithoutLooking(Ledger):
    def draining(self, partitions: frozenset[TopicPartition]) -> None:
        with patch.object(self._closing, "_report", None):
            super().draining(partitions)

    def released(self, partitions: frozenset[TopicPartition]) -> None:
        with patch.object(self._closing, "_report", None):
            super().released(partitions)


class _ReportsWhatIsLogged(Driver):
    @property
    def durable_plan(self) -> int:
        return self.checkpoint.logged


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


class _TakesWhatIsThere(Driver):
    def of_the_planned_log(self) -> Ranges:
        ranges = self.ranges
        for where in self.plan.epoch_of:
            ranges = cut_off(ranges, where, self.world.ends[where.partition])
        return ranges


class _ValidatesNothingAtFirst(Driver):
    def diverging(self, records: Mapping[TopicPartition, CommitRecord]) -> dict[TopicPartition, int]:
        return super().diverging(records) if self.batch > self.checkpoint_at_start else {}

    def do_begin(self) -> bool:
        self.checkpoint_at_start = self.batch
        return super().do_begin()


class _SentAgain(World):
    """Resends an unanswered commit in the background, with its old generation, and counts it as rejected."""

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


class _DrainsForOneThatDrainsForIt(Ledger):
    def in_flight(self, partitions: frozenset[TopicPartition]) -> bool:
        self._blocked_at = None
        return super().in_flight(partitions)


RESTORED = Setting(streams=2, partitions=2, records=5, restores=True)
RECREATED = Setting(streams=2, partitions=2, records=5, recreations=True)
ACCEPTED_IN_PART = Setting(streams=2, partitions=2, records=1, protocol="consumer", fencing="part")
FALLING = Setting(streams=2, partitions=2, records=5, falls=3)
REREADING = Setting(streams=2, partitions=2, records=5, held_claims=HeldClaims(reread_after_s=0))

FAULTS = (
    # Mistakes in the rules of docs/design.md that any history may show.
    Fault("owed list dropped at acquisition", {"adopt": mistaken.adopted_with(owed=())}, seed=213),
    Fault("position from the committed offset", {"adopt": mistaken.position_from_committed_offset}),
    Fault("owed entry dropped without evidence", {"settle": mistaken.owed_dropped_without_evidence}, seed=213),
    Fault("no ownership check at claim", {"claim": mistaken.claimed_with(owned=True, owned_since_planned=True)}),
    Fault("replay of everything", {"claim": mistaken.everything_replayed}),
    Fault("a range left out before that was stable", {"claim": mistaken.left_out_too_early}, seed=512),
    Fault("confirmation before durable", {"confirm": mistaken.confirmed_before_durable}, seed=24),
    Fault("claim before the offset log", driver=_ClaimedBeforeTheOffsetLog),
    Fault("no adoption", ledger=_NoAdoption),
    # Both ends of a range.
    Fault("the new owner starts one too early", {"adopt": mistaken.adopted_off_by(-1)}),
    Fault("the new owner starts one too late", {"adopt": mistaken.adopted_off_by(1)}),
    Fault("the next plan starts one too early", {"claim": mistaken.next_off_by(-1)}),
    Fault("the next plan starts one too late", {"claim": mistaken.next_off_by(1)}),
    Fault("a task reads one too few at the start", world=_reading(lambda r: OffsetRange(r.start + 1, r.end))),
    Fault("a task reads one too few at the end", world=_reading(lambda r: OffsetRange(r.start, r.end - 1))),
    Fault("a task reads one too many at the start", world=_reading(lambda r: OffsetRange(max(0, r.start - 1), r.end))),
    # Ranges that are read in place of another stream.
    Fault(
        "a reread range is still owed",
        {"claim": mistaken.claimed_as(mistaken.reread_range_still_owed)},
        setting=REREADING,
        seed=79,
    ),
    Fault(
        "a reread range is not written to open",
        {"claim": mistaken.claimed_as(mistaken.only_new_in_open)},
        setting=REREADING,
        seed=79,
    ),
    Fault("a range is reread although it is to be held", ledger=_RereadAlthoughHeld),
    # A topic that is recreated.
    Fault(
        "what an earlier topic's record says is believed", {"adopt": mistaken.earlier_topic_believed}, setting=RECREATED, seed=45
    ),
    Fault(
        "ranges of an earlier topic are still held",
        {"record_after": mistaken.still_held_of_an_earlier_topic},
        setting=RECREATED,
        seed=229,
    ),
    Fault(
        "a new topic is read from the position in the earlier one",
        {"record_after": mistaken.position_of_an_earlier_topic},
        setting=RECREATED,
    ),
    Fault("a plan of an earlier topic waits to be claimed", driver=_ClaimsWhatIsGone, setting=RECREATED),
    # A log that is truncated and grows again.
    Fault(
        "the leader epoch of a position is forgotten at adoption", {"adopt": mistaken.adopted_with(epoch=None)}, setting=FALLING
    ),
    Fault("positions are not validated at the first plan of a run", driver=_ValidatesNothingAtFirst, setting=FALLING),
    Fault("a task takes records of another log than was planned", driver=_TakesWhatIsThere, setting=FALLING, seed=155),
    Fault(
        "a log that was cut is read on at its end",
        {"record_after": mistaken.read_on_at_the_end_of_a_cut_log},
        setting=FALLING,
    ),
    Fault("claims above a cut are still held", {"record_after": mistaken.still_held_above_the_cut}, setting=FALLING),
    Fault("a claim leaves the leader epoch as it was", {"claim": mistaken.with_the_epoch_before}, setting=FALLING),
    # A checkpoint that is restored from an older copy.
    Fault(
        "earlier owners of a partition are forgotten",
        {"adopt": mistaken.adopted_with(past=None)},
        setting=RESTORED,
        shown_as={"a restored checkpoint goes on"},
        seed=14471,
    ),
    Fault(
        "nobody checks the group before joining",
        {"refuse_behind": lambda *_: None},
        setting=RESTORED,
        shown_as={"a restored checkpoint goes on"},
        seed=2019,
    ),
    # Reports that a plan is durable.
    Fault("a report before the commit log", driver=_ReportsWhatIsLogged, reports=True),
    Fault("a report of a newer plan closes the newest claims", {"believed": mistaken.believed_if(operator.gt)}, reports=True),
    Fault("a report of an older plan closes the newest claims", {"believed": mistaken.believed_if(operator.lt)}, reports=True),
    Fault(
        "a report of another stream closes the newest claims",
        {"believed": mistaken.believed_if(operator.eq, own=False)},
        reports=True,
    ),
    Fault("a report is believed that came before the claims", ledger=_EarlyReportKept, reports=True),
    Fault(
        "records closed as they were when the report came",
        ledger=_ClosedAsWhenReported,
        shown_as={"doubled", "let slip"},
        reports=True,
        seed=5,
    ),
    Fault("claims count as closed although that was refused", ledger=_RefusedCloseCounts, reports=True, seed=304),
    Fault("a refused close is not tried again", ledger=_RefusedCloseForgotten, reports=True, seed=926),
    Fault("a report closes nothing", {"believed": lambda *_: False}, reports=True),
    Fault("a report closes nothing while partitions drain", ledger=_NothingClosedInADrain, reports=True),
    Fault("partitions are given back without a look at the reports", ledger=_ReleasedWithoutLooking, reports=True, seed=105),
    # Commits.
    Fault("a commit sent again after an unknown outcome", world=_SentAgain),
    Fault("a commit without an answer is read back, and its member goes on", ledger=_ReadBackAndGoesOn, seed=60),
    Fault("adoption counts although it was refused", ledger=_AdoptedAlthoughRefused, seed=188),
    Fault("claims count although they were refused", ledger=_ClaimsCountBeforeTheyAreWritten),
    # Streams that are alive, records that are full, records of the next version.
    Fault(
        "a range is taken from a stream that is alive",
        {"alive": lambda *_: frozenset()},
        setting=replace(REREADING, partitions=3, records=8),
        shown_as={"taken from a live stream"},
        seed=675,
    ),
    Fault(
        "a claim without room for its adoption",
        {"with_room": lambda _, ranges: ranges},
        setting=Setting(streams=3, partitions=1, records=5, room=1),
        shown_as={"no room"},
        seed=567,
    ),
    Fault(
        "a record of the next version is taken for another client's",
        {"adopt": mistaken.newer_is_foreign(handoff.adopt), "claim": mistaken.newer_is_foreign(handoff.claim)},
        setting=Setting(streams=2, partitions=2, records=5, upgrades=True),
        shown_as={"doubled", "let slip", "claimed twice"},
        seed=827,
    ),
    # Answers about partitions that are to be adopted.
    Fault(
        "a late answer of an earlier ownership is believed",
        survey=mistaken.LateAnswersBelieved,
        setting=Setting(streams=2, partitions=1, records=5),
        shown_as={"doubled", "let slip", "claimed twice", "lost"},
    ),
    Fault(
        "a member that joins again keeps the records that it had",
        driver=_JoinsAgainWithItsRecords,
        setting=Setting(streams=2, partitions=2, records=5, protocol="consumer", lost_answers=True),
        shown_as={"doubled", "let slip", "claimed twice", "lost", "an answer changed"},
    ),
    # More.
    Fault("open claims of the earlier owner forgotten", {"adopt": mistaken.open_claims_forgotten}, seed=213),
    Fault("evidence from plans that are only logged", {"evidence": mistaken.evidence_from_logged_plans}, seed=1212),
    Fault("a lost partition is kept", ledger=_LostButKept),
    Fault("another client's commit ignored", {"adopt": mistaken.foreign_commit_ignored}, seed=1091),
    Fault(
        "an expired record's place in the last plan ignored",
        {"adopt": mistaken.place_in_the_last_plan_ignored},
        setting=Setting(1, 1, 5, expiry=True),
    ),
)

UNLIKELY_FAULTS = (
    Fault(
        "a stream that lived between two plans counts as dead all the time",
        ledger=_DeathsCountFromPlanToPlan,
        setting=replace(REREADING, held_claims=HeldClaims(reread_after_s=20 * LOOK_S)),
        shown_as={"reread too early"},
        history=counterexamples.LIVED_BETWEEN_TWO_PLANS,
    ),
    Fault(
        "a stream that died between two plans counts as dead since the later one",
        ledger=_DeathsCountFromPlanToPlan,
        setting=replace(REREADING, held_claims=HeldClaims(reread_after_s=20 * LOOK_S)),
        shown_as={"reread too late"},
        history=counterexamples.DIED_BETWEEN_TWO_PLANS,
    ),
    Fault(
        "two members drain for each other",
        ledger=_DrainsForOneThatDrainsForIt,
        setting=Setting(streams=2, partitions=4, records=1),
        shown_as={"stuck"},
        history=counterexamples.DRAINING_FOR_EACH_OTHER,
    ),
    Fault(
        "a replayed plan leaves what a record of the next version owes to it",
        {"claim": mistaken.newer_is_foreign(handoff.claim)},
        setting=Setting(streams=2, partitions=1, records=1, upgrades=True),
        shown_as={"an answer changed"},
        history=counterexamples.OWED_BY_THE_NEXT_VERSION,
    ),
    Fault(
        "adoption that writes the durable plan instead of the logged one",
        {"adopt": mistaken.adopted_with_the_durable_plan},
        history=counterexamples.RESTORED_CHECKPOINT,
    ),
    Fault(
        "a plan that the group knows as done is replayed without its rows",
        {rule: mistaken.lacking_commit_overlooked(getattr(handoff, rule)) for rule in ("refuse_behind", "adopt", "claim")},
        shown_as={"an answer changed"},
        history=counterexamples.LOST_COMMIT,
    ),
    Fault(
        "what earlier owners of a partition had done is forgotten",
        {rule: mistaken.only_the_owner_says_what_is_done(getattr(handoff, rule)) for rule in ("adopt", "settle")},
        shown_as={"an answer changed"},
        history=counterexamples.LOST_COMMIT_OF_AN_EARLIER_OWNER,
    ),
    Fault(
        "a plan claimed by a run that has not held the partition since",
        {"claim": mistaken.claimed_with(owned_since_planned=True)},
        history=counterexamples.TWO_DRIVERS,
    ),
    Fault(
        "a partition taken although its record has a newer plan of this stream",
        {"adopt": mistaken.newer_plan_overlooked},
        history=counterexamples.OWING_ITSELF,
    ),
    Fault(
        "a range owed to oneself is never settled",
        {"confirm": mistaken.only_open_ranges_closed},
        ledger=_OwedToItselfForEver,
        history=counterexamples.OWED_TO_ONESELF,
    ),
    Fault(
        "a confirmation without an answer is taken for a refused one",
        ledger=_UnansweredConfirmationIgnored,
        history=counterexamples.LATE_CONFIRMATION,
    ),
    Fault(
        "a close without an answer is taken for a refused one",
        ledger=_UnansweredCloseIgnored,
        shown_as={"doubled"},
        history=counterexamples.LATE_CLOSE,
    ),
    Fault(
        "claims that were accepted in part count as accepted",
        ledger=_PartlyAcceptedCounts,
        setting=ACCEPTED_IN_PART,
        shown_as={"doubled"},
        history=counterexamples.PARTLY_ACCEPTED,
    ),
    Fault(
        "claims that were accepted in part are forgotten",
        ledger=_PartlyAcceptedForgotten,
        setting=ACCEPTED_IN_PART,
        shown_as={"let slip", "lost"},
        history=counterexamples.PARTLY_ACCEPTED,
    ),
    Fault(
        "records closed as they were when they were claimed",
        ledger=_ClosedAsWhenClaimed,
        shown_as={"doubled"},
        history=counterexamples.CAME_BACK,
    ),
    Fault(
        "a reported plan is still owed to its own stream",
        {"confirm": mistaken.only_open_ranges_closed},
        shown_as={"not closed"},
        history=counterexamples.CAME_BACK,
    ),
)
"""Those that take an unlikely history to show."""
