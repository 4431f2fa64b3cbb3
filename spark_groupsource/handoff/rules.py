"""Implements the hand-off's rules as pure functions of a commit record and a stream's own checkpoint.

    refuse_behind               rejects a checkpoint that is missing a plan or a commit that is in the group's records
    adopt                       returns the record to write when the group assigns a partition
    claim                       decides which of a logged plan's ranges this stream reads
    confirm                     closes the open ranges of a durable plan
    has_claims                  returns whether a stream has claims in a partition
    settle                      drops owed ranges that their stream has confirmed
    owed_to_others, claimable   return ranges that this stream may take over from another one
    cut_back                    drops claims above the place at which a log was truncated

The package's docstring describes the life of a partition step by step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from spark_groupsource.errors import CheckpointBehindGroup, CommitRecordUnreadable
from spark_groupsource.handoff.commit_record import (
    MAX_METADATA_BYTES,
    PAST_STREAMS,
    VERSION,
    CommitRecord,
    Foreign,
    GroupCommit,
    OpenRange,
    OtherFormat,
    OwedRange,
    PastStream,
    fitting,
    merged,
    position_of,
)
from spark_groupsource.partition import OffsetRange, Ranges, TopicPartition
from spark_groupsource.version import another_version

Evidence = Mapping[str, int]
"""Each stream's newest plan that some record in the group shows as done."""


@dataclass(frozen=True)
class Stream:
    """A stream as its own checkpoint describes it."""

    name: str
    logged: int = -1
    """The newest plan in Spark's offset log. -1: none."""
    durable: int = -1
    """The newest plan in Spark's commit log. -1: none. It is `logged` or `logged - 1`."""
    ranges: Ranges = field(default_factory=dict)
    """The ranges of plan `logged`. Each partition's last range starts at its position and may be empty."""
    topics: Mapping[str, str] = field(default_factory=dict)
    """The ids of the topics in `ranges`, where known."""
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Each partition's leader epoch when plan `logged` was made: no record in its ranges has a later one."""


@dataclass(frozen=True)
class HeldClaims:
    """The user's choice for ranges that other streams claimed but did not confirm (`heldClaims`)."""

    reread_after_s: float | None = None
    """How many seconds to wait before this stream reads a held range in its own plan. `None`: never."""
    chosen: bool = True
    """Whether the user has set the option. If not, a stream with a new checkpoint warns about earlier claims."""


HOLD = HeldClaims()

MOST_LISTED = 20
"""The maximum number of partitions that one error lists."""


def evidence(commits: Iterable[GroupCommit]) -> dict[str, int]:
    """Return each stream's newest plan that the group's records show as done.

    A record also covers the plans of the partition's earlier owners, which may no longer have records of their own.
    """
    done: dict[str, int] = {}
    for commit in commits:
        if isinstance(commit, CommitRecord | OtherFormat):
            done[commit.stream] = max(commit.done, done.get(commit.stream, -1))
        if isinstance(commit, CommitRecord):
            for earlier in commit.past or ():
                done[earlier.stream] = max(earlier.done, done.get(earlier.stream, -1))
    return done


def alive(
    commits: Mapping[TopicPartition, GroupCommit],
    owned: Collection[TopicPartition],
    abandoned: Collection[TopicPartition] = frozenset(),
) -> frozenset[str]:
    """Return the streams that are running, according to the group's records.

    A stream is alive if it wrote the record of a partition that this member does not own, and its member is still in the group.
    If it were dead, the group would have assigned the partition to another member, which would have adopted it. A partition that
    another client owns keeps its record, because only this source adopts. A stream that owns no partition counts as dead.

    Args:
        commits: The records of every partition that this member subscribes to. It could not adopt any other.
        owned: The partitions that this member has, whether or not it has adopted them yet.
        abandoned: Partitions whose record was written by a member that is known to have left the group.
    """
    return frozenset(
        commit.stream
        for partition, commit in commits.items()
        if isinstance(commit, CommitRecord | OtherFormat) and partition not in owned and partition not in abandoned
    )


