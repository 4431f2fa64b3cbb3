"""Reads and commits the tokens of the sink.

With the option `topic` the tokens are offsets of its partition 0. Otherwise each row names its topic, and a token may be an
offset of any of them: then all offsets of a group are asked for.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from spark_groupsource.brokers.group_offsets import GroupOffsets
from spark_groupsource.errors import BrokerUnavailable, NotAuthorized, TopicNotFound
from spark_groupsource.patience import Deadline
from spark_groupsource.sink.failures import SINK_ACL, TOKEN_ADVICE
from spark_groupsource.sink.token import BatchToken, Committed, Token, newest_batch_token, newest_token
from spark_groupsource.timeouts import GROUP_OFFSETS_S, LIST_AGAIN_S, LISTS_APART_S

if TYPE_CHECKING:
    from spark_groupsource.brokers.group_admin import GroupAdmin

log = logging.getLogger(__name__)

_NUMBER = re.compile(r"0|[1-9][0-9]{0,5}")
"""What `task_id` ends with. Spark has no million tasks, and other groups may end with a date."""


def task_id(prefix: str, task: int) -> str:
    """Return the transactional id of a task, which is the name of the group of its token as well."""
    return f"{prefix}-{task}"


class Tokens:
    """The tokens of one query. To be used by one thread, and closed.

    Args:
        client: The finished settings of a client that sends requests.
        prefix: What the names of its groups begin with. The driver's token is in the group of that name.
        topic: The option `topic`.
    """

    def __init__(self, client: Mapping[str, str], prefix: str, topic: str | None) -> None:
        self._client = client
        self._prefix = prefix
        self._topic = topic
        self._groups: dict[str, GroupOffsets] = {}
        self._of_driver: list[str] = []

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
        group = task_id(self._prefix, task)
        if self._topic is None and topics:
            self._group(group).read(topics)
        return newest_token(_committed(self._read(group)), group)

    def of_tasks(self, numbers: Iterable[int], topics: Collection[str] = ()) -> dict[int, Token]:
        """Return what each of these tasks has written last, if anything. One after the other: each needs a client.

        Raises:
            TokenUnreadable, BrokerError: See `of_task`.
        """
        found = {}
        for number in numbers:
            token = self.of_task(number, topics)
            self._close(task_id(self._prefix, number))
            if token is not None:
                found[number] = token
        return found

    def of_tasks_from(self, first: int, topics: Collection[str] = ()) -> dict[int, Token]:
        """Return what tasks with this number or a higher one have written last.

        An earlier try may have had any number of tasks, and only some of them may have written. So all brokers list their
        groups. They are asked again, by a new client each time, until none is silent. And they list them twice: while a group
        moves to its next coordinator, it may be in no broker's list, and none says so.

        Raises:
            TokenUnreadable, BrokerError: See `of_task`.
        """
        listed = self._listed()
        time.sleep(LISTS_APART_S)
        listed |= self._listed()
        numbers = sorted(int(text) for text in listed if _NUMBER.fullmatch(text))
        return self.of_tasks((number for number in numbers if number >= first), topics)

    def _listed(self) -> set[str]:
        """Return what follows the prefix in the names of groups."""
        listed = Deadline(GROUP_OFFSETS_S).retry(lambda: self._admin().groups(f"{self._prefix}-"), _passes, LIST_AGAIN_S)
        return {name.removeprefix(f"{self._prefix}-") for name in listed}

    def of_driver(self) -> BatchToken | None:
        """Return what the driver knows of the last micro-batch.

        Raises:
            TokenUnreadable, BrokerError: See `of_task`.
        """
        found = self._read(self._prefix)
        self._of_driver = sorted(found)
        return newest_batch_token(_committed(found), self._prefix)

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
                *(self._prefix, token.batch),
            )
        for topic in carriers:
            try:
                self._group(self._prefix).commit(topic, token.offset, token.metadata())
            except (NotAuthorized, TopicNotFound) as error:
                refused = error
            else:
                return
        if refused is not None:
            raise refused

    def close(self) -> None:
        """End the connections."""
        for group in list(self._groups):
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

    def _all_topics(self) -> list[str]:
        return self._admin().topics()

    def _admin(self) -> GroupAdmin:
        # A fresh worker would pay for it: 0.2 s, and with the option `topic` only the driver needs it, when a run begins.
        from spark_groupsource.brokers.group_admin import GroupAdmin

        return GroupAdmin(self._client)


def _passes(error: Exception) -> bool:
    return isinstance(error, BrokerUnavailable)


def _committed(found: Mapping[str, tuple[int, str | None]]) -> list[Committed]:
    return [Committed(offset, metadata or "") for offset, metadata in found.values()]
