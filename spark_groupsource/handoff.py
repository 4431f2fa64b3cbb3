"""The rules of the hand-off, as pure functions: who reads a range, whatever dies when.

The group's commit record of a partition is a register that only a member of the current generation can write. A stream
decides from that record, and from what its own checkpoint says, and from nothing else:

    acquired    `adopt`     on_assign: where to read on, and the record to write at once in the stream's own name
    planned     (planner)   nothing is claimed yet, Spark may throw the plan away
    claimed     `claim`     the plan is in Spark's offset log: take the range, leave it to others, or wait
    confirmed   `confirm`   the plan is in Spark's commit log: the claim is closed
    settled     `settle`    a range owed by another stream has been confirmed by it

docs/handoff.md explains why each rule is as it is. The simulation in tests/simulation drives these very functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from .commit_record import CommitRecord, Foreign, GroupCommit, OpenRange, OwedRange
from .errors import CheckpointBehindGroup
from .partition import OffsetRange, TopicPartition

Evidence = Mapping[str, int]
"""For each stream, the newest plan that some record of the group shows to be done."""


@dataclass(frozen=True)
class Stream:
    """What a stream knows of itself: its name, and what its checkpoint says.

    `logged` is the newest plan in Spark's offset log and `durable` the newest in its commit log (-1: none); `ranges` are those
    of plan `logged`. In one checkpoint lineage `durable` is `logged` or `logged - 1`.
    """

    name: str
    logged: int = -1
    durable: int = -1
    ranges: Mapping[TopicPartition, OffsetRange] = field(default_factory=dict)


def evidence(commits: Iterable[GroupCommit]) -> dict[str, int]:
    """Collect what the group's records prove to be done."""
    done: dict[str, int] = {}
    for commit in commits:
        if isinstance(commit, CommitRecord):
            done[commit.stream] = max(commit.done, done.get(commit.stream, -1))
    return done


def _still_owed(owed: Iterable[OwedRange], done: Evidence) -> tuple[OwedRange, ...]:
    return tuple(entry for entry in owed if done.get(entry.stream, -1) < entry.plan)


def adopt(
    stream: Stream, partition: TopicPartition, commit: GroupCommit, *, starting_offset: int, done: Evidence
) -> CommitRecord:
    """Decide the record of a partition that the group has just given to this stream.

    `starting_offset` is where to start without a commit and without a place in the stream's last plan. `done` is the
    evidence of other streams' records. The result is written to the group unless it is what the group holds already.

    Raises:
        CheckpointBehindGroup: the group knows plans of this stream that its checkpoint does not.
    """
    known = {**done, stream.name: stream.durable}
    if isinstance(commit, CommitRecord) and (newest := _newest_plan(stream, commit)) > stream.logged:
        raise _behind(stream, partition, newest)
    match commit:
        case None:
            return _adopt_unrecorded(stream, partition, starting_offset)
        case Foreign(offset):
            return CommitRecord(stream=stream.name, logged=stream.logged, done=stream.durable, next=offset)
        case CommitRecord() if commit.stream != stream.name:
            left_open = (OwedRange(commit.stream, commit.logged, *held) for held in commit.open)
            return CommitRecord(
                stream=stream.name,
                logged=stream.logged,
                done=stream.durable,
                next=commit.next,
                owed=_still_owed((*commit.owed, *left_open), known),
            )
        case CommitRecord():
            return settle(confirm(commit, stream), known)


def _newest_plan(stream: Stream, commit: CommitRecord) -> int:
    """The newest plan of this stream that the record tells of: its own, or one that others hold a range for."""
    written = [commit.logged] if commit.stream == stream.name else []
    return max((*written, *(entry.plan for entry in commit.owed if entry.stream == stream.name)), default=-1)