def _still_owed(owed: Iterable[OwedRange], done: Evidence) -> tuple[OwedRange, ...]:
    """Return the owed ranges whose plans are not known to be done."""
    return tuple(entry for entry in owed if done.get(entry.stream, -1) < entry.plan)


def recreated(stream: Stream, partition: TopicPartition, commit: GroupCommit, topic_id: str | None) -> bool:
    """Return whether a partition's known position belongs to an earlier topic with the same name.

    Kafka deletes a deleted topic's commits after some time. Even then, the stream's last plan still has the earlier topic's id.
    Another client's commit is taken to be for the new topic, because a user may have reset the offsets for it.

    Args:
        stream: The stream that adopts the partition.
        partition: The partition.
        commit: The group's commit for it.
        topic_id: The topic's current id, if known.
    """
    return _differ(_known_id(stream, partition, commit), topic_id)


def _known_id(stream: Stream, partition: TopicPartition, commit: GroupCommit) -> str | None:
    """Return the topic id from the commit, or else from the stream's last plan."""
    match commit:
        case Foreign() | OtherFormat():
            return None
        case CommitRecord() if commit.topic_id is not None or commit.stream != stream.name:
            return commit.topic_id
        case _:
            return stream.topics.get(partition.topic)


def _differ(topic_id: str | None, other: str | None) -> bool:
    """Return whether both ids are known and differ."""
    return topic_id is not None and other is not None and topic_id != other


def adopt(
    stream: Stream,
    partition: TopicPartition,
    commit: GroupCommit,
    *,
    starting_offset: int,
    done: Evidence,
    topic_id: str | None = None,
    cluster_id: str | None = None,
    member: str | None = None,
) -> CommitRecord:
    """Return the record for a partition that the group has just assigned to this stream.

    The caller writes the record to the group, unless the group already has it.

    Args:
        stream: The stream that adopts the partition.
        partition: The partition.
        commit: The group's commit for it.
        starting_offset: Where to start if there is neither a commit nor a position in the stream's last plan, or if the topic
            was deleted and recreated.
        done: Each stream's newest plan that the group's records show as done.
        topic_id: The topic's current id, if known.
        cluster_id: The cluster's id, if known.
        member: The adopting member's mark (`commit_record.mark_of`).

    Raises:
        CheckpointBehindGroup: As in `refuse_behind`.
        CommitRecordUnreadable: The record is in a format that this version cannot read.
    """
    if isinstance(commit, OtherFormat):
        raise unreadable(partition, commit)
    known = {**done, stream.name: stream.durable}
    refuse_behind(stream, {partition: commit})
    if recreated(stream, partition, commit, topic_id):
        # Drop the earlier topic's offsets. Otherwise the new topic's records would be held or skipped.
        adopted = CommitRecord(stream=stream.name, logged=stream.logged, done=stream.durable, next=starting_offset)
    else:
        adopted = _adopt(stream, partition, commit, starting_offset, known)
    written = {
        "topic_id": topic_id or _known_id(stream, partition, commit),
        "cluster_id": cluster_id or adopted.cluster_id,
        "member": member,
        "past": _past(stream, commit, known),
    }
    return fitting(adopted.model_copy(update=written), MAX_METADATA_BYTES)


def _past(stream: Stream, commit: GroupCommit, known: Evidence) -> tuple[PastStream, ...] | None:
    """Return the streams that owned the partition before `stream`, with their newest plans."""
    if not isinstance(commit, CommitRecord):
        return None
    streams = (*(commit.past or ()), PastStream(commit.stream, commit.logged, commit.done))
    newest = {earlier.stream: earlier for earlier in streams if earlier.stream not in {stream.name, commit.stream}}
    if commit.stream != stream.name and commit.logged >= 0:
        newest[commit.stream] = streams[-1]
    return _with_done_plans(tuple(newest.values())[-PAST_STREAMS:] or None, known)


def _with_done_plans(past: tuple[PastStream, ...] | None, done: Evidence) -> tuple[PastStream, ...] | None:
    """Return the earlier owners, each with its newest plan that is now known to be done."""
    if past is None:
        return None
    return tuple(earlier._replace(done=max(earlier.done, min(earlier.plan, done.get(earlier.stream, -1)))) for earlier in past)


