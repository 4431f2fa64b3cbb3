"""What the brokers know of the subscribed topics: which partitions exist, where they begin and where they end.

An AdminClient asks: one request for each broker, whatever the number of partitions, and nothing is said to the group.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, OffsetSpec  # type: ignore[attr-defined]

from spark_groupsource.brokers.broker_errors import explain
from spark_groupsource.brokers.client import UNANSWERED, Trouble, librdkafka_log, make_client
from spark_groupsource.errors import AuthenticationFailed, BrokerUnavailable, GroupKafkaError, NotAuthorized, TopicNotFound
from spark_groupsource.partition import TopicPartition

T = TypeVar("T")

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 10.0
FIRST_TIMEOUTS_S = (3.0, 3.0)
"""Before another broker is asked to describe topics."""
ENDS_TIMEOUT_S = 3.0
"""For ends that all leaders have told before: the other partitions go on while one's leader is down."""
OFFSETS_IN_A_CALL = 1000
"""Partitions that one call asks for: the time that librdkafka takes for a call grows with their square."""

NO_RECORD = -1
"""What a broker answers when no record is as young as the timestamp that it was asked for.

Of a partition whose leader did not answer, librdkafka gives -1001, without an error.
"""

EARLIEST_OFFSET: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST_OFFSET: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]


class Subscription(Protocol):
    """Which topics a query reads."""

    @property
    def subscribe(self) -> tuple[str, ...] | None:
        """Names, or `None` when a pattern is subscribed."""

    def matches(self, topic: str) -> bool:
        """Whether the topic is subscribed."""


@dataclass(frozen=True)
class TopicLook:
    """One topic: its partitions, and the names of what the user may do with it (KIP-430); `None` when the broker tells not."""

    partitions: frozenset[TopicPartition]
    operations: frozenset[str] | None


