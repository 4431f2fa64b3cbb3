"""The rules of the hand-off, as pure functions: who reads a range, whatever dies when.

The group's commit record of a partition is a register that only a member of the current generation can write. A stream
decides from that record, and from what its own checkpoint says, and from nothing else. The package handoff describes the life of
a partition, in which these functions are the steps.

docs/handoff.md explains why each rule is as it is. The simulation in tests/simulation drives these very functions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from spark_groupsource.errors import CheckpointBehindGroup, CommitRecordTooNew
from spark_groupsource.handoff.commit_record import (
    MAX_METADATA_BYTES,
    VERSION,
    CommitRecord,
    Foreign,
    GroupCommit,
    Newer,
    OpenRange,
    OwedRange,
    merged,
)
from spark_groupsource.partition import OffsetRange, Ranges, TopicPartition

Evidence = Mapping[str, int]
"""For each stream, the newest plan that some record of the group shows to be done."""


@dataclass(frozen=True)
class Stream:
    """What a stream knows of itself: its name, and what its checkpoint says.

    `logged` is the newest plan in Spark's offset log and `durable` the newest in its commit log (-1: none); `ranges` are those
    of plan `logged`; the last one of each partition is what came next there, perhaps nothing. In one checkpoint lineage
    `durable` is `logged` or `logged - 1`. `topics` are the ids of the topics that these ranges are of, as far as they are known.
    """

    name: str
    logged: int = -1
    durable: int = -1
    ranges: Ranges = field(default_factory=dict)
    topics: Mapping[str, str] = field(default_factory=dict)


def evidence(commits: Iterable[GroupCommit]) -> dict[str, int]:
    """Collect what the group's records prove to be done."""
    done: dict[str, int] = {}
    for commit in commits:
        if isinstance(commit, CommitRecord):
            done[commit.stream] = max(commit.done, done.get(commit.stream, -1))
    return done


def alive(commits: Mapping[TopicPartition, GroupCommit], owned: Collection[TopicPartition]) -> frozenset[str]:
    """Return the streams that run now, as far as the group's records show it.

    A stream that wrote the record of a partition which this member does not own is alive: of a dead one the group would have
    given the partition to another member, which adopts it. A stream that owns nothing is not seen, and counts as dead.

    Args:
        commits: the records of every partition that this member subscribes to. Of others nobody here could adopt them.
        owned: the partitions that this member has adopted.
    """
    return frozenset(
        commit.stream for partition, commit in commits.items() if isinstance(commit, CommitRecord) and partition not in owned
    )


def _still_owed(owed: Iterable[OwedRange], done: Evidence) -> tuple[OwedRange, ...]:
    return tuple(entry for entry in owed if done.get(entry.stream, -1) < entry.plan)


def made_anew(stream: Stream, partition: TopicPartition, commit: GroupCommit, topic_id: str | None) -> bool:
    """Whether what is known of the partition is of an earlier topic of that name; `topic_id` is the one that it has now.

    Kafka forgets the commits of a deleted topic, in its own time; then the stream's last plan tells. Another client's commit is
    believed: somebody may have reset the offsets for the new topic.
    """
    return _differ(_known_id(stream, partition, commit), topic_id)


def _known_id(stream: Stream, partition: TopicPartition, commit: GroupCommit) -> str | None:
    """The id of the topic that the commit is of, or that the partition's place in the stream's last plan is of."""
    match commit:
        case Foreign() | Newer():
            return None
        case CommitRecord() if commit.topic_id is not None or commit.stream != stream.name:
            return commit.topic_id
        case _:
            return stream.topics.get(partition.topic)