def _adopt(
    stream: Stream, partition: TopicPartition, commit: CommitRecord | Foreign | None, starting_offset: int, known: Evidence
) -> CommitRecord:
    """Return the adopted record for a partition whose topic was not recreated."""
    match commit:
        case None:
            return _adopt_unrecorded(stream, partition, starting_offset)
        case Foreign(offset):
            return CommitRecord(stream=stream.name, logged=stream.logged, done=stream.durable, next=offset)
        case CommitRecord() if commit.stream != stream.name:
            return CommitRecord(
                stream=stream.name,
                logged=stream.logged,
                done=stream.durable,
                next=commit.next,
                epoch=commit.epoch,
                owed=merged(_still_owed((*commit.owed, *commit.open_as_owed), known)),
            )
        case CommitRecord():
            return settle(confirm(commit, stream), known)


def refuse_behind(stream: Stream, commits: Mapping[TopicPartition, GroupCommit]) -> None:
    """Reject a checkpoint that is behind the group's records for its stream.

    Args:
        stream: The stream as the checkpoint describes it.
        commits: The group's commits for any partitions.

    Raises:
        CheckpointBehindGroup: The group has records of a plan that is not in the checkpoint, or records the checkpoint's newest
            plan as done although the checkpoint has no commit for it.
    """
    for partition, commit in commits.items():
        if isinstance(commit, CommitRecord) and (newest := _newest_plan(stream, commit)) > stream.logged:
            raise _behind(stream, partition, newest)
    if any(_lacks_commit(stream, partition, commit) for partition, commit in commits.items()):
        raise _behind_by_a_commit(stream, commits)


def _lacks_commit(stream: Stream, partition: TopicPartition, commit: GroupCommit) -> bool:
    """Return whether the record shows plan `logged` as done, although the checkpoint has the plan only in its offset log.

    Spark's commit log must once have had the plan, because nothing else makes a stream record a plan as done. The claims are
    closed, so a replay would read nothing. If only the commit log's file was lost when its host crashed, the output has the rows.
    If the output was restored together with the checkpoint, it lacks them. The group's records do not show which of the two
    happened, so the user has to decide.

    Only partitions in which the plan has offsets are considered, so the query can continue once their offsets are reset. Plans
    from another cluster, whose ranges are void, and plans without records are ignored. The record no longer shows which part of
    the plan was claimed, so a plan that other streams have read completely is rejected as well. With asynchronous progress the
    driver's program may report plan 0 before Spark has written its commit, and this source makes the query fail at plan 1. Only a
    driver that is killed in the few ms between the two gets this error, and its output has the rows.
    """
    if stream.durable >= stream.logged or not any(offsets.size for offsets in stream.ranges.get(partition, ())):
        return False
    if not isinstance(commit, CommitRecord) or _differ(commit.topic_id, stream.topics.get(partition.topic)):
        return False
    return evidence([commit]).get(stream.name, -1) >= stream.logged


def _newest_plan(stream: Stream, commit: CommitRecord) -> int:
    """Return this stream's newest plan in the record: as the record's writer, for an owed range, or as a past owner."""
    known = (
        (commit.stream, commit.logged),
        *((entry.stream, entry.plan) for entry in commit.owed),
        *((earlier.stream, earlier.plan) for earlier in commit.past or ()),
    )
    return max((plan for name, plan in known if name == stream.name), default=-1)


def _adopt_unrecorded(stream: Stream, partition: TopicPartition, starting_offset: int) -> CommitRecord:
    """Return the adopted record for a partition without a commit. It continues after the last plan or at the starting offset."""
    last = stream.ranges.get(partition, (OffsetRange(starting_offset, starting_offset),))
    # The output may already have the last plan's records, so only a replay of that plan may read them.
    replayed = last if stream.durable < stream.logged else ()
    unconfirmed = tuple(OpenRange(*offsets) for offsets in replayed if offsets.size)
    return CommitRecord(
        stream=stream.name,
        logged=stream.logged,
        done=stream.durable,
        next=last[-1].end,
        epoch=stream.epochs.get(partition),
        open=unconfirmed,
    )


