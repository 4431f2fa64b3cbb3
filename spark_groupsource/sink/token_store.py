"""Reads, commits and lists a query's tokens and marks in Kafka.

With the `topic` option, they are committed offsets for partition 0 of that topic. Without it, each row names its topic, and a
token may be on any of these topics, so all offsets of a group are read.
"""

from __future__ import annotations

import ctypes
import logging
import os
import re
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from spark_groupsource.brokers.group_offsets import GroupOffsets
from spark_groupsource.errors import BrokerUnavailable, GroupKafkaError, NotAuthorized, TopicNotFound
from spark_groupsource.patience import Deadline
from spark_groupsource.sink.failures import explain_token
from spark_groupsource.sink.names import FIRST_REACH, REACHES, Names, reaches_of, token_group
from spark_groupsource.sink.rules import Place
from spark_groupsource.sink.token import BatchToken, Committed, Mark, Opener, Token, mark_in, newest_batch_token, newest_token
from spark_groupsource.timeouts import ASK_AGAIN_S, GROUP_OFFSETS_S

if TYPE_CHECKING:
    from spark_groupsource.brokers.group_admin import GroupAdmin

log = logging.getLogger(__name__)

MARK_AGAIN_S = 600.0
"""How long a process relies on a mark that it has left. Marks expire, as tokens do, so they have to be renewed."""

T = TypeVar("T")

_READ_TOGETHER = 8
"""How many groups are read in parallel. Each needs a client."""

_MARKED: dict[tuple[str, str], float] = {}
"""When this process last committed a mark to each group, by group and run."""


