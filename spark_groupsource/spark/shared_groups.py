"""Warns of queries of one driver that share a group's records, and of a query with state whose group has other members. Pure.

With Spark's own source, each query and each load of a query gets all records, so it is a surprise that the members of a group
share them. A source's end offset shows its group, the partitions that it owns (`ranges`), and topics of which it does not own a
partition yet (`starts`, and `topics` in the first offset of a new checkpoint). It does not show the subscription. So a restarted
source shows a topic only once it has had a partition of it. A source without any partition has no micro-batch, and shows nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_groupsource.checkpoint.offset_log import plan_of

log = logging.getLogger(__name__)

JsonOffset = Mapping[str, Any]
"""An offset of this source (`plan_offset.PlanOffset`), as plain JSON values."""


@dataclass(frozen=True)
class Source:
    """One source of a running query, as its micro-batches have shown it."""

    query: str
    """The query's id."""
    run: str
    name: str
    """The query's name, or its id if it has none."""
    has_state: bool
    topics: frozenset[str]
    """All topics that it has shown in this run."""
    offset: JsonOffset
    """The end offset of its newest micro-batch."""


def topics_in(offset: JsonOffset) -> frozenset[str]:
    """Return the topics that an offset shows as subscribed."""
    return frozenset().union(*(offset.get(field, ()) for field in ("ranges", "starts", "topics")))


def share(source: Source, other: Source) -> bool:
    """Return whether two sources share the records of a topic between them."""
    same_group = all(source.offset.get(field) == other.offset.get(field) for field in ("cluster", "group"))
    return same_group and not source.topics.isdisjoint(other.topics)


def gave_up_a_part(earlier: JsonOffset, later: JsonOffset) -> bool:
    """Return whether a member has lost some but not all partitions of a topic, which another member must have now.

    A topic that is missing completely may have been deleted, and a topic that was created again may have fewer partitions. A
    member that was expelled rejoins as a new member, and may get its partitions one after the other.

    Args:
        earlier: an offset of the member.
        later: a later offset of the same stream.
    """
    if earlier["member"] != later["member"]:
        return False
    earlier_ids, later_ids = earlier.get("topics", {}), later.get("topics", {})
    return any(
        earlier_ids.get(topic) == later_ids.get(topic) and bool(earlier["ranges"].get(topic, {}).keys() - partitions.keys())
        for topic, partitions in later["ranges"].items()
    )


class SharedGroups:
    """Keeps track of the sources of all running queries of this driver. Used on the thread of Spark's listeners."""

    def __init__(self) -> None:
        self._application: str | None = None
        self._sources: dict[str, Source] = {}
        """The sources by stream name, which a restart on the same checkpoint keeps."""
        self._warned: set[object] = set()
        """What was warned of: ids of queries with state, and groups with the ids of the queries that share them."""

    def begin(self, application: str) -> None:
        """Forget the queries of an earlier SparkContext, because Spark does not report their end when the context is stopped."""
        if application != self._application:
            self._application = application
            self._sources.clear()

    def progressed(self, progress: Mapping[str, Any]) -> None:
        """Take the progress of a micro-batch, as Spark's JSON. Several listeners may pass the same progress.

        A plan of an earlier run, which is replayed or has no successor yet, does not show what this run subscribes to.
        """
        if "latestOffset" not in progress["durationMs"]:
            return
        for source in progress["sources"]:
            offset = source.get("endOffset")
            planned = plan_of(offset)
            if planned is not None and offset != source.get("startOffset"):
                self._take(planned[0], offset, progress)

    def ended(self, run: str) -> None:
        """Forget a run of a query."""
        self._sources = {stream: source for stream, source in self._sources.items() if source.run != run}

    def _take(self, stream: str, offset: JsonOffset, progress: Mapping[str, Any]) -> None:
        earlier = self._sources.get(stream)
        if earlier is not None and earlier.run != progress["runId"]:
            earlier = None
        source = Source(
            progress["id"],
            progress["runId"],
            progress.get("name") or progress["id"],
            bool(progress["stateOperators"]),
            topics_in(offset) | (earlier.topics if earlier else frozenset()),
            offset,
        )
        self._sources[stream] = source
        for other_stream, other in self._sources.items():
            if other_stream != stream and share(other, source):
                self._warn_of_two(other, source)
                self._warn_of_state(other)
                self._warn_of_state(source)
        if earlier is not None and gave_up_a_part(earlier.offset, offset):
            self._warn_of_state(source)

    def _warn_of_two(self, earlier: Source, later: Source) -> None:
        group = later.offset["group"]
        if not self._is_new((later.offset.get("cluster"), group, frozenset({earlier.query, later.query}))):
            return
        if earlier.query == later.query:
            log.warning(
                "Two sources of query %s are members of group %s for the same topics, so each record reaches only one of them. "
                "If both need all records, give each its own kafka.group.id.",
                later.name,
                group,
            )
        else:
            log.warning(
                "Queries %s and %s of this driver are members of group %s for the same topics, so each record reaches only one "
                "of them. If both need all records, give each its own kafka.group.id.",
                earlier.name,
                later.name,
                group,
            )

    def _warn_of_state(self, source: Source) -> None:
        if source.has_state and self._is_new(source.query):
            log.warning(
                "Query %s keeps state, and group %s has other members for the same topics. When a partition moves, the state of "
                "its keys does not move with it, and results become wrong without an error. Give the query its own "
                "kafka.group.id (docs/running.md, Stateful queries).",
                source.name,
                source.offset["group"],
            )

    def _is_new(self, warning: object) -> bool:
        """Return whether this warning has not been logged yet, and remember it."""
        is_new = warning not in self._warned
        self._warned.add(warning)
        return is_new
