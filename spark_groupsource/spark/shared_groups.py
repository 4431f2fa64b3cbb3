"""Warns of queries of one driver that share a group's records, and of a query with state whose group has other members. Pure.

With Spark's own source each query gets all records, and each load of a query, too. So it surprises that members of one group
share them. A source's end offset shows its group, the partitions that it owns (`ranges`), and topics of which it owns none yet
(`starts`, and `topics` in the first offset of a new checkpoint). It does not show the subscription. So a source that was
restarted shows a topic once it has had a partition of it, and without any partition it is in no micro-batch and shows nothing.
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
    """What the micro-batches of a run have shown of one source."""

    query: str
    """The query's id."""
    run: str
    name: str
    """The query's name, or its id if it has none."""
    has_state: bool
    topics: frozenset[str]
    """All topics that it has shown in this run."""
    offset: JsonOffset
    """The end of its newest micro-batch."""


def topics_in(offset: JsonOffset) -> frozenset[str]:
    """Return the topics that an offset shows as subscribed."""
    return frozenset().union(*(offset.get(field, ()) for field in ("ranges", "starts", "topics")))


def share(source: Source, other: Source) -> bool:
    """Return whether two sources divide the records of a topic between them."""
    same_group = all(source.offset.get(field) == other.offset.get(field) for field in ("cluster", "group"))
    return same_group and not source.topics.isdisjoint(other.topics)


def gave_up_a_part(before: JsonOffset, now: JsonOffset) -> bool:
    """Return whether the group took partitions of a topic from a member, and left it others: another member has them now.

    A topic that is gone as a whole may be deleted, and one that was created again may be smaller. A member that was expelled
    joins as another one, and may get its partitions one after the other.

    Args:
        before: an offset of the member.
        now: a later one of the same stream.
    """
    if before["member"] != now["member"]:
        return False
    ids_before, ids_now = before.get("topics", {}), now.get("topics", {})
    return any(
        ids_before.get(topic) == ids_now.get(topic) and bool(before["ranges"].get(topic, {}).keys() - partitions.keys())
        for topic, partitions in now["ranges"].items()
    )


class SharedGroups:
    """The sources of all running queries of this driver, by their progress. Used on the thread of Spark's listeners."""

    def __init__(self) -> None:
        self._application: str | None = None
        self._sources: dict[str, Source] = {}
        """By the stream's name, which a restart on the same checkpoint keeps."""
        self._warned: set[object] = set()
        """Ids of queries with state, and groups with the ids of the queries that share them."""

    def begin(self, application: str) -> None:
        """Forget the queries of an earlier SparkContext: when it is stopped, Spark does not tell that they end."""
        if application != self._application:
            self._application = application
            self._sources.clear()

    def progressed(self, progress: Mapping[str, Any]) -> None:
        """Take the progress of a micro-batch, as the JSON that Spark makes of it. Several listeners may take the same one.

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
        before = self._sources.get(stream)
        if before is not None and before.run != progress["runId"]:
            before = None
        now = Source(
            progress["id"],
            progress["runId"],
            progress.get("name") or progress["id"],
            bool(progress["stateOperators"]),
            topics_in(offset) | (before.topics if before else frozenset()),
            offset,
        )
        self._sources[stream] = now
        for other_stream, other in self._sources.items():
            if other_stream != stream and share(other, now):
                self._warn_of_two(other, now)
                self._warn_of_state(other)
                self._warn_of_state(now)
        if before is not None and gave_up_a_part(before.offset, offset):
            self._warn_of_state(now)

    def _warn_of_two(self, earlier: Source, later: Source) -> None:
        group = later.offset["group"]
        if not self._is_new((later.offset.get("cluster"), group, frozenset({earlier.query, later.query}))):
            return
        if earlier.query == later.query:
            log.warning(
                "Two sources of query %s are members of group %s for the same topics: each record reaches only one of them. If "
                "both need all records, give each its own kafka.group.id.",
                later.name,
                group,
            )
        else:
            log.warning(
                "Queries %s and %s of this driver are members of group %s for the same topics: each record reaches only one of "
                "them. If both need all records, give each its own kafka.group.id.",
                earlier.name,
                later.name,
                group,
            )

    def _warn_of_state(self, source: Source) -> None:
        if source.has_state and self._is_new(source.query):
            log.warning(
                "Query %s keeps state, and group %s has other members for the same topics: when a partition moves, the state of "
                "its keys stays behind, and results become wrong without an error. Give the query its own kafka.group.id "
                "(docs/running.md, Stateful queries).",
                source.name,
                source.offset["group"],
            )

    def _is_new(self, warning: object) -> bool:
        """Return whether this is not warned of yet, and note that it is."""
        is_new = warning not in self._warned
        self._warned.add(warning)
        return is_new
