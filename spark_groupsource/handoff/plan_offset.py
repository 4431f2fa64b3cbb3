"""Defines the offset that Spark stores in its offset log: a micro-batch's plan, as JSON.

    {"v":4,"stream":…,"plan":…,"generation":…,"member":…,"group":…,"ranges":{topic:{partition:[[from,to],…]}},
     "starts":{topic:{partition:[start,…]}},"cut":[least,most],"shared":[least,most,small],"topics":{topic:id},"cluster":…,
     "epochs":{topic:{partition:[epoch,…]}}}

`ranges` has every partition that was owned. Each partition's last range begins at its position, and is empty (`[to,to]`) if there
are no new records. The ranges before it are read in place of another stream (`heldClaims`). Ranges include their starts because
Spark keeps only end offsets, so the start of a newly acquired partition is not recorded anywhere else.

`starts` has the partitions that existed when the stream began, that it has not owned yet, and for which the group has no commit.
They start at the offset that the options gave when the stream began. Each list covers consecutive partitions, and its key is the
first one. A start is an offset, or a description of it if the leader did not answer: -1 is the end, and `[time]` is the first
record that is not older than that time (ms since 1970). With `null`, the options at the time of adoption decide. Every other
partition without a commit is read from the beginning, so a stream that starts from `earliest` has no starts.

A plan is divided into the same tasks whenever Spark runs it, because sinks rely on that (docs/sink.md). So the offset has the
values of `minPartitions` and `maxRecordsPerPartition` when it was planned (`cut`, `null` for an option that was not set), and the
rule by which small ranges from several partitions share a task (`shared`, see `Sharing`).

`epochs` has the leader epoch of each partition in `ranges` when it was planned, in lists like those in `starts`: no record below
the end of its ranges had a later epoch. Tasks use it to recognize a log that was truncated and has grown again. The epoch is
missing if the leader did not answer, or if the brokers do not report epochs.

`topics` distinguishes a topic from a later one with the same name. `cluster` distinguishes the cluster from another one to which
the group was moved.

Empty fields are left out, from `starts` onwards. The keys are sorted, because Spark compares offsets as JSON text.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
import secrets
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar

from pydantic import ConfigDict, Field, ValidationError, model_validator

from spark_groupsource.errors import OffsetError
from spark_groupsource.handoff.commit_record import ClusterId, CommitRecord, Offset, PlanNumber, StreamName, TopicId
from spark_groupsource.handoff.losses import topic_gone
from spark_groupsource.handoff.planner import Sharing, rule_of_sharing
from spark_groupsource.partition import OffsetRange, Ranges, TopicPartition, by_topic, topics_of
from spark_groupsource.plain_model import PlainModel
from spark_groupsource.version import another_version

# Not 1: see docs/design.md.
VERSION = 4
"""The only format that releases have written so far. All later versions will read it."""

_LAST_PARTITION = 2**31 - 1

PartitionNumber = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,9})$")]
Bounds = tuple[Offset, Offset]


class FromTime(NamedTuple):
    """A start at the first record that is not older than a time, in ms since 1970. The offset is not known yet."""

    time: Annotated[int, Field(ge=0, lt=2**63)]


AT_END = -1
"""A start at a partition's end, which is not known yet: the number for "latest" in the `startingOffsets` JSON."""

Start = Annotated[int, Field(ge=AT_END, lt=2**63)] | FromTime | None
"""Where a partition starts: at an offset, at its end, at a time, or, if `None`, as the options say when it is adopted."""

LONGEST_READABLE = 40
"""The maximum number of characters of the query's name in a stream's name."""

Cut = tuple[Annotated[int, Field(ge=1)] | None, Annotated[int, Field(ge=1)] | None]
"""The minimum number of tasks, and the maximum number of offsets in one task; `None` for no limit (`pieces`)."""

Starts: TypeAlias = "Mapping[TopicPartition, Start]"

Epoch = Annotated[int, Field(ge=0, lt=2**31)]

V = TypeVar("V")


