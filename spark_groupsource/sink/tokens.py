"""Reads and commits the tokens and the marks of the sink.

With the option `topic` they are offsets of its partition 0. Otherwise each row names its topic, and a token may be an offset of
any of them: then all offsets of a group are asked for.
"""

from __future__ import annotations

import ctypes
import logging
import os
import re
import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from spark_groupsource.brokers.group_offsets import GroupOffsets
from spark_groupsource.errors import BrokerUnavailable, GroupKafkaError, NotAuthorized, TokenUnreadable, TopicNotFound
from spark_groupsource.patience import Deadline
from spark_groupsource.sink.failures import SINK_ACL, TOKEN_ADVICE
from spark_groupsource.sink.names import FIRST_REACH, REACHES, Names, reaches_of, token_group
from spark_groupsource.sink.rules import Place
from spark_groupsource.sink.token import (
    BatchToken,
    Committed,
    Mark,
    Opener,
    Token,
    mark_in,
    newest_batch_token,
    newest_token,
)
from spark_groupsource.timeouts import GROUP_OFFSETS_S, LIST_AGAIN_S

if TYPE_CHECKING:
    from spark_groupsource.brokers.group_admin import GroupAdmin

log = logging.getLogger(__name__)

MARK_AGAIN_S = 600.0
"""How long a process relies on the mark of a task's transactions that it has left. Marks expire, as tokens do."""

T = TypeVar("T")

_AT_ONCE = 8
"""How many groups are asked at the same time. Each needs a client."""

_MARKED: dict[tuple[str, str], float] = {}
"""When this process has marked a group in a run. Marks expire like all offsets, so a run that lasts renews them."""