class TokenStore:
    """One query's tokens and marks, in the consumer groups that its `Names` define.

    Use a store from one thread at a time, and close it afterwards.

    Args:
        settings: The finished settings for a client that sends requests.
        names: The query's names.
        topic: The `topic` option.
    """

    def __init__(self, settings: Mapping[str, str], names: Names, topic: str | None) -> None:
        self._settings = settings
        self._names = names
        self._topic = topic
        self._clients: dict[str, GroupOffsets] = {}
        """The open clients, by group."""
        self._topics_of_driver: list[str] = []
        """The topics that have a token from the driver."""
        self._marked = _MARKED

    def connect(self, task: int, run: str) -> None:
        """Create the clients that a task will need, so that they start to look up their coordinators. Does not block.

        Args:
            task: The task's number.
            run: The query's run; empty if it is unknown.

        Raises:
            OptionError, AuthenticationFailed: See `make_client`.
        """
        mark = self._names.open(task)
        read = [self._names.task(task)]
        if not self._has_marked(mark, run):
            # This is probably the run's first micro-batch: the task will read the driver's token, and commit its mark.
            read.append(self._names.driver)
            self._client(mark)
        # Without the `topic` option, an AdminClient reads these groups.
        for group in read if self._topic is not None else ():
            self._client(group)

    def connect_driver(self) -> None:
        """Create the clients that a driver will need in the first micro-batch of a run. Does not block."""
        if self._topic is not None:
            self._client(self._names.driver)
            self._client(self._names.reach(REACHES[0]))

    def read_task(self, task: int, topics: Collection[str] = ()) -> Token | None:
        """Return a task's token, once the task's transaction has committed or aborted.

        Args:
            task: The task's number.
            topics: Topics that an unfinished transaction may have written to, if rows name their topics. A request for all
                offsets of a group misses a transaction that commits to a topic for the first time (KAFKA-17507).

        Raises:
            TokenUnreadable: Another client has committed to the group.
            BrokerError: See `GroupOffsets.read`.
        """
        group = self._names.task(task)
        if self._topic is None and topics:
            self._client(group).read(topics)
        return newest_token(self._read_once(group).values(), group, self._names.query)

    def read_tasks(self, tasks: Collection[int], topics: Collection[str] = ()) -> dict[int, Token]:
        """Return the tokens of these tasks by task number, leaving out tasks without one.

        Raises:
            TokenUnreadable, BrokerError: See `read_task`.
        """
        return self._each(lambda task: self.read_task(task, topics), tasks)

    def read_driver(self) -> BatchToken | None:
        """Return the driver's token, or `None` if there is none.

        Raises:
            TokenUnreadable, BrokerError: See `read_task`.
        """
        found = self._read(self._names.driver)
        self._topics_of_driver = sorted(found)
        return newest_batch_token(found.values(), self._names.driver, self._names.query)

    def read_marks(self, tasks: Collection[int]) -> dict[int, Mark]:
        """Return the marks of those tasks that may have an open transaction, by task number.

        Raises:
            TokenUnreadable, BrokerError: See `read_task`.
        """

        def open_mark(task: int) -> Mark | None:
            group = self._names.open(task)
            mark = mark_in(self._read_once(group).values(), group, self._names.query)
            return mark if mark is not None and mark.open is not None else None

        return self._each(open_mark, tasks)

    def read_reach(self) -> int:
        """Return an exclusive upper bound for the numbers of all tasks that have left a mark.

        Raises:
            BrokerError: See `GroupOffsets.read`.
        """
        reach = FIRST_REACH
        for end in REACHES:
            if not self._read_once(self._names.reach(end)):
                break
            reach = end
        return reach

    def commit_mark(self, task: int, run: str, topics: Collection[str] = ()) -> None:
        """Commit a mark that a task may have an open transaction, unless this process has recently done so in this run.

        If the query's next run has fewer tasks, its driver uses the marks to find the transactions that it has to abort, and
        the tasks that may have written. Each task has its own group for its mark, because tasks commit their marks
        at the same time.

        Args:
            task: The task's number.
            run: The query's run; empty if it is unknown.
            topics: The topics in the first rows, if rows name their topics.

        Raises:
            BrokerError: See `GroupOffsets.commit`.
        """
        topic = self._topic if self._topic is not None else min(topics)
        host = re.sub(r"[^A-Za-z0-9._:%-]", "_", socket.gethostname())[:255]
        mark = Mark(self._names.query, run, Opener(int(time.time()), host, os.getpid()))
        # Commit the reaches first, because a driver does not look for marks above the reach that it finds.
        for group in (*map(self._names.reach, reaches_of(task)), self._names.open(task)):
            if not self._has_marked(group, run):
                self._client(group).commit(topic, mark.offset, mark.metadata())
                self._marked[group, run] = time.monotonic()

    def commit_ended(self, tasks: Iterable[int], run: str, topics: Collection[str]) -> None:
        """Replace the marks of tasks without an open transaction, best effort: a leftover mark only costs time.

        Args:
            tasks: The tasks' numbers.
            run: The query's run.
            topics: The topics that the micro-batch wrote to.
        """
        ended = Mark(self._names.query, run, None)
        for task in tasks:
            group = self._names.open(task)
            try:
                for topic in self._read(group) or self._topics_for_driver(topics):
                    self._client(group).commit(topic, ended.offset, ended.metadata())
            except GroupKafkaError as refused:
                log.info("%s: could not be updated, so the next run will check this task again: %s", group, refused)
            self._close(group)

    def commit_driver(self, token: BatchToken, topics: Iterable[str]) -> None:
        """Commit the driver's token on the first topic that accepts it.

        Args:
            token: The token.
            topics: The topics that the micro-batch wrote to.

        Raises:
            BrokerError, CommitError: See `GroupOffsets.commit`. If no topic accepts the token, the last topic's error.
        """
        refused: NotAuthorized | TopicNotFound | None = None
        for topic in self._topics_for_driver(topics):
            try:
                self._client(self._names.driver).commit(topic, token.offset, token.metadata())
            except (NotAuthorized, TopicNotFound) as error:
                refused = error
            else:
                return
        if refused is not None:
            raise refused
        log.warning(
            "%s: the sink cannot commit the offset of micro-batch %d, because it knows of no topic: the query has not written "
            "a row yet, and its user is not allowed to describe any topic. Nothing is lost or duplicated, but the first "
            "micro-batch with rows will fail with BatchUnknown. To avoid that, set the topic option, or grant the user "
            "DESCRIBE on a topic.",
            self._names.driver,
            token.batch,
        )

    def list_elsewhere(self, topics: Collection[str] = ()) -> list[Place]:
        """Return the tokens that the query has left under other names, in groups that its user is allowed to describe.

        Args:
            topics: The topics of the query's rows, if rows name their topics.

        Raises:
            BrokerError: See `GroupAdmin.groups_that_move_too` and `GroupAdmin.offsets`.
        """
        found: defaultdict[Names, dict[int | None, Mapping[str, Committed]]] = defaultdict(dict)
        for group in self._listed(topics):
            owner = token_group(group)
            # The tasks and the driver read the groups with the current names anyway.
            if owner is not None and owner[0].query == self._names.query and owner[0] != self._names:
                names, task = owner
                found[names][task] = self._read_all(group)
        return [Place.of(names, found[names]) for names in sorted(found)]

    def close(self, *, wait: bool = True) -> None:
        """Close the connections. Later requests create new clients.

        Args:
            wait: See `GroupOffsets.close`.
        """
        for group in list(self._clients):
            self._close(group, wait=wait)

    def close_others(self) -> None:
        """Close all connections except the one for the driver's token."""
        for group in self._clients.keys() - {self._names.driver}:
            self._close(group)

    def abandon(self) -> None:
        """Leak the clients in a forked child, where they must be neither used nor freed, by keeping a reference forever."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))

    def _has_marked(self, group: str, run: str) -> bool:
        return bool(run) and time.monotonic() - self._marked.get((group, run), -MARK_AGAIN_S) < MARK_AGAIN_S

    def _topics_for_driver(self, topics: Iterable[str]) -> list[str]:
        """Return the topics that can hold the driver's token, best first: the token should stay on its current topic."""
        if self._topic is not None:
            return [self._topic]
        # A query that has never written a row keeps its token on any topic that its user is allowed to describe.
        return [*self._topics_of_driver, *topics] or self._admin().topics()

    def _listed(self, topics: Collection[str]) -> list[str]:
        """Return the groups that have the query's id in their names, retrying if a broker does not answer."""
        known = topics if self._topic is None else [self._topic]
        found: set[str] = set()
        unanswered = BrokerUnavailable("listing the groups: the brokers took too long")
        lists_left = 1
        for _ in Deadline(GROUP_OFFSETS_S).attempts(ASK_AGAIN_S):
            try:
                found.update(self._admin().groups_that_move_too(self._names.query, known))
                lists_left -= 1
            except BrokerUnavailable as error:
                log.info("listing the groups again: %s", error)
                unanswered = error
                # A broker that has come back, or has just taken over groups, may leave them out of its first list.
                lists_left = 2
            if not lists_left:
                return sorted(found)
        raise unanswered

    def _read(self, group: str) -> Mapping[str, Committed]:
        """Return a group's offsets by topic, and keep the connection open."""
        if self._topic is None:
            return self._read_all(group)
        return _by_topic(self._client(group).read([self._topic]))

    def _read_once(self, group: str) -> Mapping[str, Committed]:
        """Return a group's offsets by topic, and close the connection, because a driver reads many groups."""
        found = self._read(group)
        self._close(group)
        return found

    def _read_all(self, group: str) -> Mapping[str, Committed]:
        # Use a new client for each call: an AdminClient keeps the first coordinator that it finds, even after the group has
        # moved.
        found = self._admin().offsets(group, stable=True)
        return _by_topic({partition.topic: kept for partition, kept in found.items() if partition.partition == 0})

    def _each(self, read: Callable[[int], T | None], tasks: Collection[int]) -> dict[int, T]:
        """Call `read` for several tasks in parallel, and return the results that are not `None`, by task."""
        with ThreadPoolExecutor(_READ_TOGETHER) as threads:
            found = zip(tasks, threads.map(read, tasks), strict=True)
            return {task: value for task, value in found if value is not None}

    def _client(self, group: str) -> GroupOffsets:
        if group not in self._clients:
            self._clients[group] = self._make(group)
        return self._clients[group]

    def _make(self, group: str) -> GroupOffsets:
        return GroupOffsets(self._settings, group, explain_token)

    def _close(self, group: str, *, wait: bool = False) -> None:
        if group in self._clients:
            self._clients.pop(group).close(wait=wait)

    def _admin(self) -> GroupAdmin:
        # Importing this takes a new worker 0.2 s. With the `topic` option, only the first micro-batch of a run needs it.
        from spark_groupsource.brokers.group_admin import GroupAdmin

        return GroupAdmin(self._settings)


def _by_topic(found: Mapping[str, tuple[int, str | None]]) -> Mapping[str, Committed]:
    return {topic: Committed(offset, metadata or "") for topic, (offset, metadata) in found.items()}