class PlanOffset(PlainModel):
    """One plan of one stream. `plan` counts from 0, and -1 is the offset before the first plan."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    v: Annotated[int, Field(ge=VERSION, le=VERSION)]
    stream: StreamName
    plan: PlanNumber
    generation: int
    member: str
    group: str
    ranges: dict[str, dict[PartitionNumber, tuple[Bounds, ...]]]
    starts: dict[str, dict[PartitionNumber, tuple[Start, ...]]] = Field(default_factory=dict)
    cut: Cut | None = None
    shared: Sharing | None = None
    topics: dict[str, TopicId] = Field(default_factory=dict)
    cluster: ClusterId | None = None
    epochs: dict[str, dict[PartitionNumber, tuple[Epoch, ...]]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _ranges_in_order(self) -> PlanOffset:
        """Reject ranges that overlap or are out of order."""
        for topic, partitions in self.ranges.items():
            for partition, bounds in partitions.items():
                if not bounds or bounds[-1][0] > bounds[-1][1]:
                    raise ValueError(f"{topic}-{partition}: a range with start <= end is expected")
                if any(start >= end or end > following for (start, end), (following, _) in itertools.pairwise(bounds)):
                    raise ValueError(f"{topic}-{partition}: ranges are empty, overlap, or are out of order")
        return self

    @model_validator(mode="after")
    def _runs_in_order(self) -> PlanOffset:
        """Reject `starts` and `epochs` whose lists of partitions overlap."""
        in_runs: list[tuple[str, Mapping[str, tuple[Any, ...]]]] = [*self.starts.items(), *self.epochs.items()]
        for topic, runs in in_runs:
            places = sorted((int(first), int(first) + len(run)) for first, run in runs.items())
            if any(end == first for first, end in places) or any(
                end > following for (_, end), (following, _) in itertools.pairwise(places)
            ):
                raise ValueError(f"{topic}: starts or epochs are missing, or overlap")
            if places and places[-1][1] > _LAST_PARTITION + 1:
                raise ValueError(f"{topic}: no topic has that many partitions")
        return self

    @classmethod
    def first(
        cls,
        group: str,
        starts: Starts = MappingProxyType({}),
        topics: Mapping[str, str] = MappingProxyType({}),
        cluster: str | None = None,
        *,
        name: str = "",
    ) -> PlanOffset:
        """Return a new stream's offset before its first plan. The stream's name ends with a random part.

        Args:
            group: The consumer group.
            starts: Where existing partitions start, except those that are read from the beginning.
            topics: Their topics' ids, where known.
            cluster: The cluster's id, if known.
            name: The user's name for the query. The stream's name begins with it, without characters that are not allowed.
        """
        readable = re.sub(r"[^0-9a-zA-Z_-]+", "-", name)[:LONGEST_READABLE].strip("-")
        return cls.build(
            stream=f"{readable}-{secrets.token_hex(8)}".lstrip("-"),
            plan=-1,
            generation=-1,
            member="",
            group=group,
            ranges={},
            starts=starts,
            topics=topics,
            cluster=cluster,
        )

    @classmethod
    def build(
        cls,
        *,
        stream: str,
        plan: int,
        generation: int,
        member: str,
        group: str,
        ranges: Ranges,
        starts: Starts = MappingProxyType({}),
        topics: Mapping[str, str] = MappingProxyType({}),
        cluster: str | None = None,
        cut: Cut = (None, None),
        shared: Sharing | None = None,
        epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> PlanOffset:
        """Return the offset of a plan.

        Args:
            stream: The stream's name.
            plan: The plan's number.
            generation: The member's generation when it planned.
            member: The member's id when it planned.
            group: The consumer group.
            ranges: The ranges of each owned partition.
            starts: The starts of partitions that existed when the stream began, that it has not owned yet, and that have no
                commit.
            topics: The ids of the topics in `ranges` and `starts`, where known.
            cluster: The cluster's id, if known.
            cut: How the ranges are divided into tasks.
            shared: How small ranges share tasks. `None` if they do not.
            epochs: The leader epoch of each partition in `ranges`, where known.
        """
        bounds = {
            partition: tuple((offsets.start, offsets.end) for offsets in of_partition)
            for partition, of_partition in ranges.items()
        }
        return cls(
            v=VERSION,
            stream=stream,
            plan=plan,
            generation=generation,
            member=member,
            group=group,
            ranges=by_topic(bounds),
            starts=_in_runs(starts),
            cut=None if cut == (None, None) else cut,
            shared=shared,
            topics=dict(topics),
            cluster=cluster,
            epochs=_in_runs(epochs),
        )

    def following(
        self,
        ranges: Ranges,
        records: Mapping[TopicPartition, CommitRecord],
        ids: Mapping[str, str | None],
        *,
        generation: int,
        member: str,
        starts: Starts,
        start_ids: Mapping[str, str],
        cluster: str | None,
        cut: Cut,
        epochs: Mapping[TopicPartition, int],
    ) -> PlanOffset:
        """Return the offset of the plan that follows this one. The offset has everything that a run needs to replay the plan.

        Args:
            ranges: As in `build`.
            records: The record of each of these partitions.
            ids: The topics' ids now, as in `losses.LogState.ids`, for records that were adopted without a topic id.
            generation: As in `build`.
            member: As in `build`.
            starts: As in `build`.
            start_ids: Their topics' ids when the stream began, where known.
            cluster: As in `build`.
            cut: As in `build`.
            epochs: Each partition's leader epoch when its end was requested, where known.
        """
        topics = {partition.topic: records[partition].topic_id or ids.get(partition.topic) for partition in ranges}
        # Drop starts that belong to an earlier topic with the same name.
        carried = {
            partition: start
            for partition, start in starts.items()
            if not topic_gone(start_ids.get(partition.topic), topics.get(partition.topic) or "")
        }
        began_with = {topic: start_ids[topic] for topic in topics_of(carried) - topics.keys() if topic in start_ids}
        return self.build(
            stream=self.stream,
            plan=self.plan + 1,
            generation=generation,
            member=member,
            group=self.group,
            ranges=ranges,
            starts=carried,
            topics=began_with | {topic: topic_id for topic, topic_id in topics.items() if topic_id},
            cluster=cluster,
            cut=cut,
            epochs={partition: epochs[partition] for partition in ranges if partition in epochs},
            shared=rule_of_sharing([(partition, offsets) for partition, planned in ranges.items() for offsets in planned], *cut),
        )

    @classmethod
    def parse(cls, offset: Mapping[str, Any], group: str) -> PlanOffset:
        """Parse an offset that Spark has read from the checkpoint.

        Args:
            offset: The offset as plain JSON values.
            group: This query's consumer group.

        Raises:
            OffsetError: The offset was written by another version, another source, or a query in another group.
        """
        refuse_another_format(offset)
        try:
            parsed = _read(json.dumps(offset))
        except ValidationError as error:
            mistake = error.errors(include_url=False, include_input=False)[0]
            field = "".join(f"{name}: " for name in mistake["loc"][:1])
            raise OffsetError(
                "The checkpoint contains an offset that the groupkafka source did not write "
                f"({field}{mistake.get('ctx', {}).get('error', mistake['msg'])}). Each query needs its own checkpoint. A query "
                "cannot continue from a checkpoint of Spark's own Kafka source, but `groupkafka migrate` copies its offsets."
            ) from None
        if parsed.group != group:
            raise OffsetError(
                f"The checkpoint belongs to the consumer group {parsed.group!r}, but kafka.group.id is {group!r}. Set "
                f"kafka.group.id to {parsed.group!r}, or start with a new checkpoint."
            )
        return parsed

    @functools.cached_property
    def by_partition(self) -> Ranges:
        """The plan's ranges, including empty ones."""
        return MappingProxyType(
            {
                TopicPartition(topic, int(partition)): tuple(OffsetRange(start, end) for start, end in bounds)
                for topic, partitions in self.ranges.items()
                for partition, bounds in partitions.items()
            }
        )

    @functools.cached_property
    def start_of(self) -> Starts:
        """Where partitions without a commit start, except those that are read from the beginning."""
        return _by_partition(self.starts)

    @functools.cached_property
    def epoch_of(self) -> Mapping[TopicPartition, int]:
        """The leader epoch of each partition in the ranges, where known."""
        return _by_partition(self.epochs)

    def to_json(self) -> dict[str, Any]:
        """Return the offset as Spark stores it: plain dicts and lists, with sorted keys at every level."""
        in_order: dict[str, Any] = json.loads(json.dumps(self.model_dump(mode="json", exclude_defaults=True), sort_keys=True))
        return in_order