def _behind(stream: Stream, partition: TopicPartition, newest: int) -> CheckpointBehindGroup:
    """Return the error for a checkpoint that is missing plans that are in the group's records."""
    return CheckpointBehindGroup(
        f"{partition}: the group has plan {newest} of stream {stream.name}, but the newest plan in this query's checkpoint is "
        f"{stream.logged} (`plan` in the files in its offsets folder). Either a second driver is using this checkpoint, or the "
        "checkpoint is a copy, or was restored from an older copy. The query fails, because it would otherwise reuse batch ids "
        "that the sink has already recorded for other records, and the sink would ignore the new records. Choose:\n"
        "  - A second driver is using the checkpoint: stop one of the two. Nothing is lost or duplicated.\n"
        "  - A newer checkpoint exists: restore the newest checkpoint. Nothing is lost or duplicated.\n"
        "  - The newest checkpoint is lost: start with an empty checkpoint location, and with a sink that does not mistake the "
        "new batch ids for old ones. The query then continues at the group's positions, after all claimed ranges. Unconfirmed "
        f"ranges from plans up to {newest} remain held for stream {stream.name}; `groupkafka claims` lists them. With "
        "heldClaims=reread, the query will read them (they will be duplicated if they had reached the output). With "
        "heldClaims=hold, it will never read them (they will be missing if they had not). Either way, the state of stateful "
        "operators is lost."
    )


def _behind_by_a_commit(stream: Stream, commits: Mapping[TopicPartition, GroupCommit]) -> CheckpointBehindGroup:
    """Return the error for a checkpoint that is missing only its newest plan's commit."""
    # Put partitions that the user has already reset at the end. If the list is too long, the next start shows the rest.
    lacking = {partition for partition, commit in commits.items() if _lacks_commit(stream, partition, commit)}
    lines = []
    for partition in sorted(stream.ranges, key=lambda partition: (partition not in lacking, partition)):
        ranges = [offsets for offsets in stream.ranges[partition] if offsets.size]
        position = position_of(commits.get(partition))
        shown = "" if position is None else f", and the group's position is {position}"
        if ranges:
            lines.append(f"\n    {partition} {' '.join(map(str, ranges))}{shown}")
    listed = "".join(lines[:MOST_LISTED])
    more = f"\n    and {len(lines) - MOST_LISTED} more, which the next start will list" if len(lines) > MOST_LISTED else ""
    return CheckpointBehindGroup(
        f"According to the group, a micro-batch of stream {stream.name} is finished. This query's checkpoint has the "
        "micro-batch in its offset log (the newest file in the offsets folder), but not in its commit log (commits). Either a "
        "second driver is using this checkpoint, or the checkpoint was restored from an older copy, or its host crashed and "
        "lost the commit. The query fails, because it would otherwise rerun the micro-batch with no rows. The micro-batch "
        f"contains{listed}{more}\n"
        "Choose:\n"
        "  - A second driver is using the checkpoint: stop one of the two, and start the other. Nothing is lost or "
        "duplicated.\n"
        "  - A newer checkpoint exists: restore the newest checkpoint. Nothing is lost or duplicated.\n"
        "  - The newest checkpoint is lost, and the output does not have this micro-batch's rows, because it was restored, "
        "too: stop every query in the group. Set each partition above to the first offset of its ranges: `groupkafka "
        "reset-offsets --topic NAME:PARTITION --to-offset FIRST --execute`. Then start this query from this checkpoint. It "
        "reruns the micro-batch with no rows, and reads the records in its next micro-batch. No row is lost. Rows that other "
        "queries have already read at or after these offsets will be duplicated.\n"
        "  - The newest checkpoint is lost, and the output has the rows: follow the same steps, but set each partition to the "
        "group's position. Nothing is lost or duplicated in the output. The state of stateful operators does not include these "
        "rows."
    )


def unreadable(partition: TopicPartition, commit: OtherFormat) -> CommitRecordUnreadable:
    """Return the error for a record in a format that this version cannot read."""
    return CommitRecordUnreadable(another_version(f"The commit record of {partition}", commit.version, VERSION))