def _adopt_unrecorded(stream: Stream, partition: TopicPartition, starting_offset: int) -> CommitRecord:
    last = stream.ranges.get(partition, OffsetRange(starting_offset, starting_offset))
    # The sink may have had the last plan's range: it is read in that plan again, or not at all.
    unconfirmed = (OpenRange(*last),) if last.size and stream.durable < stream.logged else ()
    return CommitRecord(stream=stream.name, logged=stream.logged, done=stream.durable, next=last.end, open=unconfirmed)


def _behind(stream: Stream, partition: TopicPartition, newest: int) -> CheckpointBehindGroup:
    return CheckpointBehindGroup(
        f"{partition}: the group holds plan {newest} of stream {stream.name}, but the newest plan in this query's "
        f"checkpoint is {stream.logged}. The checkpoint was restored from an older copy, or was copied, or a second driver "
        "is running on it. Stop the other driver, or restore the newest checkpoint; to go on from what the group has "
        "committed, start with an empty checkpoint location (records between the two may then reach the sink twice)."
    )


def confirm(record: CommitRecord, stream: Stream) -> CommitRecord:
    """The record once its stream's durable plans are closed; `record` itself when there is nothing to close.

    `n` never rises past a plan that is only logged: that plan's range must stay claimable.
    """
    if not record.open or record.logged > stream.durable:
        return record
    return record.model_copy(update={"open": (), "logged": max(record.logged, stream.durable), "done": stream.durable})


def settle(record: CommitRecord, done: Evidence) -> CommitRecord:
    """The record without the owed ranges that `done` proves to be confirmed; `record` itself when all are still owed."""
    owed = _still_owed(record.owed, done)
    return record if owed == record.owed else record.model_copy(update={"owed": owed})


class Decision(Enum):
    """What a stream does with one range of a plan that it has in its offset log."""

    READ = "read"
    """It is claimed by this plan: read it. Stable: every later attempt finds the same."""
    CLAIM = "claim"
    """Write the verdict's record, then read it."""
    LEAVE = "leave"
    """Another owner reads it. Stable, once the verdict's record (if it has one) is written."""
    WAIT = "wait"
    """The partition is not owned, and nobody has adopted it: look again."""


@dataclass(frozen=True)
class Verdict:
    """A decision, and the record that has to be in the group before it counts."""

    decision: Decision
    write: CommitRecord | None = None


def claim(stream: Stream, partition: TopicPartition, commit: GroupCommit, *, owned: bool, held_since_planned: bool) -> Verdict:
    """Decide the fate of this stream's range of `partition` in plan `stream.logged`; the same live and on a replay.

    `commit` is what the group holds now, and `owned` whether the partition is owned now and has been adopted.
    `held_since_planned`: this very run made the plan, and has owned the partition without a break since. Nobody else may
    claim: another run on the same checkpoint may have left the range out of the plan for good, and so may have an earlier
    attempt of this one, at a time when another stream had the partition. The range must not be empty.

    Raises:
        CheckpointBehindGroup: the group knows plans of this stream that its checkpoint does not.
    """
    offsets = stream.ranges[partition]
    plan = stream.logged
    if isinstance(commit, CommitRecord) and OwedRange(stream.name, plan, *offsets) in commit.owed:
        return Verdict(Decision.READ)
    if isinstance(commit, Foreign) or (commit is not None and commit.stream != stream.name):
        return Verdict(Decision.LEAVE)
    if commit is not None and commit.logged > plan:
        raise _behind(stream, partition, commit.logged)
    if commit is not None and commit.logged == plan:
        return Verdict(Decision.READ if commit.holds_open(offsets) else Decision.LEAVE)
    if commit is None or not owned:
        return Verdict(Decision.WAIT)
    if not held_since_planned:
        # Nothing is lost: the position stays where it is, and the next plan starts there.
        return Verdict(Decision.LEAVE)
    claimed = {"logged": plan, "done": stream.durable, "open": (OpenRange(*offsets),), "next": offsets.end}
    return Verdict(Decision.CLAIM, commit.model_copy(update=claimed))