def refuse_another_format(offset: Mapping[str, Any]) -> None:
    """Reject an offset that another version of this package wrote in a format that this version cannot read.

    Args:
        offset: The offset as plain JSON values. Another source's offset passes.

    Raises:
        OffsetError: Another version wrote it.
    """
    version = offset.get("v")
    if type(version) is int and version > 0 and version != VERSION:
        raise OffsetError(another_version("The checkpoint", version, VERSION))


def _in_runs(values: Mapping[TopicPartition, V]) -> dict[str, dict[str, tuple[V, ...]]]:
    """Group the values into lists of consecutive partitions, by topic and first partition."""
    runs: dict[str, dict[str, tuple[V, ...]]] = {}
    # Within a run, a partition's number minus its index in the order is constant.
    for (topic, _), run in itertools.groupby(
        enumerate(sorted(values)), lambda placed: (placed[1].topic, placed[1].partition - placed[0])
    ):
        partitions = [partition for _, partition in run]
        runs.setdefault(topic, {})[str(partitions[0].partition)] = tuple(values[partition] for partition in partitions)
    return runs


def _by_partition(in_runs: Mapping[str, Mapping[str, tuple[V, ...]]]) -> Mapping[TopicPartition, V]:
    """Return the values by partition: the inverse of `_in_runs`."""
    return MappingProxyType(
        {
            TopicPartition(topic, number): value
            for topic, runs in in_runs.items()
            for first, run in runs.items()
            for number, value in enumerate(run, int(first))
        }
    )


@functools.lru_cache(maxsize=4)
def _read(text: str) -> PlanOffset:
    """Parse an offset, or return it from a cache.

    Spark passes the same few offsets in each of its calls, and an offset with thousands of partitions takes a long time to parse.

    Raises:
        ValidationError: The text is not in the format.
    """
    return PlanOffset.model_validate_json(text)