class Topics:
    """The subscribed topics as the brokers tell them now."""

    def __init__(
        self,
        client_settings: Mapping[str, str],
        subscription: Subscription,
        *,
        read_committed: bool,
        patience_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            client_settings: librdkafka settings that every client needs.
            subscription: which topics are meant.
            read_committed: ends are last stable offsets instead of high watermarks.
            patience_s: how long a partition's end may stay unknown, in seconds, before `ends` raises.
            clock: seconds, monotonic.

        Raises:
            OptionError, AuthenticationFailed: see kafka_client.
        """
        self._trouble = Trouble()
        settings = dict(client_settings)
        settings.pop("isolation.level", None)  # a consumer's; librdkafka warns of it here
        self._admin = make_client(AdminClient, settings, self._trouble.note, librdkafka_log)
        self._subscription = subscription
        self._isolation = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
        self._patience_s = patience_s
        self._clock = clock
        self._unknown_since: dict[TopicPartition, float] = {}
        self._all_told = False

    def partitions(self) -> list[TopicPartition]:
        """Every partition of the subscribed topics; of a pattern perhaps none.

        Raises:
            TopicNotFound, NotAuthorized: for a topic that is subscribed by name.
            BrokerUnavailable, AuthenticationFailed: no broker answers, or none lets this user in.
        """
        if self._subscription.subscribe is None:
            found = self._asked(lambda: self._admin.list_topics(timeout=REQUEST_TIMEOUT_S), "listing the topics")
            return sorted(
                TopicPartition(name, partition)
                for name, topic in found.topics.items()
                if self._subscription.matches(name)
                for partition in topic.partitions
            )
        futures = self._described(self._subscription.subscribe)
        described = [self._asked(future.result, f"looking up topic {name!r}") for name, future in futures.items()]
        return sorted(TopicPartition(topic.name, partition.id) for topic in described for partition in topic.partitions)

    def cluster_id(self) -> str:
        """The cluster's own name for itself, whichever of its brokers are asked.

        Raises:
            BrokerUnavailable, AuthenticationFailed: no broker answers, or none lets this user in.
        """
        return str(self._asked(lambda: self._admin.list_topics(timeout=REQUEST_TIMEOUT_S), "looking up the cluster").cluster_id)

    def existing_partitions(self) -> list[TopicPartition]:
        """As `partitions`, for a query that runs already: a topic that is subscribed by name may be gone by now.

        Raises:
            NotAuthorized, BrokerUnavailable, AuthenticationFailed: as `partitions`.
        """
        if self._subscription.subscribe is None:
            return self.partitions()
        there = []
        for name, future in self._described(self._subscription.subscribe).items():
            with contextlib.suppress(TopicNotFound):
                there.append(self._asked(future.result, f"looking up topic {name!r}"))
        return sorted(TopicPartition(topic.name, partition.id) for topic in there for partition in topic.partitions)

    def look_up(self, topics: Iterable[str]) -> dict[str, TopicLook | GroupKafkaError]:
        """Each topic, or why it is not to be had: TopicNotFound, NotAuthorized, AuthenticationFailed, BrokerUnavailable."""
        found: dict[str, TopicLook | GroupKafkaError] = {}
        for name, future in self._described(topics, with_operations=True).items():
            try:
                topic = self._asked(future.result, f"looking up topic {name!r}")
            except GroupKafkaError as error:
                found[name] = error
            else:
                there = frozenset(TopicPartition(topic.name, partition.id) for partition in topic.partitions)
                found[name] = TopicLook(there, names_of(topic.authorized_operations))
        return found

    def ids(self, topics: Iterable[str]) -> dict[str, str | None]:
        """Each topic's id, `None` for a topic that does not exist, and "" from brokers that know no ids.

        A topic that no broker tells of now is left out.

        Raises:
            NotAuthorized, AuthenticationFailed: at once.
        """
        found: dict[str, str | None] = {}
        for name, future in self._described(topics).items():
            try:
                found[name] = _id_text(self._asked(future.result, f"looking up topic {name!r}").topic_id)
            except TopicNotFound:
                found[name] = None
            except BrokerUnavailable:
                continue  # whoever needs the topic's ends notices, and waits no longer than its patience
        return found

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The end of each partition (exclusive): high watermark, or last stable offset.

        A partition whose leader cannot tell now is left out.

        Raises:
            BrokerUnavailable: a partition has been left out for longer than the patience.
            TopicNotFound, NotAuthorized, AuthenticationFailed: at once.
        """
        now = self._clock()
        # A leader that is not down but slow gets its time, too.
        brief = self._all_told and all(now - since < REQUEST_TIMEOUT_S for since in self._unknown_since.values())
        known = self._offsets(dict.fromkeys(partitions, LATEST_OFFSET), ENDS_TIMEOUT_S if brief else REQUEST_TIMEOUT_S)
        now = self._clock()
        self._unknown_since = {
            partition: self._unknown_since.get(partition, now) for partition in partitions if partition not in known
        }
        if known and not self._unknown_since:
            self._all_told = True
            self._trouble.end(self._admin)
        for partition, since in self._unknown_since.items():
            if now - since > self._patience_s:
                raise BrokerUnavailable(
                    f"The leader of {partition} has not told its end offset for {now - since:.0f} s"
                    f"{self._trouble_said()}. Check that its broker is up and can be reached from this driver."
                )
        return known

    def starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The log start offset of each partition (inclusive); of those only whose leader can tell now.

        Raises:
            TopicNotFound, NotAuthorized, AuthenticationFailed: at once.
        """
        return self._offsets(dict.fromkeys(partitions, EARLIEST_OFFSET), REQUEST_TIMEOUT_S)

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset whose record is not older than so many ms since 1970; `None` when there is no such record.

        A partition whose leader cannot tell now is left out.

        Raises:
            TopicNotFound, NotAuthorized, AuthenticationFailed: at once.
        """
        asked = {partition: OffsetSpec.for_timestamp(time) for partition, time in times.items()}
        found = self._offsets(asked, REQUEST_TIMEOUT_S)
        return {partition: None if offset == NO_RECORD else offset for partition, offset in found.items()}

    def _offsets(self, specs: Mapping[TopicPartition, OffsetSpec], timeout_s: float) -> dict[TopicPartition, int]:
        known = {}
        for partition, answer in zip(specs, self._answers(specs, timeout_s), strict=True):
            try:
                offset = answer.result().offset
            except KafkaException as failed:
                error = self._explained(failed.args[0], f"asking for an offset of {partition}")
                if isinstance(error, BrokerUnavailable | TopicNotFound):
                    continue  # no leader now, or just created, or just deleted: the caller's patience decides
                raise error from None
            if offset >= NO_RECORD:
                known[partition] = offset
        self._look_up_leaders({partition.topic for partition in specs if partition not in known})
        return known

    def _answers(self, specs: Mapping[TopicPartition, OffsetSpec], timeout_s: float) -> list[Future[Any]]:
        """What will be answered for each partition, in their order; all are asked for at once."""
        partitions = list(specs)
        answers: list[Future[Any]] = []
        for begin in range(0, len(partitions), OFFSETS_IN_A_CALL):
            asked = {KafkaTopicPartition(*each): specs[each] for each in partitions[begin : begin + OFFSETS_IN_A_CALL]}
            futures = self._admin.list_offsets(asked, isolation_level=self._isolation, request_timeout=timeout_s)
            answers += futures.values()
        return answers

    def _look_up_leaders(self, topics: Iterable[str]) -> None:
        """Have librdkafka forget which broker led a partition, and in which epoch: asking for offsets does not do that."""
        for future in self._described(topics).values():
            try:
                future.result()
            except KafkaException as failed:
                log.info("looking up partition leaders: %s", failed.args[0].str())

    def _described(self, topics: Iterable[str], *, with_operations: bool = False) -> Mapping[str, Future[Any]]:
        names = sorted(topics)
        if not names:
            return {}

        def ask(timeout_s: float) -> Mapping[str, Future[Any]]:
            # Unlike list_topics(name) this never creates a topic.
            return self._admin.describe_topics(
                TopicCollection(names), include_authorized_operations=with_operations, request_timeout=timeout_s
            )

        for earlier, timeout_s in enumerate(FIRST_TIMEOUTS_S):
            futures = ask(timeout_s)
            if not any(_is_unanswered(future) for future in futures.values()):
                return futures
            # librdkafka asks what the last metadata called the controller, dead or not; listing asks any broker for another,
            # which for some seconds may name the dead one again.
            try:
                self._admin.list_topics(timeout=timeout_s)
            except KafkaException:
                # Nobody answers, unless somebody has just now: then it may be one broker that hangs.
                if not earlier:
                    return futures
        return ask(REQUEST_TIMEOUT_S)

    def _asked(self, request: Callable[[], T], doing: str) -> T:
        try:
            return request()
        except KafkaException as failed:
            raise self._explained(failed.args[0], doing) from None

    def _explained(self, error: KafkaError, doing: str) -> GroupKafkaError:
        explained = explain(self._trouble.behind(error, self._admin), doing)
        if isinstance(explained, TopicNotFound | NotAuthorized | AuthenticationFailed):
            return explained
        return BrokerUnavailable(str(explained))

    def _trouble_said(self) -> str:
        trouble = self._trouble.told(self._admin)
        return f" ({trouble.str()})" if trouble is not None else ""


def names_of(operations: Iterable[AclOperation] | None) -> frozenset[str] | None:
    """The operations' names; `None` when the broker told none."""
    return frozenset(operation.name for operation in operations) if operations else None


def _is_unanswered(described: Future[Any]) -> bool:
    failed = described.exception()
    return isinstance(failed, KafkaException) and failed.args[0].code() in UNANSWERED


def _id_text(topic_id: Any) -> str:
    """A topic's id as Kafka's own tools print it: librdkafka has `+` and `/` where they have `-` and `_`."""
    halves = (topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits())
    raw = b"".join(half.to_bytes(8, "big", signed=True) for half in halves)
    return base64.urlsafe_b64encode(raw).decode().rstrip("=") if any(raw) else ""
