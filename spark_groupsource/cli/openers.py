"""Who may have a transaction open: the marks that tasks of the sink leave in groups before they write.

A mark stays when its transaction has ended well, so it says only what may be. librdkafka cannot ask for open transactions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from spark_groupsource.brokers.group_admin_process import GroupAdminProcess
from spark_groupsource.errors import TokenUnreadable
from spark_groupsource.partition import TopicPartition
from spark_groupsource.patience import Deadline
from spark_groupsource.sink.names import Names, open_group
from spark_groupsource.sink.token import Committed, Mark, Opener, mark_in, newest_token
from spark_groupsource.timeouts import CHECK_STEP_S, LIST_AGAIN_S

Kept = Mapping[TopicPartition, tuple[int, str | None]]
"""The offsets of a group, with their metadata."""


class Candidate(NamedTuple):
    """A task that may have a transaction open."""

    names: Names
    """Any client may choose a prefix, so the names are not to be printed raw."""
    task: int
    run: str
    """Empty if it is not known."""
    opener: Opener
    topic: str
    """The topic that its mark is on. If its rows name their topics, it may have written to others as well."""
    batch: int | None
    """The newest micro-batch that this task has finished. `None`: there is none, or it is not known."""

    @property
    def transactional_id(self) -> str:
        """The task's transactional id. Not to be printed raw."""
        return self.names.task(self.task)


class Openers(NamedTuple):
    """Who may have a transaction open, as far as the user may see it."""

    candidates: tuple[Candidate, ...]
    """Those with a mark on the topic first, and the newest first."""
    unreadable: tuple[str, ...]
    """Groups that hold something else than a mark or a token. Their names are not to be printed raw."""


def openers(brokers: GroupAdminProcess, topic: str, prefix: str | None) -> Openers:
    """Return who may have a transaction open in a topic.

    Args:
        brokers: What is asked.
        topic: The topic.
        prefix: The `transactionalIdPrefix` of the queries. `None`: any.

    Raises:
        GroupKafkaError: The groups cannot be listed, or what they hold cannot be read.
    """
    groups = Deadline(CHECK_STEP_S).retry(lambda: brokers.groups("-open"), interval_s=LIST_AGAIN_S)
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
    """Return run and opener of each mark of a transaction that may be open, by the topic that it is on."""
    marks: dict[str, tuple[str, Opener]] = {}
    for partition, (offset, metadata) in kept.items():
        mark: Mark | None = None
        try:
            # One by one: what another client writes beside a mark must not hide it.
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
