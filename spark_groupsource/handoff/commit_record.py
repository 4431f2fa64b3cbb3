"""The commit record: what a member writes to its group for one partition, and how it is read back.

Kafka stores an offset and a text for each (group, topic, partition), and takes a write only from a member of the current
generation. The text is the record below; the offset is the lowest one not known to be durably processed, so that another
client that starts there may read twice but never skips. Any client may write this text: what is not exactly a record of
this format is `Foreign`, and only its offset is believed. docs/handoff.md tells what the fields mean.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from spark_groupsource.partition import OffsetRange

VERSION = 1
"""The format that this version writes, and the newest that it reads. Every later format keeps the fields `v` and `s`."""

MAX_METADATA_BYTES = 4095
"""Longest text that a broker takes: its `offset.metadata.max.bytes` (4,096) less the NUL that librdkafka appends."""

STREAM_NAME = r"^[0-9a-zA-Z_-]{1,64}$"

StreamName = Annotated[str, Field(pattern=STREAM_NAME)]
Offset = Annotated[int, Field(ge=0, lt=2**63)]
WallClock = Annotated[int, Field(ge=0, lt=253_402_300_800)]
"""Seconds since 1970 UTC, before the year 10000, where Python's dates end. For people only: nothing is decided by it."""
PlanNumber = Annotated[int, Field(ge=-1, lt=2**63)]
TopicId = Annotated[str, Field(pattern=r"^[0-9a-zA-Z_-]{22}$")]
"""What tells a topic from an earlier one of the same name (KIP-516), in the base64 of Kafka's own tools."""

ClusterId = Annotated[str, Field(pattern=r"^[0-9a-zA-Z_-]{1,48}$")]
"""A cluster's own name for itself (`cluster.id`)."""


class OwedRange(NamedTuple):
    """A range that `stream` claimed for its plan `plan` and never confirmed; only that stream may read it."""

    stream: StreamName
    plan: PlanNumber
    start: Offset
    end: Offset
    since: WallClock | None = None
    """When it was claimed, by its stream's clock; `None` when the record of that time does not tell."""

    @property
    def range(self) -> OffsetRange:
        """The offsets, start inclusive, end exclusive."""
        return OffsetRange(self.start, self.end)


def merged(owed: Iterable[OwedRange]) -> tuple[OwedRange, ...]:
    """Return the ranges in the order of their offsets; adjacent ones of one stream and plan become one, as old as the older.

    A record has little room: without this, each attempt that a limit cuts would leave one more entry.
    """
    joined: list[OwedRange] = []
    for entry in sorted(owed, key=lambda entry: entry.start):
        before = joined[-1] if joined else None
        if before is not None and (before.stream, before.plan, before.end) == (entry.stream, entry.plan, entry.start):
            times = [since for since in (before.since, entry.since) if since is not None]
            joined[-1] = before._replace(end=entry.end, since=min(times, default=None))
        else:
            joined.append(entry)
    return tuple(joined)


class OpenRange(NamedTuple):
    """`OffsetRange` with the bounds that a record from Kafka must keep."""

    start: Offset
    end: Offset


_LONGEST_NAME = "s" * 64
_ALWAYS_FIT = 16
"""So many ranges fit into a record whatever their numbers and names, also once they are owed."""


