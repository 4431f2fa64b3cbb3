"""Defines the record that a member commits to its group for each partition, and reads such records back.

Kafka stores an offset and a text (the metadata) for each group and partition. It accepts a commit only from a member of the
current generation. The text is the record below. The offset is the lowest one that is not known to be durably processed. Another
client that starts there may read records twice, but never skips one.

Kafka also stores a leader epoch, in a separate field (KIP-320). It is the epoch of `next`, and no record below `next` has a later
one. The epoch reveals a log that was truncated below the position and has grown again.

Any client can write such metadata. If it is not exactly a record in this format, the commit is `Foreign`, and only its offset is
used. A record in another of this package's formats is `OtherFormat`: it may contain claims, so the query fails. docs/design.md
explains the fields.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, NamedTuple

from pydantic import ConfigDict, Field, ValidationError, model_validator

from spark_groupsource.partition import OffsetRange, TopicPartition
from spark_groupsource.plain_model import PlainModel

# Not 1: see docs/design.md.
VERSION = 4
"""The only format that releases have written so far. All later versions will read it, and every later format will keep the fields
`v`, `s` and `done`."""

MAX_METADATA_BYTES = 4095
"""The longest text that a broker accepts: `offset.metadata.max.bytes` (4,096) minus the NUL that librdkafka appends."""

STREAM_NAME = r"^[0-9a-zA-Z_-]{1,64}$"

StreamName = Annotated[str, Field(pattern=STREAM_NAME)]
Offset = Annotated[int, Field(ge=0, lt=2**63)]
WallClock = Annotated[int, Field(ge=0, lt=253_402_300_800)]
"""Seconds since 1970 UTC, before the year 10000, where Python's dates end. It is for display only: no rule depends on it."""
PlanNumber = Annotated[int, Field(ge=-1, lt=2**63)]
TopicId = Annotated[str, Field(pattern=r"^[0-9a-zA-Z_-]{22}$")]
"""The id that distinguishes a topic from an earlier one with the same name (KIP-516), in base64 as in Kafka's own tools."""

CLUSTER_ID = r"^[0-9a-zA-Z_-]{1,48}$"

ClusterId = Annotated[str, Field(pattern=CLUSTER_ID)]
"""A Kafka cluster's own id (`cluster.id`)."""

MemberMark = Annotated[str, Field(pattern=r"^[0-9a-zA-Z_-]{11}$")]
"""A short string that identifies a group member (`mark_of`)."""

PAST_STREAMS = 8
"""The maximum number of earlier owners in a record."""


def mark_of(member_id: str) -> MemberMark:
    """Return a short string that identifies a group member, whose id may be long because it begins with the `client.id`."""
    return base64.urlsafe_b64encode(hashlib.sha256(member_id.encode()).digest()[:8]).decode().rstrip("=")


class PastStream(NamedTuple):
    """A stream that used to own the partition, with its newest plan at that time."""

    stream: StreamName
    plan: PlanNumber
    done: PlanNumber
    """The stream's newest plan that is known to be done."""


class OwedRange(NamedTuple):
    """A range that `stream` claimed for its plan `plan` and never confirmed. Only that stream may read it."""

    stream: StreamName
    plan: PlanNumber
    start: Offset
    end: Offset
    since: WallClock | None = None
    """When the range was claimed, by the clock on its stream's host. `None` if the record had no room for the time."""

    @property
    def range(self) -> OffsetRange:
        """The offsets: start inclusive, end exclusive."""
        return OffsetRange(self.start, self.end)


def merged(owed: Iterable[OwedRange]) -> tuple[OwedRange, ...]:
    """Return the ranges in offset order, joining adjacent ranges that have the same stream and plan.

    A joined range is as old as its older part. A record has little room, and without joining, each attempt that a limit cuts
    short would leave one more entry.
    """
    joined: list[OwedRange] = []
    for entry in sorted(owed, key=_start):
        previous = joined[-1] if joined else None
        if previous is not None and (previous.stream, previous.plan, previous.end) == (entry.stream, entry.plan, entry.start):
            times = [claimed_at for claimed_at in (previous.since, entry.since) if claimed_at is not None]
            joined[-1] = previous._replace(end=entry.end, since=min(times, default=None))
        else:
            joined.append(entry)
    return tuple(joined)