class Tokens:
    """The tokens of one query. To be used by one thread, and closed.

    Args:
        client: The finished settings of a client that sends requests.
        names: The names of its groups.
        topic: The option `topic`.
    """

    def __init__(self, client: Mapping[str, str], names: Names, topic: str | None) -> None:
        self._client = client
        self._names = names
        self._topic = topic
        self._groups: dict[str, GroupOffsets] = {}
        self._of_driver: list[str] = []
        self._marked = _MARKED

    def connect(self, task: int, run: str) -> None:
        """Begin to look for the coordinators of the groups that a task will ask for, and wait for nothing.

        Args:
            task: The task's number.
            run: The run of the query; empty if it is not known.

        Raises:
            OptionError, AuthenticationFailed: See `make_client`.
        """
        opened = self._names.open(task)
        if self._topic is not None:
            self._group(self._names.task(task))
        if not self._has_marked(opened, run):
            # Probably the first micro-batch of the run.
            self._group(opened)
            if self._topic is not None:
                self._group(self._names.driver)

    def connect_driver(self) -> None:
        """Do what `connect` does, for the groups that a driver asks for in the first micro-batch of a run."""
        if self._topic is not None:
            self._group(self._names.driver)
            self._group(self._names.reach(REACHES[0]))

    def of_task(self, task: int, topics: Collection[str] = ()) -> Token | None:
        """Return what a task has written last. Waits for the end of its transaction.

        Args:
            task: The task's number.
            topics: Topics that an unfinished transaction may have written to, if rows name theirs. A broker that is asked for all
                offsets of a group passes over one that a transaction commits on a topic for the first time (KAFKA-17507).

        Raises:
            TokenUnreadable: Something else committed to its group.
            BrokerError: See `GroupOffsets.read`.
        """
        group = self._names.task(task)
        if self._topic is None and topics:
            self._group(group).read(topics)
        return newest_token(_committed(self._read(group)), group, self._names.query)

    def of_tasks(self, numbers: Iterable[int], topics: Collection[str] = ()) -> dict[int, Token]:
        """Return what each of these tasks has written last, if anything.

        Raises:
            TokenUnreadable, BrokerError: See `of_task`.
        """

        def read(number: int) -> tuple[int, Token | None]:
            token = self.of_task(number, topics)
            self._close(self._names.task(number))
            return number, token

        return {number: token for number, token in self._each(read, numbers) if token is not None}

    def mark(self, task: int, run: str, topics: Collection[str] = ()) -> None:
        """Make it known that a task may have a transaction open, before it has one. A process does so once in a run.

        Whoever runs the micro-batch again may have fewer tasks. It reads the marks to know whose transactions it has to end, and
        which tasks may have written. Tasks write them at the same time, so each has a group of its own.

        Args:
            task: The task's number.
            run: The run of the query; empty if it is not known.
            topics: The topics of the first rows, if rows name theirs.

        Raises:
            BrokerError: See `GroupOffsets.commit`.
        """
        topic = self._topic if self._topic is not None else min(topics)
        host = re.sub(r"[^A-Za-z0-9._:%-]", "_", socket.gethostname())[:255]
        mark = Mark(self._names.query, run, Opener(int(time.time()), host, os.getpid()))
        # The reaches first: a mark that nobody looks for is none.
        for group in (*map(self._names.reach, reaches_of(task)), self._names.open(task)):
            if not self._has_marked(group, run):
                self._group(group).commit(topic, mark.offset, mark.metadata())
                self._marked[group, run] = time.monotonic()

    def _has_marked(self, group: str, run: str) -> bool:
        return bool(run) and time.monotonic() - self._marked.get((group, run), -MARK_AGAIN_S) < MARK_AGAIN_S

    def unmark(self, tasks: Iterable[int], run: str, topics: Collection[str]) -> None:
        """Make it known that these tasks have no transaction open any more, best effort: a mark that stays costs time only."""
        closed = Mark(self._names.query, run, None)
        for task in tasks:
            group = self._names.open(task)
            try:
                for topic in self._read(group) or self._carriers(topics):
                    self._group(group).commit(topic, closed.offset, closed.metadata())
            except GroupKafkaError as refused:
                log.info("%s: the mark stays, and the next run looks at it again: %s", group, refused)
            self._close(group)

    def marks(self, numbers: Iterable[int]) -> dict[int, Mark]:
        """Return the marks of those of these tasks that may have a transaction open.

        Raises:
            TokenUnreadable, BrokerError: See `of_task`.
        """

        def read(number: int) -> tuple[int, Mark | None]:
            group = self._names.open(number)
            return number, mark_in(_committed(self._read_once(group)), group, self._names.query)

        return {number: mark for number, mark in self._each(read, numbers) if mark is not None and mark.open is not None}

    def reach(self) -> int:
        """Return an end, exclusive, of the numbers of all tasks that have a mark.

        Raises:
            BrokerError: See `GroupOffsets.read`.
        """
        last = FIRST_REACH
        for end in REACHES:
            if not self._read_once(self._names.reach(end)):
                break
            last = end
        return last

    def of_driver(self) -> BatchToken | None:
        """Return what the driver knows of the last micro-batch.

        Raises:
            TokenUnreadable, BrokerError: See `of_task`.
        """
        found = self._read(self._names.driver)
        self._of_driver = sorted(found)
        return newest_batch_token(_committed(found), self._names.driver, self._names.query)

    def elsewhere(self, topics: Collection[str] = ()) -> list[Place]:
        """Return what the query has written under other names, as far as its user may see it.

        Args:
            topics: Topics of its rows, if they name theirs.

        Raises:
            BrokerError: See `GroupAdmin.groups_that_move_too` and `GroupAdmin.offsets`.
        """
        found: dict[Names, Place] = {}
        for group in self._listed(topics):
            whose = token_group(group)
            # What has its own names is read by the task itself, and by the driver at the end.
            if whose is None or whose[0].query != self._names.query or whose[0] == self._names:
                continue
            names, task = whose
            kept = self._all_of(group)
            place = found.get(names) or Place(names.prefix, frozenset(), None, {})
            try:
                if task is None:
                    place = place._replace(driver=newest_batch_token(_committed(kept), group, names.query))
                elif (token := newest_token(_committed(kept), group, names.query)) is not None:
                    place = place._replace(tasks={**place.tasks, task: token})
            except TokenUnreadable:
                place = place._replace(unreadable=True)
            found[names] = place._replace(topics=place.topics | kept.keys())
        return [found[names] for names in sorted(found)]

    def _listed(self, topics: Collection[str]) -> list[str]:
        """Return the groups that have the query's id in their names. A broker that is silent is asked again by a new client."""
        known = topics if self._topic is None else [self._topic]
        found: set[str] = set()
        silent: BrokerUnavailable | None = None
        # A broker that is back, or that has taken groups over, may not list them yet. So after a failure it needs two lists.
        needed = 1
        for _ in Deadline(GROUP_OFFSETS_S).attempts(LIST_AGAIN_S):
            try:
                found.update(self._admin().groups_that_move_too(self._names.query, known))
            except BrokerUnavailable as error:
                log.info("listing the groups again: %s", error)
                silent, needed = error, 2
            else:
                needed -= 1
                if not needed:
                    return sorted(found)
        raise silent or BrokerUnavailable("listing the groups: the brokers took too long")

    def commit(self, token: BatchToken, topics: Iterable[str]) -> None:
        """Commit the driver's token on partition 0 of a topic that takes it.

        Args:
            token: The token.
            topics: Topics that the micro-batch wrote to.

        Raises:
            BrokerError, CommitError: See `GroupOffsets.commit`. The last refusal, if no topic takes it.
        """
        refused: NotAuthorized | TopicNotFound | None = None
        carriers = self._carriers(topics)
        if not carriers:
            log.warning(
                "%s: no topic can keep the offset of micro-batch %d: the query has written no row yet, and its user may describe "
                "no topic. Set the option topic, or give the user DESCRIBE on a topic. Otherwise the first micro-batch with rows "
                "ends with BatchUnknown",
                self._names.driver,
                token.batch,
            )
        for topic in carriers:
            try:
                self._group(self._names.driver).commit(topic, token.offset, token.metadata())
            except (NotAuthorized, TopicNotFound) as error:
                refused = error
            else:
                return
        if refused is not None:
            raise refused

    def close(self, *, wait: bool = True) -> None:
        """End the connections. `wait` as in `GroupOffsets.close`. What is asked later is asked by new clients."""
        for group in list(self._groups):
            self._groups.pop(group).close(wait=wait)

    def abandon(self) -> None:
        """Never use or free the clients, in a forked child: a reference that is never released keeps them."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))

    def close_others(self) -> None:
        """End all connections but that for the driver's token."""
        for group in self._groups.keys() - {self._names.driver}:
            self._close(group)

    def _close(self, group: str) -> None:
        if group in self._groups:
            self._groups.pop(group).close()

    def _carriers(self, topics: Iterable[str]) -> list[str]:
        """Return topics that may carry the driver's token, the best first: it should stay where it is."""
        if self._topic is not None:
            return [self._topic]
        # A query that has never written a row keeps its token on any topic that the user may describe.
        return [*self._of_driver, *topics] or self._all_topics()

    def _read(self, group: str) -> Mapping[str, tuple[int, str | None]]:
        return self._all_of(group) if self._topic is None else self._group(group).read([self._topic])

    def _read_once(self, group: str) -> Mapping[str, tuple[int, str | None]]:
        """Read a group of many, and keep no connection for it."""
        found = self._read(group)
        self._close(group)
        return found

    def _group(self, group: str) -> GroupOffsets:
        if group not in self._groups:
            self._groups[group] = self._make(group)
        return self._groups[group]

    def _make(self, group: str) -> GroupOffsets:
        return GroupOffsets(self._client, group, SINK_ACL, TOKEN_ADVICE)

    def _all_of(self, group: str) -> Mapping[str, tuple[int, str | None]]:
        # A client of its own each time: it keeps the coordinator that it has found, even when that has moved.
        found = self._admin().offsets(group, stable=True)
        return {partition.topic: kept for partition, kept in found.items() if partition.partition == 0}

    def _each(self, ask: Callable[[int], T], numbers: Iterable[int]) -> list[T]:
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            return list(threads.map(ask, numbers))

    def _all_topics(self) -> list[str]:
        return self._admin().topics()

    def _admin(self) -> GroupAdmin:
        # A fresh worker would pay for it: 0.2 s, and with the option `topic` only the driver needs it, when a run begins.
        from spark_groupsource.brokers.group_admin import GroupAdmin

        return GroupAdmin(self._client)


def _committed(found: Mapping[str, tuple[int, str | None]]) -> list[Committed]:
    return [Committed(offset, metadata or "") for offset, metadata in found.values()]
