"""The offset JSON: one micro-batch plan, as Spark keeps it in its offset log.

    {"v":1,"stream":…,"plan":…,"generation":…,"member":…,"ranges":{topic:{partition:[[from,to],…]}},
     "topics":{topic:id},"cluster":…}

`ranges` has every partition that was owned. The last range of a partition begins at its position, and is empty (`[to,to]`) when
there is nothing new. Before it stand the ranges that are read in place of another stream (`outstandingClaims`). The ranges carry
their own starts because Spark keeps only end offsets: the start of a partition that was just acquired stands nowhere else.

The offset before the first plan has `"partitions":{topic:count}` instead: how many there were when the stream began. Its
starting options apply to these; other partitions were added later.

`topics` distinguishes a topic from a later one of the same name. `cluster` distinguishes the cluster from another one that the
group was moved to. Both are left out where they are not known. Spark compares offsets as JSON text: keys are sorted.
"""

from __future__ import annotations

import functools
import itertools
import json
import secrets
from collections import Counter
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from spark_groupsource.errors import OffsetError
from spark_groupsource.handoff.commit_record import ClusterId, Offset, PlanNumber, StreamName, TopicId
from spark_groupsource.partition import OffsetRange, Ranges, TopicPartition

VERSION = 1

PartitionNumber = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,9})$")]
Bounds = tuple[Offset, Offset]


class PlanOffset(BaseModel):
    """One plan of one stream. `plan` counts from 0, and -1 is the offset before the first plan."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    v: Annotated[int, Field(ge=1, le=1)] = 1
    stream: StreamName
    plan: PlanNumber
    generation: int
    member: str
    group: str
    ranges: dict[str, dict[PartitionNumber, tuple[Bounds, ...]]]
    partitions: dict[str, Annotated[int, Field(ge=1)]] | None = None
    topics: dict[str, TopicId] = Field(default_factory=dict)
    cluster: ClusterId | None = None

    @model_validator(mode="after")
    def _ordered(self) -> PlanOffset:
        for topic, partitions in self.ranges.items():
            for partition, bounds in partitions.items():
                if not bounds or bounds[-1][0] > bounds[-1][1]:
                    raise ValueError(f"{topic}-{partition}: a range with start <= end is expected")
                if any(start >= end or end > following for (start, end), (following, _) in itertools.pairwise(bounds)):
                    raise ValueError(f"{topic}-{partition}: ranges are empty, overlap, or are out of order")
        return self

    @classmethod
    def first(
        cls,
        group: str,
        partitions: Collection[TopicPartition],
        topics: Mapping[str, str] = MappingProxyType({}),
        cluster: str | None = None,
    ) -> PlanOffset:
        """Return the offset of a new stream that has planned nothing. Its name is random.

        Args:
            group: The consumer group.
            partitions: The partitions that exist now.
            topics: The ids of their topics, as far as they are known.
            cluster: The cluster's id, if it is known.
        """
        counts = dict(Counter(partition.topic for partition in partitions))
        name = secrets.token_hex(8)
        return cls(
            stream=name,
            plan=-1,
            generation=-1,
            member="",
            group=group,
            ranges={},
            partitions=counts,
            topics=dict(topics),
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
        topics: Mapping[str, str] = MappingProxyType({}),
        cluster: str | None = None,
    ) -> PlanOffset:
        """Return the offset of a plan.

        Args:
            stream: The stream's name.
            plan: The plan's number.
            generation: The member's generation when it planned.
            member: The member's id when it planned.
            group: The consumer group.
            ranges: The ranges of each owned partition.
            topics: The ids of their topics, as far as they are known.
            cluster: The cluster's id, if it is known.
        """
        by_topic: dict[str, dict[str, tuple[Bounds, ...]]] = {}
        for partition in sorted(ranges):
            bounds = tuple((offsets.start, offsets.end) for offsets in ranges[partition])
            by_topic.setdefault(partition.topic, {})[str(partition.partition)] = bounds
        return cls(
            stream=stream,
            plan=plan,
            generation=generation,
            member=member,
            group=group,
            ranges=by_topic,
            topics=dict(topics),
            cluster=cluster,
        )

    @classmethod
    def parse(cls, offset: Mapping[str, Any], group: str) -> PlanOffset:
        """Read an offset that Spark returns from the checkpoint.

        Args:
            offset: The offset as plain JSON values.
            group: The consumer group of this query.

        Raises:
            OffsetError: A newer version, another source, or a query in another group wrote the offset.
        """
        version = offset.get("v")
        if isinstance(version, int) and version > VERSION:
            raise OffsetError(
                f"The checkpoint was written by a newer version of spark_groupsource (offset format {version}; this one "
                f"reads up to {VERSION}). Run that version, or a newer one, on this checkpoint."
            )
        try:
            parsed = _read(json.dumps(offset))
        except ValidationError as error:
            raise OffsetError(
                "The checkpoint holds an offset that the groupkafka source did not write "
                f"({error.errors(include_url=False, include_input=False)[0]['msg']}). Each query needs its own checkpoint. A "
                "checkpoint of the built-in kafka source cannot be continued, but `groupkafka migrate` copies its offsets."
            ) from None
        if parsed.group != group:
            raise OffsetError(
                f"The checkpoint belongs to the consumer group {parsed.group!r}, but kafka.group.id is {group!r}. Set "
                f"kafka.group.id to {parsed.group!r}, or start with a new checkpoint."
            )
        return parsed

    @functools.cached_property
    def by_partition(self) -> Ranges:
        """The plan's ranges, empty ones included."""
        return MappingProxyType(
            {
                TopicPartition(topic, int(partition)): tuple(OffsetRange(*each) for each in bounds)
                for topic, partitions in self.ranges.items()
                for partition, bounds in partitions.items()
            }
        )

    def began_with(self) -> frozenset[TopicPartition]:
        """Return the partitions that existed when the stream began. None once it has planned."""
        counts = self.partitions or {}
        return frozenset(TopicPartition(topic, number) for topic, count in counts.items() for number in range(count))

    def to_json(self) -> dict[str, Any]:
        """Return what Spark stores: plain dicts and lists, with sorted keys at every level."""
        plain = self.model_dump(mode="json", exclude_none=True)
        plain["ranges"] = {topic: dict(sorted(partitions.items())) for topic, partitions in sorted(plain["ranges"].items())}
        if self.partitions is not None:
            plain["partitions"] = dict(sorted(plain["partitions"].items()))
        plain["topics"] = dict(sorted(plain["topics"].items()))
        if not self.topics:
            del plain["topics"]
        return dict(sorted(plain.items()))


@functools.lru_cache(maxsize=4)
def _read(text: str) -> PlanOffset:
    """Return the parsed offset, from a cache.

    Spark passes the same few offsets in each of its calls. Parsing one with thousands of partitions takes long.

    Raises:
        ValidationError: The text is not in the format.
    """
    return PlanOffset.model_validate_json(text)
