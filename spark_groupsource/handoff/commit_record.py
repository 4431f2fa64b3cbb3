"""The commit record: what a member writes to its group for one partition, and how it is read back.

Kafka stores an offset and a text for each (group, topic, partition), and takes a write only from a member of the current
generation. The text is the record below; the offset is the lowest one not known to be durably processed, so that another
client that starts there may read twice but never skips. Any client may write this text: what is not exactly a record of
this format is `Foreign`, and only its offset is believed. docs/handoff.md tells what the fields mean.
"""

from __future__ import annotations

import itertools
import json
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from spark_groupsource.partition import OffsetRange

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


class OpenRange(NamedTuple):
    """`OffsetRange` with the bounds that a record from Kafka must keep."""

    start: Offset
    end: Offset


class CommitRecord(BaseModel):
    """One partition's commit record.

    `stream` wrote it; `logged` and `done` are the newest plan in that stream's offset log and commit log when it wrote
    (-1: none); `next` is where the partition's owner reads on; `open` are the ranges claimed for plan `logged` and not yet
    confirmed, at the time `claimed_at`; `owed` are ranges that earlier owners never confirmed. All these offsets are of the
    topic `topic_id`; `None` where the writer did not know.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", populate_by_name=True)

    v: Annotated[int, Field(ge=1, le=1)] = 1
    stream: StreamName = Field(alias="s")
    logged: PlanNumber = Field(alias="n")
    done: PlanNumber
    next: Offset
    open: tuple[OpenRange, ...] = ()
    owed: tuple[OwedRange, ...] = ()
    claimed_at: WallClock | None = Field(default=None, alias="at")
    topic_id: TopicId | None = Field(default=None, alias="t")

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

    def metadata(self) -> str:
        """The text to commit beside `offset`: JSON, keys in a fixed order, no spaces, and nothing for what is not known."""
        if all(entry.since is not None for entry in self.owed):
            return self.model_dump_json(by_alias=True, exclude_none=True)
        fields = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        fields["owed"] = [entry[:4] if entry[4] is None else entry for entry in fields["owed"]]
        return json.dumps(fields, separators=(",", ":"))


class Foreign(NamedTuple):
    """A commit by another client, or by a tool that resets offsets: only its offset means something."""

    offset: int


GroupCommit = CommitRecord | Foreign | None
"""What the group holds for one partition; `None` when nothing was committed, or it has expired."""


def read_commit(offset: int, metadata: str | None) -> GroupCommit:
    """Tell what a committed offset and its metadata are.

    `offset` is negative when the group has no commit. Metadata that is too long, does not parse, or does not fit
    `offset` (somebody copied it, or moved the offset and kept the text) makes the commit foreign. Never raises.
    """
    if offset < 0:
        return None
    if not metadata or len(metadata.encode("utf-8", "surrogatepass")) > MAX_METADATA_BYTES:
        return Foreign(offset)
    try:
        record = CommitRecord.model_validate_json(metadata, by_alias=True, by_name=False)
    except (ValidationError, ValueError, RecursionError):
        return Foreign(offset)
    # To the letter: JSON has several ways to write the same record, and this package uses one.
    return record if record.offset == offset and record.metadata() == metadata else Foreign(offset)
