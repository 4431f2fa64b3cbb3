"""Reads what the group holds beside this member, with a client of its own that never joins: a request may take long.

The client is made when something is first asked. Who the group's members are is asked in a child process, because the request can
crash librdkafka (brokers/group_admin_process.py).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice

from confluent_kafka import Consumer

from spark_groupsource.brokers.client import LastError, librdkafka_log, make_client
from spark_groupsource.brokers.group_admin_process import GroupAdminProcess
from spark_groupsource.errors import BrokerUnavailable, NotAuthorized, TopicNotFound
from spark_groupsource.group.fenced_commits import fetch_commits
from spark_groupsource.handoff.commit_record import GroupCommit, mark_of
from spark_groupsource.partition import TopicPartition, topics_of

log = logging.getLogger(__name__)

KEPT_S = 30.0
"""How long the client is kept without a request. Longer than the time between two looks while another stream owes something: each
new client is a login."""

PARTITIONS_PER_REQUEST = 5_000
"""So many partitions are asked for at once. Their records take at most 20 MB."""


class GroupReader:
    """The `evidence.GroupReader` of a query. One thread uses it at a time."""

    def __init__(
        self,
        client_settings: Mapping[str, str],
        group_id: str,
        *,
        subscribed: Callable[[], Collection[TopicPartition]],
        everywhere: Callable[[], Collection[TopicPartition]],
        cluster_id: str | None,
    ) -> None:
        """Prepare the clients. Nothing is sent yet.

        Args:
            client_settings: librdkafka settings that every client needs.
            group_id: the group.
            subscribed: returns every partition of the subscribed topics.
            everywhere: returns every partition that the group may hold a record for.
            cluster_id: the cluster's own name for itself; `None` where it is not known.
        """
        self._settings = dict(client_settings)
        self._group_id = group_id
        self._subscribed = subscribed
        self._everywhere = everywhere
        self._cluster_id = cluster_id
        self._client: Consumer | None = None
        self._used_at = 0.0
        self._look = GroupAdminProcess(client_settings)

    def subscribed(self) -> Mapping[TopicPartition, GroupCommit]:
        """Return the record of every partition of the subscribed topics.

        Raises:
            GroupKafkaError: what `subscribed` raises, or see fenced_commits.fetch_commits.
        """
        return self._fetch(self._subscribed())

    def others(self) -> Iterable[GroupCommit]:
        """Return the records of every other partition, without topics that this user may not describe.

        Raises:
            GroupKafkaError: what `subscribed` and `everywhere` raise, or see fenced_commits.fetch_commits.
        """
        found: list[GroupCommit] = []
        left = iter(sorted(set(self._everywhere()).difference(self._subscribed())))
        while part := list(islice(left, PARTITIONS_PER_REQUEST)):
            try:
                found += self._fetch(part).values()
            except (NotAuthorized, TopicNotFound) as refused:
                log.info("some topics cannot be asked for records of the group: %s", refused)
                found += self._readable(part)
        return found

    def members(self) -> frozenset[str]:
        """Return the marks of the group's members.

        Raises:
            GroupKafkaError: see group_admin_process.GroupAdminProcess.members.
        """
        return frozenset(map(mark_of, self._look.members(self._group_id)))

    def pause(self) -> None:
        """End the child process that `members` needs. The next `members` starts another one."""
        self._look.close()

    def _readable(self, partitions: Collection[TopicPartition]) -> list[GroupCommit]:
        found: list[GroupCommit] = []
        for topic in topics_of(partitions):
            try:
                found += self._fetch([partition for partition in partitions if partition.topic == topic]).values()
            except (NotAuthorized, TopicNotFound):
                continue
        return found

    def _fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, GroupCommit]:
        # The network may have forgotten the connections of a client that was idle: its requests would disappear for a minute.
        if self._client is None or time.monotonic() - self._used_at >= KEPT_S:
            settings = {**self._settings, "group.id": self._group_id}
            self._client = make_client(Consumer, settings, LastError().record, librdkafka_log)
        try:
            return fetch_commits(self._client, self._group_id, partitions, cluster_id=self._cluster_id)
        except BrokerUnavailable:
            self._client = None
            raise
        finally:
            self._used_at = time.monotonic()