class OpenRange(NamedTuple):
    """An `OffsetRange` whose bounds are validated, because the record comes from Kafka."""

    start: Offset
    end: Offset


class LowestClaim(NamedTuple):
    """A partition's lowest unconfirmed range, which holds back the committed offset."""

    claim: OwedRange
    """The range, with the stream and plan that claimed it, and when. It starts at the committed offset."""
    finished_lag: int
    """The number of offsets from the committed offset (inclusive) to `next` (exclusive) that are in no open or owed range.

    They are finished, but every tool counts them as lag. Compacted and transactional topics have fewer records than offsets.
    """


_LONGEST_NAME = "s" * 64
_ALWAYS_FIT = 16
"""The number of ranges that always fit into a record, even if all are owed and all numbers and names are as long as possible."""


class CommitRecord(PlainModel):
    """The commit record of one partition."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", populate_by_name=True)

    v: Annotated[int, Field(ge=VERSION, le=VERSION)] = VERSION
    stream: StreamName = Field(alias="s")
    """The stream that wrote the record."""
    logged: PlanNumber = Field(alias="n")
    """The newest plan in the writer's offset log when the record was written. -1: none."""
    done: PlanNumber
    """The newest plan in the writer's commit log when the record was written. -1: none."""
    next: Offset
    """The position: the next offset that the partition's owner reads."""
    open: tuple[OpenRange, ...] = ()
    """Ranges claimed for plan `logged` and not yet confirmed."""
    owed: tuple[OwedRange, ...] = ()
    """Ranges that earlier owners claimed and never confirmed."""
    claimed_at: WallClock | None = Field(default=None, alias="at")
    """When the open ranges were claimed. `None` if there are none, or if the time is unknown."""
    topic_id: TopicId | None = Field(default=None, alias="t")
    """The id of the topic to which the offsets belong. `None` if the writer did not know it."""
    cluster_id: ClusterId | None = Field(default=None, alias="c")
    """The id of the topic's cluster. `None` if the writer did not know it."""
    member: MemberMark | None = Field(default=None, alias="m")
    """The member that wrote the record. `None` if it did not know its own id."""
    epoch: int | None = Field(default=None, exclude=True)
    """The leader epoch of `next`: no record below it has a later one. `None` if unknown. It is not part of the metadata."""
    past: tuple[PastStream, ...] | None = None
    """The streams that owned the partition before `stream`, latest last. `None` if there are none or no room for them."""

    @property
    def open_as_owed(self) -> tuple[OwedRange, ...]:
        """The open ranges in the form in which another stream that adopts the partition will owe them to this one."""
        return tuple(OwedRange(self.stream, self.logged, *bounds, self.claimed_at) for bounds in self.open)

    @property
    def unconfirmed(self) -> list[OffsetRange]:
        """Every open or owed range, in offset order."""
        return sorted([OffsetRange(*bounds) for bounds in self.open] + [entry.range for entry in self.owed])

    @model_validator(mode="after")
    def _consistent(self) -> CommitRecord:
        """Reject a record whose fields contradict each other."""
        if self.done > self.logged:
            raise ValueError("done is above n")
        if self.past is not None and not 0 < len(self.past) <= PAST_STREAMS:
            raise ValueError(f"past has {len(self.past)} streams")
        unconfirmed = self.unconfirmed
        for claimed in unconfirmed:
            if not claimed.start < claimed.end <= self.next:
                raise ValueError(f"the range {claimed} is empty or ends above next")
        if any(lower.end > upper.start for lower, upper in itertools.pairwise(unconfirmed)):
            raise ValueError("ranges overlap")
        return self

    @property
    def offset(self) -> int:
        """The offset to commit: the first one that is not known to be durably processed."""
        return min([self.next, *(bounds.start for bounds in self.open), *(entry.start for entry in self.owed)])

    @property
    def lowest_claim(self) -> LowestClaim | None:
        """The range that keeps `offset` below `next`. `None` if no range is open or owed, in which case the two are equal."""
        claims = (*self.owed, *self.open_as_owed)
        if not claims:
            return None
        lowest = min(claims, key=_start)
        unconfirmed = sum(claim.range.size for claim in claims)
        return LowestClaim(lowest, self.next - lowest.start - unconfirmed)

    def surely_has_room(self, ranges: int) -> bool:
        """Return whether this many more ranges are certain to fit, without measuring the record. Each may split an owed range."""
        return len(self.owed) + 2 * ranges <= _ALWAYS_FIT

    @property
    def size_once_adopted(self) -> int:
        """The maximum size of the metadata, in bytes, once another stream has adopted the partition and open ranges are owed."""
        longest = {
            "stream": _LONGEST_NAME,
            "logged": 2**63 - 1,
            "done": 2**63 - 1,
            "next": 2**63 - 1,
            "open": (),
            "claimed_at": None,
            "past": None,  # the owner may drop them to save room (`fitting`)
        }
        return len(self.model_copy(update={**longest, "owed": merged((*self.owed, *self.open_as_owed))}).metadata())

    def metadata(self) -> str:
        """Return the metadata to commit with `offset`: compact JSON with its keys in a fixed order, without unknown values."""
        if all(entry.since is not None for entry in self.owed):
            return self.model_dump_json(by_alias=True, exclude_none=True)
        fields = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        fields["owed"] = [entry[:4] if entry[4] is None else entry for entry in fields["owed"]]
        return json.dumps(fields, separators=(",", ":"))


