"""What the group's records show of other streams: which of their plans are done, and which of them run now.

A stream writes into every record of its own which plan is done. A range that is owed to it is dropped when one record shows its
plan as done. That record may be of a topic that this query does not subscribe to. It runs on the consumer's thread.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice

from spark_groupsource.errors import GroupKafkaError, NotAuthorized, TopicNotFound
from spark_groupsource.group.fenced_commits import FencedCommits
from spark_groupsource.handoff.commit_record import CommitRecord, GroupCommit
from spark_groupsource.handoff.rules import Stream, alive, evidence
from spark_groupsource.partition import TopicPartition, topics_of

log = logging.getLogger(__name__)

LOOK_ELSEWHERE_EVERY_S = 30.0
"""How often the partitions of other topics are asked for. The request names every partition of the cluster, and what is owed to
a query that was stopped may stay owed for days."""

PARTITIONS_PER_REQUEST = 5_000
"""So many partitions are asked for at once. Their records take at most 20 MB."""

PlanOf = tuple[str, int]
"""A stream and the number of one of its plans."""


class ConfirmedPlans:
    """Looks for the plans that are done. Values are replaced, not edited."""

    def __init__(
        self,
        subscribed: Callable[[], Iterable[TopicPartition]],
        others: Callable[[], Iterable[TopicPartition]],
        *,
        clock: Callable[[], float],
    ) -> None:
        """Begin with nothing found.

        Args:
            subscribed: returns every partition of the subscribed topics.
            others: returns every other partition that the group may hold a record for.
            clock: returns seconds, monotonic.
        """
        self._subscribed = subscribed
        self._others = others
        self._clock = clock
        self._alive: frozenset[str] = frozenset()
        self._missing: frozenset[PlanOf] = frozenset()
        self._looked_for: frozenset[PlanOf] = frozenset()
        self._look_again_at = -math.inf
        self._failed_until = -math.inf

    @property
    def spared(self) -> frozenset[str]:
        """The streams whose ranges nobody takes over now.

        They run (`rules.alive`), or the records of other topics were not asked for their plans yet.
        """
        return self._alive | {stream for stream, _ in self._missing - self._looked_for}

    def find(
        self,
        commits: FencedCommits,
        stream: Stream,
        owned: Collection[TopicPartition],
        holding: Iterable[GroupCommit],
    ) -> dict[str, int]:
        """Return the newest plan of each stream that the group's records show as done.

        The records of subscribed topics are asked for first. Other topics are looked at only if these do not settle every
        claim: at once for a plan that they were not looked at for, and then every LOOK_ELSEWHERE_EVERY_S.

        Args:
            commits: reads the group's records.
            stream: the stream that asks. Its commit log settles its own plans.
            owned: the partitions that this member has, adopted or not yet.
            holding: the records whose claims should be settled.

        Raises:
            GroupKafkaError: the records of the subscribed topics cannot be read. Those of other topics may fail.
        """
        here = commits.fetch(self._subscribed())
        self._alive = alive(here, owned)
        done = {**evidence(here.values()), stream.name: stream.durable}
        self._missing = frozenset(
            plan for plan in _claimed(holding) if done.get(plan[0], -1) < plan[1] and plan[0] != stream.name
        )
        new, now = self._missing - self._looked_for, self._clock()
        if not self._missing or now < (self._failed_until if new else self._look_again_at):
            return done
        self._look_again_at = now + LOOK_ELSEWHERE_EVERY_S
        try:
            elsewhere = evidence(_readable(commits, set(self._others()) - here.keys()))
        except GroupKafkaError as error:
            self._failed_until = self._look_again_at
            log.info("what other topics' records show as done is asked for later: %s", error)
            return done
        self._looked_for = self._missing
        newest = {name: max(done.get(name, -1), elsewhere.get(name, -1)) for name in done.keys() | elsewhere.keys()}
        return {**newest, stream.name: stream.durable}


def _claimed(commits: Iterable[GroupCommit]) -> set[PlanOf]:
    """Return the plans of which some range is open or owed in these records."""
    records = [commit for commit in commits if isinstance(commit, CommitRecord)]
    return {(entry.stream, entry.plan) for record in records for entry in record.owed} | {
        (record.stream, record.logged) for record in records if record.open
    }


def _readable(commits: FencedCommits, partitions: Iterable[TopicPartition]) -> list[GroupCommit]:
    """Return the records of these partitions, without topics that this user may not describe."""
    found: list[GroupCommit] = []
    left = iter(sorted(partitions))
    while part := list(islice(left, PARTITIONS_PER_REQUEST)):
        try:
            found += commits.fetch(part).values()
        except (NotAuthorized, TopicNotFound) as refused:
            log.info("some topics cannot be asked for records of the group: %s", refused)
            found += _readable_topics(commits, part)
    return found


def _readable_topics(commits: FencedCommits, partitions: Collection[TopicPartition]) -> list[GroupCommit]:
    found: list[GroupCommit] = []
    for topic in topics_of(partitions):
        try:
            found += commits.fetch([partition for partition in partitions if partition.topic == topic]).values()
        except (NotAuthorized, TopicNotFound):
            continue
    return found


def record_that_shows(stream: Stream, records: Mapping[TopicPartition, CommitRecord]) -> dict[TopicPartition, CommitRecord]:
    """Return a record to write so that other streams see what this one has confirmed. Nothing if some record shows it.

    Args:
        stream: the stream. It may have released partitions of its last plan with open claims.
        records: the records of its partitions, with durable plans closed.
    """
    shown = max((record.done for record in records.values()), default=stream.durable)
    if shown >= stream.durable or not stream.ranges.keys() - records.keys():
        return {}
    partition = min(records)
    logged = max(records[partition].logged, stream.durable)
    return {partition: records[partition].model_copy(update={"done": stream.durable, "logged": logged})}