def confirm(record: CommitRecord, stream: Stream) -> CommitRecord:
    """Return the record with durable plans' claims closed, or `record` itself if there are none to close.

    These claims are open ranges, and ranges owed to this stream itself because an earlier run left them open. `logged` never
    rises to a plan that is not durable, because that plan's ranges must remain claimable.

    Args:
        record: a record of this stream.
        stream: the stream.
    """
    settled = settle(record, {stream.name: stream.durable})
    closes = bool(record.open) and record.logged <= stream.durable
    if settled is record and not closes:
        return record
    closed = {"open": (), "claimed_at": None} if closes else {}
    shown = {"logged": max(record.logged, stream.durable), "done": max(record.done, stream.durable)}
    return settled.model_copy(update={**closed, **shown})


def settle(record: CommitRecord, done: Evidence) -> CommitRecord:
    """Return the record without owed ranges whose plans are done, or `record` itself if all are still owed."""
    owed = _still_owed(record.owed, done)
    if owed == record.owed:
        return record
    return record.model_copy(update={"owed": owed, "past": _with_done_plans(record.past, done)})


def cut_back(record: CommitRecord, end: int, epoch: int | None) -> CommitRecord:
    """Return the record for a log that was truncated at `end`, below the position, and may since have grown again.

    The partition continues at `end`. Claims above `end` are dropped. `epoch` is the log's current leader epoch, if known.
    """
    remaining = OffsetRange(0, end)
    open_ = (OffsetRange(*bounds).overlap(remaining) for bounds in record.open)
    owed = ((entry, entry.range.overlap(remaining)) for entry in record.owed)
    return record.model_copy(
        update={
            "next": end,
            "epoch": epoch,
            "open": tuple(OpenRange(*part) for part in open_ if part.size),
            "owed": tuple(entry._replace(start=part.start, end=part.end) for entry, part in owed if part.size),
        }
    )


def has_claims(commit: GroupCommit, stream: str) -> bool:
    """Return whether a partition's commit has ranges that this stream has claimed or that are owed to it."""
    if not isinstance(commit, CommitRecord):
        return False
    return (commit.stream == stream and bool(commit.open)) or any(entry.stream == stream for entry in commit.owed)


def owed_to_others(record: CommitRecord, stream: Stream) -> tuple[OwedRange, ...]:
    """Return the owed ranges that the record's owner may take over (`heldClaims`), in offset order.

    Ranges owed to the owner itself are not included, because its own commit log decides about them.
    """
    return tuple(sorted((entry for entry in record.owed if entry.stream != stream.name), key=lambda entry: entry.start))


