"""Measures what open transactions hide from `read_committed` consumers, and lists the tasks that may have a transaction open.

The list is based on the marks that the sink's tasks commit to groups before they write. A mark remains after its transaction
commits or aborts, so the list may be too long. librdkafka has no request for open transactions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from spark_groupsource.brokers.group_admin_process import GroupAdminProcess
from spark_groupsource.brokers.topics import Topics
from spark_groupsource.errors import TokenUnreadable
from spark_groupsource.partition import TopicPartition
from spark_groupsource.patience import Deadline
from spark_groupsource.sink.names import Names, open_group
from spark_groupsource.sink.token import Committed, Mark, Opener, mark_in, newest_token
from spark_groupsource.timeouts import ASK_AGAIN_S, CHECK_STEP_S


@dataclass(frozen=True)
class _NoSubscription:
    """A subscription that matches no topic."""

    subscribe: tuple[str, ...] = ()

    def matches(self, topic: str) -> bool:  # noqa: ARG002 -- no topic does
        return False


def topics_by_name(settings: Mapping[str, str], *, read_committed: bool = False) -> Topics:
    """Return the brokers' topics, to look them up by name.

    Raises:
        OptionError, AuthenticationFailed: See `Topics`.
    """
    return Topics(settings, _NoSubscription(), read_committed=read_committed, patience_s=CHECK_STEP_S)


class Visibility(NamedTuple):
    """How much of a partition is visible and how much is hidden. An offset is `None` if the leader did not return it."""

    partition: TopicPartition
    stable: int | None
    """The last stable offset (exclusive), up to which `read_committed` consumers can read."""
    end: int | None
    """The high watermark (exclusive)."""

    @property
    def hidden(self) -> int | None:
        """How many offsets have been written but are not visible yet, or `None` if unknown."""
        return None if self.stable is None or self.end is None else max(0, self.end - self.stable)


def visibility(settings: Mapping[str, str], partitions: Collection[TopicPartition]) -> list[Visibility]:
    """Return how much of each partition is visible to `read_committed` consumers, sorted by partition.

    Args:
        settings: The settings for a client.
        partitions: The partitions.

    Raises:
        NotAuthorized: The user may not describe a topic.
        AuthenticationFailed: The brokers refuse the login.
    """
    # Ask for the ends first. Otherwise a record written between the two requests would seem to be in an open transaction.
    ends = all_ends(topics_by_name(settings), partitions)
    stable = all_ends(topics_by_name(settings, read_committed=True), partitions)
    return [Visibility(partition, stable.get(partition), ends.get(partition)) for partition in sorted(set(partitions))]


def all_ends(topics: Topics, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return each partition's end (exclusive), leaving out partitions whose leader does not answer within CHECK_STEP_S.

    Raises:
        NotAuthorized: The user may not describe a topic.
        AuthenticationFailed: The brokers refuse the login.
    """
    topics = topics.without_patience()
    ends: dict[TopicPartition, int] = {}
    for _ in Deadline(CHECK_STEP_S).attempts():
        ends |= topics.ends([partition for partition in partitions if partition not in ends])
        if len(ends) == len(set(partitions)):
            break
    return ends


Kept = Mapping[TopicPartition, tuple[int, str | None]]
"""A group's committed offsets, each with its metadata."""


class Candidate(NamedTuple):
    """A task that may have an open transaction."""

    names: Names
    """The names of the task's query. Any client may choose the prefix, so never print them raw."""
    task: int
    run: str
    """The query's run, or an empty string if it is unknown."""
    opener: Opener
    topic: str
    """The topic in which the task's mark is committed. If its rows name their topics, it may also have written to others."""
    batch: int | None
    """The last micro-batch that this task finished, or `None` if there is none or it is unknown."""

    @property
    def transactional_id(self) -> str:
        """The task's transactional id. Never print it raw."""
        return self.names.task(self.task)


class Openers(NamedTuple):
    """The tasks that may have an open transaction, as far as this user may see them."""

    candidates: tuple[Candidate, ...]
    """The tasks with a mark in the topic, newest first, and then the others, also newest first."""
    unreadable: tuple[str, ...]
    """Groups that contain something other than a mark or a token. Never print their names raw."""


def openers(brokers: GroupAdminProcess, topic: str, prefix: str | None) -> Openers:
    """Return the tasks that may have an open transaction in a topic.

    Args:
        brokers: The client for requests to the brokers.
        topic: The topic.
        prefix: The queries' `transactionalIdPrefix`, or `None` for any.

    Raises:
        GroupKafkaError: The groups cannot be listed, or their offsets cannot be read.
    """
    groups = Deadline(CHECK_STEP_S).retry(lambda: brokers.groups("-open"), interval_s=ASK_AGAIN_S)
    found: list[Candidate] = []
    unreadable: list[str] = []
    for group in groups:
        marked = open_group(group)
        if marked is None or prefix not in (None, marked[0].prefix):
            continue
        names, task = marked
        marks = _open_marks(brokers.offsets(group), group, names.query, unreadable)
        if marks:
            where = topic if topic in marks else max(marks, key=lambda name: marks[name][1].at)
            batch = _newest_batch(brokers.offsets(names.task(task)), names.task(task), names.query, unreadable)
            found.append(Candidate(names, task, *marks[where], where, batch))
    found.sort(key=lambda candidate: (candidate.topic != topic, -candidate.opener.at, candidate.names, candidate.task))
    return Openers(tuple(found), tuple(unreadable))


def _open_marks(kept: Kept, group: str, query: str, unreadable: list[str]) -> dict[str, tuple[str, Opener]]:
    """Return the run and the opener from each mark whose transaction may be open, by the mark's topic."""
    marks: dict[str, tuple[str, Opener]] = {}
    for partition, (offset, metadata) in kept.items():
        mark: Mark | None = None
        try:
            # Read each commit separately, so that another client's commit does not hide a mark.
            mark = mark_in([Committed(offset, metadata or "")], group, query)
        except TokenUnreadable:
            unreadable += [] if group in unreadable else [group]
        if mark is not None and mark.open is not None:
            marks[partition.topic] = mark.run, mark.open
    return marks


def _newest_batch(kept: Kept, group: str, query: str, unreadable: list[str]) -> int | None:
    try:
        token = newest_token((Committed(offset, metadata or "") for offset, metadata in kept.values()), group, query)
    except TokenUnreadable:
        unreadable.append(group)
        return None
    return None if token is None else token.batch