def fitting(record: CommitRecord, most_bytes: int = MAX_METADATA_BYTES) -> CommitRecord:
    """Shorten the record if its metadata is longer than `most_bytes`, but only as far as is safe.

    First drop earlier streams, the oldest first. Then drop the times at which ranges were claimed. Last, join ranges owed to the
    same stream for the same plan, the nearest first, if nothing between them is claimed. The offsets in between are
    finished, and their stream does not read them, because they are not in its plan. Only `heldClaims=reread` reads them again.
    """
    for shorter in _shortened(record):
        record = shorter
        if len(record.metadata()) <= most_bytes:
            break
    return record


def _shortened(record: CommitRecord) -> Iterator[CommitRecord]:
    """Yield the record, then shorter and shorter versions of it (see `fitting`)."""
    yield record
    while record.past:
        record = record.model_copy(update={"past": record.past[1:] or None})
        yield record
    record = record.model_copy(update={"claimed_at": None, "owed": tuple(entry._replace(since=None) for entry in record.owed)})
    yield record
    while gaps := _finished_gaps(record):
        _, lower, upper = min(gaps)
        kept = (entry for entry in record.owed if entry not in {lower, upper})
        record = record.model_copy(update={"owed": merged((*kept, lower._replace(end=upper.start), upper))})
        yield record


def _finished_gaps(record: CommitRecord) -> list[tuple[int, OwedRange, OwedRange]]:
    """Return pairs of neighboring ranges owed to the same stream for the same plan, each with the distance between them."""
    claims = sorted((*record.owed, *record.open_as_owed), key=_start)
    return [
        (upper.start - lower.end, lower, upper)
        for lower, upper in itertools.pairwise(claims)
        if (lower.stream, lower.plan) == (upper.stream, upper.plan) and lower in record.owed and upper in record.owed
    ]


def _start(entry: OwedRange) -> int:
    """Return the first offset of an owed range, as a sort key."""
    return entry.start