class CommitRecord(BaseModel):
    """One partition's commit record.

    `stream` wrote it; `logged` and `done` are the newest plan in that stream's offset log and commit log when it wrote
    (-1: none); `next` is where the partition's owner reads on; `open` are the ranges claimed for plan `logged` and not yet
    confirmed, at the time `claimed_at`; `owed` are ranges that earlier owners never confirmed. All these offsets are of the
    topic `topic_id` in the cluster `cluster_id`; `None` where the writer did not know.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", populate_by_name=True)

    v: Annotated[int, Field(ge=1, le=VERSION)] = VERSION
    stream: StreamName = Field(alias="s")
    logged: PlanNumber = Field(alias="n")
    done: PlanNumber
    next: Offset
    open: tuple[OpenRange, ...] = ()
    owed: tuple[OwedRange, ...] = ()
    claimed_at: WallClock | None = Field(default=None, alias="at")
    topic_id: TopicId | None = Field(default=None, alias="t")
    cluster_id: ClusterId | None = Field(default=None, alias="c")

    @property
    def unconfirmed(self) -> list[OffsetRange]:
        """Every range that is open or owed, in the order of offsets."""
        return sorted([OffsetRange(*held) for held in self.open] + [held.range for held in self.owed])

    @model_validator(mode="after")
    def _consistent(self) -> CommitRecord:
        if self.done > self.logged:
            raise ValueError("done is above n")
        unconfirmed = self.unconfirmed
        for held in unconfirmed:
            if not held.start < held.end <= self.next:
                raise ValueError(f"the range {held} is empty or ends above next")
        if any(before.end > after.start for before, after in itertools.pairwise(unconfirmed)):
            raise ValueError("ranges overlap")
        return self

    @property
    def offset(self) -> int:
        """The offset to commit: the first one not known to be durably processed."""
        return min([self.next, *(held.start for held in self.open), *(held.start for held in self.owed)])

    def holds_open(self, offsets: OffsetRange) -> bool:
        """Whether exactly this range is claimed for plan `logged`."""
        return OpenRange(*offsets) in self.open

    @property
    def size_once_adopted(self) -> int:
        """Bytes of the metadata, at most, once another stream has adopted the partition: as owed ranges, open ones are longer."""
        if len(self.open) + len(self.owed) <= _ALWAYS_FIT:
            return 0
        left_open = (OwedRange(self.stream, self.logged, *held, self.claimed_at) for held in self.open)
        longest = {"stream": _LONGEST_NAME, "logged": 2**63 - 1, "done": 2**63 - 1, "next": 2**63 - 1, "open": ()}
        return len(self.model_copy(update={**longest, "owed": merged((*self.owed, *left_open))}).metadata())

    def metadata(self) -> str:
        """The text to commit beside `offset`: JSON, keys in a fixed order, no spaces, and nothing for what is not known."""
        if all(entry.since is not None for entry in self.owed):
            return self.model_dump_json(by_alias=True, exclude_none=True)
        fields = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        fields["owed"] = [entry[:4] if entry[4] is None else entry for entry in fields["owed"]]
        return json.dumps(fields, separators=(",", ":"))


class Foreign(NamedTuple):
    """A commit by another client, by a tool that resets offsets, or copied from another cluster: only its offset is believed."""

    offset: int
    cluster_id: str | None = None
    """The other cluster, where the commit is a record that was written there (Cluster Linking, MirrorMaker)."""


class Newer(NamedTuple):
    """A commit record in a later format than this version knows: a newer version of this package wrote it.

    It may owe ranges to anybody, so nothing may be decided from it.
    """

    offset: int
    version: int


GroupCommit = CommitRecord | Foreign | Newer | None
"""What the group holds for one partition; `None` when nothing was committed, or it has expired."""


def read_commit(offset: int, metadata: str | None, cluster_id: str | None = None) -> GroupCommit:
    """Decide what a committed offset and its metadata are. Never raises.

    Metadata that is too long, does not parse, or does not fit `offset` makes the commit `Foreign`: somebody copied it, or moved
    the offset and kept the text. A record of another cluster is `Foreign` too: its topics' ids and its streams' plans mean
    nothing here. Metadata with a stream's name and a higher `v` is `Newer`.

    Args:
        offset: the committed offset; negative when the group has none.
        metadata: the text beside it, which any client can have written.
        cluster_id: the cluster that was asked; `None` where that does not matter, or is not known.
    """
    if offset < 0:
        return None
    if not metadata or len(metadata.encode("utf-8", "surrogatepass")) > MAX_METADATA_BYTES:
        return Foreign(offset)
    try:
        record = CommitRecord.model_validate_json(metadata, by_alias=True, by_name=False)
    except (ValidationError, ValueError, RecursionError):
        version = _later_version(metadata)
        return Foreign(offset) if version is None else Newer(offset, version)
    # To the letter: JSON has several ways to write the same record, and this package uses one.
    if record.metadata() != metadata:
        return Foreign(offset)
    if cluster_id is not None and record.cluster_id not in {None, cluster_id}:
        return Foreign(offset, record.cluster_id)
    return record if record.offset == offset else Foreign(offset)


class _Marked(BaseModel):
    """What every later format keeps: its version and the name of the stream that wrote it."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    v: Annotated[int, Field(gt=VERSION, lt=2**31)]
    s: StreamName


def _later_version(metadata: str) -> int | None:
    try:
        return _Marked.model_validate_json(metadata).v
    except (ValidationError, ValueError, RecursionError):
        return None