def claimable(record: CommitRecord, ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """Return the ranges that the record's owner may claim: the range at its position, and whole ranges owed to other streams."""
    owed = [entry.range for entry in record.owed if entry.stream != record.stream]
    return tuple(offsets for offsets in ranges if offsets.start == record.next or offsets in owed)


@dataclass(frozen=True)
class Verdict:
    """The decision about one partition in a logged plan: which ranges to read, and which record to write first."""

    read: tuple[OffsetRange, ...] = ()
    """The ranges to read, once `write` is in the group.

    This plan never reads any other range. A retry returns the same ranges, or fewer if another stream took one over.
    """
    write: CommitRecord | None = None
    """The record to commit to the group before anything is read."""
    waits: bool = False
    """Whether to decide again later, because this member does not own the partition and no other stream has adopted it yet."""


def claim(
    stream: Stream, partition: TopicPartition, commit: GroupCommit, *, owned: bool, owned_since_planned: bool, now: int
) -> Verdict:
    """Decide which of a partition's ranges in plan `stream.logged` this stream reads, whether the plan is new or replayed.

    Only the run that made the plan and has owned the partition ever since may claim. Another run on the same checkpoint may have
    left the range out of the plan permanently, and so may an earlier attempt in this run while another stream had the partition.

    Args:
        stream: The stream, with at least one non-empty range in the partition.
        partition: The partition.
        commit: The group's current commit for it.
        owned: Whether this member owns the partition now and has adopted it.
        owned_since_planned: Whether this run made the plan and has owned the partition ever since.
        now: Seconds since 1970, recorded with the claim so that people can see how old it is.

    Raises:
        CheckpointBehindGroup: As in `refuse_behind`.
        CommitRecordUnreadable: The record is in a format that this version cannot read, and may contain ranges that are owed to
            this stream.
    """
    if isinstance(commit, OtherFormat):
        raise unreadable(partition, commit)
    ranges = [offsets for offsets in stream.ranges[partition] if offsets.size]
    plan = stream.logged
    if isinstance(commit, CommitRecord) and _differ(commit.topic_id, stream.topics.get(partition.topic)):
        # The plan was made before the topic was deleted and recreated, so its records no longer exist.
        return Verdict()
    refuse_behind(stream, {partition: commit})
    if isinstance(commit, CommitRecord) and (claimed_before := _claimed_for_plan(stream, commit, ranges)):
        return Verdict(read=claimed_before)
    if isinstance(commit, Foreign) or (commit is not None and commit.stream != stream.name):
        # The new owner started at the position before this plan and holds no range for it, so it reads these records itself.
        return Verdict()
    if commit is not None and commit.logged == plan:
        # The plan was claimed here before. Ranges that are no longer open were either confirmed or taken over by another stream,
        # so if this stream claimed them now, they would be read twice.
        return Verdict()
    if commit is None or not owned:
        # Another run of this stream may own the partition and still claim the range. If this run left the range out now, the sink
        # would have the plan without it, and the records would be lost.
        return Verdict(waits=True)
    if not owned_since_planned:
        # Nothing is lost, because the position does not move, and the next plan starts there.
        return Verdict()
    taken = claimable(commit, ranges)
    claimed = {
        "logged": plan,
        "done": stream.durable,
        "claimed_at": max(0, now) if any(offsets.size for offsets in taken) else None,
        "topic_id": commit.topic_id or stream.topics.get(partition.topic),
        # If the end was not known, neither the position nor its epoch changes.
        "epoch": stream.epochs.get(partition, commit.epoch if stream.ranges[partition][-1].end == commit.next else None),
    }
    write = _taken(commit, taken, stream.ranges[partition][-1].end).model_copy(update=claimed)
    return Verdict(read=taken, write=fitting(write, MAX_METADATA_BYTES))


def _taken(record: CommitRecord, ranges: Iterable[OffsetRange], position: int) -> CommitRecord:
    """Return the record with these ranges claimed and the given position."""
    taken = tuple(offsets for offsets in ranges if offsets.size)
    open_ = tuple(OpenRange(*offsets) for offsets in taken)
    owed = tuple(entry for entry in record.owed if entry.range not in taken)
    return record.model_copy(update={"open": open_, "owed": owed, "next": position})


def with_room(record: CommitRecord, ranges: tuple[OffsetRange, ...]) -> tuple[OffsetRange, ...]:
    """Return the ranges of a plan that can be claimed without making the record too long to be written and adopted.

    An adopted record is longer, because open ranges become owed ranges. Without room for that, each new owner would fail in turn.
    Ranges owed to other streams are kept first, because taking them over needs no room. The last range is always returned, but
    may be empty.

    Args:
        record: The partition's record before the claim.
        ranges: As in `claimable`. The last one starts at the record's position.
    """
    if record.surely_has_room(len(ranges)):
        return ranges
    *reread, unread = ranges
    nothing_new = OffsetRange(unread.start, unread.start)
    fewer = ((*reread[:count], nothing_new) for count in range(len(reread), 0, -1))
    for chosen in (ranges, *fewer):
        if _taken(record, chosen, chosen[-1].end).size_once_adopted <= MAX_METADATA_BYTES:
            return chosen
    return (nothing_new,)


def _claimed_for_plan(stream: Stream, commit: CommitRecord, ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """Return the parts of these ranges that are already claimed for plan `stream.logged` in the record.

    That may be only part of a range, if the log was truncated or an earlier version took over part of a claim.
    """
    claimed = [entry.range for entry in commit.owed if (entry.stream, entry.plan) == (stream.name, stream.logged)]
    if (commit.stream, commit.logged) == (stream.name, stream.logged):
        claimed += (offsets for offsets in ranges if OpenRange(*offsets) in commit.open)
    return tuple(sorted(part for offsets in ranges for earlier in claimed if (part := offsets.overlap(earlier)).size))