def _differ(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one != other


def adopt(
    stream: Stream,
    partition: TopicPartition,
    commit: GroupCommit,
    *,
    starting_offset: int,
    done: Evidence,
    topic_id: str | None = None,
    cluster_id: str | None = None,
) -> CommitRecord:
    """Decide the record of a partition that the group has just given to this stream.

    `starting_offset` is where to start without a commit and without a place in the stream's last plan, and in a topic that was
    made anew. `done` is the evidence of other streams' records. `topic_id` is the topic's id now and `cluster_id` the cluster's,
    where they are known. The result is written to the group unless it is what the group holds already.

    Raises:
        CheckpointBehindGroup: the group knows plans of this stream that its checkpoint does not.
        CommitRecordTooNew: a newer version of this package wrote the record.
    """
    if isinstance(commit, Newer):
        raise too_new(partition, commit)
    known = {**done, stream.name: stream.durable}
    if isinstance(commit, CommitRecord) and (newest := _newest_plan(stream, commit)) > stream.logged:
        raise _behind(stream, partition, newest)
    if made_anew(stream, partition, commit, topic_id):
        # Nothing that is said of the earlier topic's offsets may hold back, or skip, records of this one.
        adopted = CommitRecord(stream=stream.name, logged=stream.logged, done=stream.durable, next=starting_offset)
    else:
        adopted = _adopt(stream, partition, commit, starting_offset, known)
    topic_id = topic_id or _known_id(stream, partition, commit)
    if (adopted.topic_id, adopted.cluster_id or cluster_id) == (topic_id, adopted.cluster_id):
        return adopted
    return adopted.model_copy(update={"topic_id": topic_id, "cluster_id": cluster_id or adopted.cluster_id})


def _adopt(
    stream: Stream, partition: TopicPartition, commit: CommitRecord | Foreign | None, starting_offset: int, known: Evidence
) -> CommitRecord:
    match commit:
        case None:
            return _adopt_unrecorded(stream, partition, starting_offset)
        case Foreign(offset):
            return CommitRecord(stream=stream.name, logged=stream.logged, done=stream.durable, next=offset)
        case CommitRecord() if commit.stream != stream.name:
            left_open = (OwedRange(commit.stream, commit.logged, *held, commit.claimed_at) for held in commit.open)
            return CommitRecord(
                stream=stream.name,
                logged=stream.logged,
                done=stream.durable,
                next=commit.next,
                owed=merged(_still_owed((*commit.owed, *left_open), known)),
            )
        case CommitRecord():
            return settle(confirm(commit, stream), known)


def _newest_plan(stream: Stream, commit: CommitRecord) -> int:
    """The newest plan of this stream that the record tells of: its own, or one that others hold a range for."""
    written = [commit.logged] if commit.stream == stream.name else []
    return max((*written, *(entry.plan for entry in commit.owed if entry.stream == stream.name)), default=-1)


def _adopt_unrecorded(stream: Stream, partition: TopicPartition, starting_offset: int) -> CommitRecord:
    last = stream.ranges.get(partition, (OffsetRange(starting_offset, starting_offset),))
    # The sink may have had the last plan's ranges: they are read in that plan again, or not at all.
    replayed = last if stream.durable < stream.logged else ()
    unconfirmed = tuple(OpenRange(*offsets) for offsets in replayed if offsets.size)
    return CommitRecord(stream=stream.name, logged=stream.logged, done=stream.durable, next=last[-1].end, open=unconfirmed)


def _behind(stream: Stream, partition: TopicPartition, newest: int) -> CheckpointBehindGroup:
    return CheckpointBehindGroup(
        f"{partition}: the group holds plan {newest} of stream {stream.name}, but the newest plan in this query's "
        f"checkpoint is {stream.logged}. A second driver is running on this checkpoint, or it was restored from an older copy, "
        "or was copied. Going on would plan other records under batch ids that the sink has already, and ignores. Choose:\n"
        "  - if a second driver is running on the checkpoint, stop one of the two: nothing is lost and nothing is there twice.\n"
        "  - put the newest checkpoint back: the same.\n"
        "  - if it is gone, start with an empty checkpoint location (and a sink that does not take its first batch ids for old "
        "ones). The query then goes on at the group's positions, which are behind everything that was claimed; what plans up to "
        f"{newest} claimed and did not confirm stays held for stream {stream.name}, and `groupkafka claims` lists it: "
        "outstandingClaims=reread reads it (there twice, if it had reached the output), outstandingClaims=hold never does "
        "(missing, if it had not). The state of stateful operators is lost either way."
    )


def too_new(partition: TopicPartition, commit: Newer) -> CommitRecordTooNew:
    """Return the error for a record that only a newer version of this package can read."""
    return CommitRecordTooNew(
        f"{partition}: its commit record has format {commit.version}, and this version of spark_groupsource reads formats up to "
        f"{VERSION}. A newer version of spark_groupsource wrote it. Reading on without that record could lose or duplicate "
        "records, so this query stops; nothing was changed. Upgrade spark_groupsource on this query's driver and executors, and "
        "start the query on its checkpoint. To go back to this version instead, stop every query of the newer one first: "
        "`groupkafka claims` of the newer version shows whether claims are open."
    )


def confirm(record: CommitRecord, stream: Stream) -> CommitRecord:
    """The record once its stream's durable plans are closed; `record` itself when there is nothing to close.

    `n` never rises past a plan that is only logged: that plan's range must stay claimable.
    """
    if not record.open or record.logged > stream.durable:
        return record
    closed = {"open": (), "claimed_at": None, "logged": max(record.logged, stream.durable), "done": stream.durable}
    return record.model_copy(update=closed)


def settle(record: CommitRecord, done: Evidence) -> CommitRecord:
    """The record without the owed ranges that `done` proves to be confirmed; `record` itself when all are still owed."""
    owed = _still_owed(record.owed, done)
    return record if owed == record.owed else record.model_copy(update={"owed": owed})


def cut_back(record: CommitRecord, end: int) -> CommitRecord:
    """The record once its log ends at `end`, below its position: it goes on there, and what was held beyond is forgotten."""
    there = OffsetRange(0, end)
    open_ = (OffsetRange(*held).overlap(there) for held in record.open)
    owed = ((entry, entry.range.overlap(there)) for entry in record.owed)
    return record.model_copy(
        update={
            "next": end,
            "open": tuple(OpenRange(*left) for left in open_ if left.size),
            "owed": tuple(entry._replace(start=left.start, end=left.end) for entry, left in owed if left.size),
        }
    )


def skip_to(record: CommitRecord, start: int) -> CommitRecord:
    """The record once its log starts at `start`, above its position. What is held below waits for its streams, as before."""
    return record.model_copy(update={"next": start})


def start_anew(record: CommitRecord, start: int, topic_id: str | None) -> CommitRecord:
    """The record once its topic was deleted and created again: nothing of the earlier one is held, or skipped in the new one."""
    forgotten = {"next": start, "open": (), "owed": (), "claimed_at": None, "topic_id": topic_id}
    return record.model_copy(update=forgotten)


def owed_to_others(record: CommitRecord, stream: Stream) -> tuple[OwedRange, ...]:
    """What the owner of this record may take over (`outstandingClaims`): its own entries are settled by its commit log."""
    return tuple(sorted((entry for entry in record.owed if entry.stream != stream.name), key=lambda entry: entry.start))


def claimable(record: CommitRecord, ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """Those of a plan's ranges that the record's owner may take: what begins at its position, and what others are owed."""
    owed = [entry.range for entry in record.owed if entry.stream != record.stream]
    return tuple(
        offsets for offsets in ranges if offsets.start == record.next or any(offsets.overlap(held) == offsets for held in owed)
    )


def _without(owed: Iterable[OwedRange], taken: Iterable[OffsetRange]) -> tuple[OwedRange, ...]:
    """What stays owed to the same streams once these ranges are taken; each lies within one entry, or in none."""
    left = list(owed)
    for offsets in taken:
        for entry in [entry for entry in left if entry.range.overlap(offsets).size]:
            left.remove(entry)
            rest = (OffsetRange(entry.start, offsets.start), OffsetRange(offsets.end, entry.end))
            left += (entry._replace(start=part.start, end=part.end) for part in rest if part.size)
    return merged(left)


@dataclass(frozen=True)
class Verdict:
    """What a stream does with the ranges of one partition in a plan that it has in its offset log."""

    read: tuple[OffsetRange, ...] = ()
    """To be read, once `write` is in the group. The rest is left, for good: every later attempt finds no more than this one,
    and less only when another stream has taken a range over since."""
    write: CommitRecord | None = None
    """The record that has to be in the group before the verdict counts."""
    waits: bool = False
    """The partition is not owned, and nobody has adopted it: look again."""


def claim(
    stream: Stream, partition: TopicPartition, commit: GroupCommit, *, owned: bool, held_since_planned: bool, now: int
) -> Verdict:
    """Decide the fate of this stream's ranges of `partition` in plan `stream.logged`; the same live and on a replay.

    `commit` is what the group holds now, and `owned` whether the partition is owned now and has been adopted.
    `held_since_planned`: this very run made the plan, and has owned the partition without a break since. Nobody else may
    claim: another run on the same checkpoint may have left the range out of the plan for good, and so may have an earlier
    attempt of this one, at a time when another stream had the partition. Not all of the ranges may be empty. `now`, in seconds
    since 1970, is written beside a claim for whoever asks since when it has been there.

    Raises:
        CheckpointBehindGroup: the group knows plans of this stream that its checkpoint does not.
        CommitRecordTooNew: a newer version of this package has the partition, and may hold the ranges for this stream.
    """
    if isinstance(commit, Newer):
        raise too_new(partition, commit)
    ranges = [offsets for offsets in stream.ranges[partition] if offsets.size]
    plan = stream.logged
    if isinstance(commit, CommitRecord) and _differ(commit.topic_id, stream.topics.get(partition.topic)):
        # The plan was made before the topic was deleted and created again: what it was to read is gone.
        return Verdict()
    if isinstance(commit, CommitRecord) and (held := _held_for(stream, commit, ranges)):
        return Verdict(read=held)
    if isinstance(commit, Foreign) or (commit is not None and commit.stream != stream.name):
        return Verdict()
    if commit is not None and commit.logged > plan:
        raise _behind(stream, partition, commit.logged)
    if commit is not None and commit.logged == plan:
        return Verdict()
    if commit is None or not owned:
        return Verdict(waits=True)
    if not held_since_planned:
        # Nothing is lost: the position stays where it is, and the next plan starts there.
        return Verdict()
    taken = claimable(commit, ranges)
    claimed = {
        "logged": plan,
        "done": stream.durable,
        "claimed_at": max(0, now),
        "topic_id": commit.topic_id or stream.topics.get(partition.topic),
    }
    return Verdict(read=taken, write=_taken(commit, taken, stream.ranges[partition][-1].end).model_copy(update=claimed))


def _taken(record: CommitRecord, ranges: Iterable[OffsetRange], position: int) -> CommitRecord:
    """The record with these ranges claimed, and read on at `position`."""
    taken = tuple(offsets for offsets in ranges if offsets.size)
    open_ = tuple(OpenRange(*offsets) for offsets in taken)
    return record.model_copy(update={"open": open_, "owed": _without(record.owed, taken), "next": position})


def with_room(record: CommitRecord, ranges: tuple[OffsetRange, ...]) -> tuple[OffsetRange, ...]:
    """Return those of a plan's ranges whose claim leaves the record short enough to be written, and to be adopted.

    An adopted record is longer, because open ranges become owed ones. Without this room, each next owner would end in turn.
    What is owed to others goes first, because taking it over makes room. The last range is always there, but may be empty.

    Args:
        record: the partition's record before the claim.
        ranges: as in `claimable`; the last one begins at the record's position.
    """
    *again, new = ranges
    nothing_new = OffsetRange(new.start, new.start)
    for chosen in (ranges, *((*again[:count], nothing_new) for count in range(len(again), -1, -1))):
        if _taken(record, chosen, chosen[-1].end).size_once_adopted <= MAX_METADATA_BYTES:
            return chosen
    return (nothing_new,)


def _held_for(stream: Stream, commit: CommitRecord, ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """What the record holds for plan `stream.logged` of these ranges; of one that is owed others may have taken a part."""
    owed = [entry.range for entry in commit.owed if (entry.stream, entry.plan) == (stream.name, stream.logged)]
    if (commit.stream, commit.logged) == (stream.name, stream.logged):
        owed += (offsets for offsets in ranges if commit.holds_open(offsets))
    return tuple(sorted(part for offsets in ranges for held in owed if (part := offsets.overlap(held)).size))