class Foreign(NamedTuple):
    """A commit that another client or a tool wrote, or that was copied from another cluster. Only its offset is used."""

    offset: int
    cluster_id: str | None = None
    """The other cluster, if the commit was copied from there (Cluster Linking, MirrorMaker)."""


class OtherFormat(NamedTuple):
    """A commit record that another version wrote, in a format that this version cannot read.

    The record may owe ranges to any stream, so nothing can be decided about its partition.
    """

    offset: int
    version: int
    stream: str = ""
    """The stream that wrote the record."""
    done: int = -1
    """That stream's newest plan that is done. -1: none, or not recorded."""


GroupCommit = CommitRecord | Foreign | OtherFormat | None
"""A group's commit for one partition. `None` if nothing was committed or the commit has expired."""


def position_of(commit: GroupCommit) -> int | None:
    """Return the offset at which the group's queries continue in a partition; `None` if unknown."""
    return commit.next if isinstance(commit, CommitRecord) else commit.offset if isinstance(commit, Foreign) else None


def writable_cluster_id(cluster_id: str) -> str | None:
    """Return the id if a record may contain it, else `None`. A record with any other id would be taken for another client's."""
    return cluster_id if re.fullmatch(CLUSTER_ID, cluster_id) else None


def read_commits(
    found: Mapping[TopicPartition, tuple[int, str | None, int | None]], cluster_id: str | None = None
) -> dict[TopicPartition, GroupCommit]:
    """Convert a group's committed offsets, metadata and leader epochs to commits. See `read_commit`."""
    return {partition: read_commit(offset, text, cluster_id, epoch=epoch) for partition, (offset, text, epoch) in found.items()}


def read_commit(offset: int, metadata: str | None, cluster_id: str | None = None, *, epoch: int | None = None) -> GroupCommit:
    """Convert a committed offset and its metadata to a commit record, another client's commit, or `None`. Never raises.

    A commit is `Foreign` if its metadata is too long, does not parse, or does not match `offset`. Metadata does not match if a
    tool copied it from another commit, or changed the offset but kept the metadata. A record from another cluster is `Foreign`
    too, because its topic ids and plans mean nothing here. Metadata with a stream's name and another `v` is `OtherFormat`.

    Args:
        offset: The committed offset. Negative if the group has none.
        metadata: The metadata committed with it, which any client may have written.
        cluster_id: The cluster that returned the commit. `None` if the cluster does not matter or is unknown.
        epoch: The leader epoch committed with it. `None` if unknown. Another client's epoch is ignored, because some clients keep
            committing an epoch that they read once.
    """
    if offset < 0:
        return None
    if not metadata or len(metadata.encode("utf-8", "surrogatepass")) > MAX_METADATA_BYTES:
        return Foreign(offset)
    try:
        record = CommitRecord.model_validate_json(metadata, by_alias=True, by_name=False)
    except (ValidationError, ValueError, RecursionError):
        # Check this before `Foreign`, because a query that continued at such a record's offset would read claimed ranges again.
        return _in_other_format(offset, metadata) or Foreign(offset)
    # Compare the text, because JSON can write the same record in several ways, and this package uses only one of them.
    if record.metadata() != metadata:
        return Foreign(offset)
    if cluster_id is not None and record.cluster_id not in {None, cluster_id}:
        return Foreign(offset, record.cluster_id)
    return record.model_copy(update={"epoch": epoch}) if record.offset == offset else Foreign(offset)


class _OfEveryFormat(PlainModel):
    """The fields that every record format has: the version, the stream, and the stream's newest plan that is done."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    v: Annotated[int, Field(ge=1, lt=2**31)]
    s: StreamName
    done: PlanNumber = -1


def _in_other_format(offset: int, metadata: str) -> OtherFormat | None:
    """Return the commit if its metadata is a record in another of this package's formats, else `None`."""
    try:
        found = _OfEveryFormat.model_validate_json(metadata)
    except (ValidationError, ValueError, RecursionError):
        return None
    return None if found.v == VERSION else OtherFormat(offset, found.v, found.s, found.done)
