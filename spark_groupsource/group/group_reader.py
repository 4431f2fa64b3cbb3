"""Reads the group's commits and members with a separate client, so that a slow request does not block this member.

The client is created for the first request, and never joins the group. A child process asks for the group's members, because
that request can crash librdkafka (brokers/group_admin_process.py).
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
from spark_groupsource.timeouts import KEPT_S

log = logging.getLogger(__name__)

PARTITIONS_PER_REQUEST = 5_000
"""The maximum number of partitions in one request. Their records take up at most 20 MB."""


class GroupReader:
    """Reads the group's commits and members for `evidence.ConfirmedPlans`. Used by one thread at a time."""

    def __init__(
        self,
        client_settings: Mapping[str, str],
        group_id: str,
        *,
        subscribed: Callable[[], Collection[TopicPartition]],
        everywhere: Callable[[], Collection[TopicPartition]],
        cluster_id: str | None,
    ) -> None:
        """Prepare the clients, without sending a request.

        Args:
            client_settings: librdkafka settings that every client needs.
            group_id: the group.
            subscribed: returns every partition of the subscribed topics.
            everywhere: returns every partition for which the group may have a commit.
            cluster_id: the cluster's id; `None` if unknown.
        """
        self._settings = dict(client_settings)
        self._group_id = group_id
        self._subscribed = subscribed
        self._everywhere = everywhere
        self._cluster_id = cluster_id
        self._client: Consumer | None = None
        self._used_at = 0.0
        self._admin = GroupAdminProcess(client_settings)

    def subscribed(self) -> Mapping[TopicPartition, GroupCommit]:
        """Return the record of each partition in the subscribed topics.

        Raises:
            GroupKafkaError: raised by the callable `subscribed`, or see fenced_commits.fetch_commits.
        """
        return self._fetch(self._subscribed())

    def others(self) -> Iterable[GroupCommit]:
        """Return the records of all other partitions, except those of topics that this user may not describe.

        Raises:
            GroupKafkaError: raised by `subscribed` or `everywhere`, or see fenced_commits.fetch_commits.
        """
        found: list[GroupCommit] = []
        unread = iter(sorted(set(self._everywhere()).difference(self._subscribed())))
        while part := list(islice(unread, PARTITIONS_PER_REQUEST)):
            try:
                found += self._fetch(part).values()
            except (NotAuthorized, TopicNotFound) as error:
                log.info("skipping the group's records for topics that cannot be read: %s", error)
                found += self._readable(part)
        return found

    def members(self) -> frozenset[str]:
        """Return the marks of the group's members.

        Raises:
            GroupKafkaError: see group_admin_process.GroupAdminProcess.members.
        """
        return frozenset(map(mark_of, self._admin.members(self._group_id)))

    def pause(self) -> None:
        """Stop the child process that `members` needs. The next call to `members` starts a new one."""
        self._admin.close()

    def _readable(self, partitions: Collection[TopicPartition]) -> list[GroupCommit]:
        """Return these partitions' records, read topic by topic, leaving out topics that cannot be read."""
        found: list[GroupCommit] = []
        for topic in topics_of(partitions):
            try:
                found += self._fetch([partition for partition in partitions if partition.topic == topic]).values()
            except (NotAuthorized, TopicNotFound):
                continue
        return found

    def _fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, GroupCommit]:
        """Return the group's commits for these partitions. Use a new client if the last one was idle or got no answer."""
        # Replace an idle client: if the network has dropped its connections, its requests would get no answer for a minute. While
        # ranges are held for other streams, questions come more often than this, because each new client has to log in.
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
