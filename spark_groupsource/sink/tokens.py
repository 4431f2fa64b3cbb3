"""Reads and commits the tokens of the sink, through one client that the process keeps."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping

from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.errors import BrokerError
from spark_groupsource.partition import TopicPartition
from spark_groupsource.sink.token import BatchToken, Committed, Token, newest_batch_token, newest_token


def task_id(prefix: str, task: int) -> str:
    """Return the transactional id of a task, which is the name of the group of its token as well."""
    return f"{prefix}-{task}"


class Tokens:
    """The tokens of one query.

    Args:
        client: The finished settings of a client that sends requests.
        prefix: What the names of its groups begin with. The driver's token is in the group of that name.
    """

    def __init__(self, client: Mapping[str, str], prefix: str) -> None:
        self._admin = _admin(os.getpid(), tuple(sorted(client.items())))
        self._prefix = prefix
        self._of_driver: list[str] = []

    def of_task(self, task: int) -> Token | None:
        """Return what a task has written last. Waits for the end of its transaction.

        Raises:
            TokenUnreadable: Something else committed to its group.
            BrokerError: See `GroupAdmin.offsets`.
        """
        group = task_id(self._prefix, task)
        return newest_token(_committed(self._admin.offsets(group, stable=True)), group)

    def of_driver(self) -> BatchToken | None:
        """Return what the driver knows of the last micro-batch.

        Raises:
            TokenUnreadable, BrokerError: See `of_task`.
        """
        found = self._admin.offsets(self._prefix, stable=True)
        self._of_driver = sorted({partition.topic for partition in found})
        return newest_batch_token(_committed(found), self._prefix)

    def commit(self, token: BatchToken, topics: Iterator[str]) -> None:
        """Commit the driver's token on partition 0 of the first of these topics that takes it.

        Raises:
            BrokerError: None of them does.
        """
        refused: BrokerError | None = None
        for topic in topics:
            try:
                self._admin.alter_offsets(self._prefix, {TopicPartition(topic, 0): token.offset}, token.metadata())
            except BrokerError as error:
                refused = error
            else:
                return
        if refused is not None:
            raise refused

    def topics(self) -> Iterator[str]:
        """Yield topics for the driver's token: those that carry one, then all that the user may describe."""
        yield from self._of_driver
        yield from self._admin.topics()


def _committed(found: Mapping[TopicPartition, tuple[int, str | None]]) -> list[Committed]:
    return [Committed(offset, metadata or "") for offset, metadata in found.values()]


@functools.lru_cache(maxsize=4)
def _admin(_pid: int, client: tuple[tuple[str, str], ...]) -> GroupAdmin:
    return GroupAdmin(dict(client))
