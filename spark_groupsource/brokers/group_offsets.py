"""Reads and commits a group's offsets with a consumer that never joins the group.

A consumer follows its group's coordinator to another broker. librdkafka's AdminClient keeps the coordinator that it found first,
and aborts the process when that broker is no longer the coordinator (librdkafka #5040, not fixed as of 2.16).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from spark_groupsource.brokers.broker_errors import COMMIT_ERRORS, REQUEST_ERRORS, explain
from spark_groupsource.brokers.client import LastError, librdkafka_log, make_client
from spark_groupsource.brokers.client_pool import close_on_thread
from spark_groupsource.brokers.offsets import Kept, kept_of
from spark_groupsource.errors import BrokerUnavailable, CommitOutcomeUnknown, GroupKafkaError, MemberUnknown, passes
from spark_groupsource.partition import TopicPartition
from spark_groupsource.patience import Deadline
from spark_groupsource.timeouts import GROUP_OFFSETS_S, TRY_S

_SILENCE = 0.9
"""An attempt that fails after this fraction of its time limit counts as unanswered."""

T = TypeVar("T")

Explain = Callable[[KafkaError, str, Mapping[int, type[GroupKafkaError]]], GroupKafkaError]
"""Converts an error, as `broker_errors.explain` does: the error, what the client was doing, and the exception for each code."""


def read_offsets(
    consumer: Consumer,
    group: str,
    partitions: Iterable[TopicPartition],
    timeout_s: float,
    *,
    polled: bool,
    explain: Explain = explain,
) -> dict[TopicPartition, Kept]:
    """Return the group's offset for each partition, with a single request.

    Long-running processes read offsets in this way. Commands, batch reads, and sinks without the `topic` option create an
    AdminClient for a single request (`GroupAdmin.offsets`), which does not need the partitions' names.

    Args:
        consumer: a consumer with that `group.id`.
        group: the group.
        partitions: the partitions.
        timeout_s: how many seconds the request may take.
        polled: whether to poll the consumer, too, because no other code does. Polling serves the token callback, and reports
            that this user may not look up the coordinator, for which the request itself would keep waiting.
        explain: converts an error, as `broker_errors.explain` does.

    Raises:
        NotAuthorized, TopicNotFound, BrokerUnavailable: see REQUEST_ERRORS.
    """

    def explained(error: KafkaError, partition: str = "") -> GroupKafkaError:
        return explain(error, f"reading the commits of group {group}{partition}", REQUEST_ERRORS)

    asked = [KafkaTopicPartition(*partition) for partition in sorted(partitions)]
    if not asked:
        return {}
    # librdkafka reports a missing coordinator only once, perhaps before the request is sent.
    reported = list(_reported(consumer)) if polled else []
    try:
        answer = consumer.committed(asked, timeout=timeout_s)
    except KafkaException as raised:
        failure = explained(raised.args[0])
        if polled and isinstance(failure, BrokerUnavailable):
            reported += _reported(consumer)
            failure = next((explained(error) for error in reported if error.code() in REQUEST_ERRORS), failure)
        raise failure from None
    offsets = {}
    for found in answer:
        if found.error is not None:
            raise explained(found.error, f" ({found.topic}-{found.partition})")
        offsets[TopicPartition(found.topic, found.partition)] = kept_of(found)
    return offsets


def _reported(consumer: Consumer) -> Iterator[KafkaError]:
    """Yield the errors that a consumer with no assigned partitions reports."""
    while (event := consumer.poll(0)) is not None:
        if (error := event.error()) is not None:
            yield error


class GroupOffsets:
    """Reads and commits offsets for one group without members. Only one thread may use it at a time. Close it after use."""

    def __init__(self, client_settings: Mapping[str, str], group: str, explain: Explain = explain) -> None:
        """Make the client, which starts to look up the coordinator.

        Args:
            client_settings: librdkafka settings that every client needs.
            group: the group.
            explain: converts an error, as `broker_errors.explain` does.

        Raises:
            OptionError, AuthenticationFailed: See `make_client`.
        """
        self._group = group
        self._explain = explain
        self._reported = LastError()
        self._settings = {
            **client_settings,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": "false",
            # A commit has no other time limit. The default is a minute, which is the limit for all attempts in total.
            "socket.timeout.ms": str(int(TRY_S * 1000)),
        }
        self._consumer = make_client(Consumer, self._settings, self._reported.record, librdkafka_log)

    def read(self, topics: Collection[str]) -> dict[str, tuple[int, str | None]]:
        """Return the group's committed offset, with its metadata, for partition 0 of each topic that has one.

        Waits until no open transaction commits offsets for the group (KIP-447), and until the coordinator has finished moving.

        Raises:
            NotAuthorized: the user may not read the group's commits.
            TopicNotFound: a topic does not exist.
            BrokerUnavailable: no broker answers, or a transaction stays open.
            AuthenticationFailed: the brokers refuse the login.
        """
        partitions = [TopicPartition(topic, 0) for topic in topics]
        found = self._tried(
            lambda timeout_s: read_offsets(self._consumer, self._group, partitions, timeout_s, polled=True, explain=self._explain)
        )
        return {partition.topic: kept[:2] for partition, kept in found.items() if kept.offset >= 0}

    def commit(self, topic: str, offset: int, metadata: str) -> None:
        """Commit an offset for partition 0 of a topic.

        Raises:
            CommitError: the brokers refuse the commit.
            NotAuthorized, TopicNotFound: see COMMIT_ERRORS.
            BrokerUnavailable: no broker answers.
        """
        doing = f"committing an offset of group {self._group}"

        def commit(_timeout_s: float) -> None:
            try:
                written = self._consumer.commit(
                    offsets=[KafkaTopicPartition(topic, 0, offset, metadata=metadata)], asynchronous=False
                )
            except KafkaException as raised:
                raise self._explain(raised.args[0], doing, COMMIT_ERRORS) from None
            for answer in written or ():
                if answer.error is not None:
                    raise self._explain(answer.error, f"{doing} ({topic})", COMMIT_ERRORS)

        self._tried(commit)

    def close(self, *, wait: bool = False) -> None:
        """Close the connections.

        Args:
            wait: Whether to wait until they are closed, which takes up to 30 ms. No thread can be started while a process exits.
        """
        if wait:
            self._consumer.close()
        else:
            close_on_thread(self._consumer.close)

    def _renew(self) -> None:
        """Replace the client, because the network may have dropped its connections. The new one waits longer between attempts."""
        pause = {"reconnect.backoff.ms": self._settings.get("reconnect.backoff.max.ms", "1000")}
        renewed = make_client(Consumer, {**self._settings, **pause}, self._reported.record, librdkafka_log)
        self.close()
        self._consumer = renewed

    def _tried(self, step: Callable[[float], T]) -> T:
        """Repeat a step until it succeeds, is refused, or runs out of time."""
        deadline = Deadline(GROUP_OFFSETS_S)
        renewed = False

        def attempt() -> T:
            nonlocal renewed
            left_s = deadline.left
            try:
                return step(min(TRY_S, max(1.0, left_s)))
            except (BrokerUnavailable, CommitOutcomeUnknown):
                if not renewed and left_s - deadline.left >= _SILENCE * TRY_S:
                    renewed = True
                    self._renew()
                raise

        try:
            return deadline.retry(attempt, _passes)
        except BrokerUnavailable as unanswered:
            reason = self._reported.newest(self._consumer)
            if reason is None:
                raise
            raise self._explain(reason, f"asking for the offsets of group {self._group}", REQUEST_ERRORS) from unanswered


def _passes(error: Exception) -> bool:
    # A commit may always be repeated, because no other client commits for this group. MemberUnknown is not retriable here,
    # because the group has no member that could rejoin.
    return isinstance(error, CommitOutcomeUnknown) or (passes(error) and not isinstance(error, MemberUnknown))
