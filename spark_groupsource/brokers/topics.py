"""Asks the brokers about the subscribed topics: which partitions exist, and where their logs start and end.

An AdminClient sends each broker one request for many partitions. The group is not involved.
"""

from __future__ import annotations

import base64
import copy
import ctypes
import logging
import math
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, Uuid
from confluent_kafka.admin import AclOperation, OffsetSpec  # type: ignore[attr-defined]

from spark_groupsource.brokers.admin_client import LastingAdmin
from spark_groupsource.brokers.broker_errors import explain
from spark_groupsource.brokers.client import UNANSWERED
from spark_groupsource.brokers.offsets import EARLIEST_OFFSET, LATEST_OFFSET, NO_RECORD, Found, epoch_of, request_offsets
from spark_groupsource.errors import AuthenticationFailed, BrokerUnavailable, GroupKafkaError, NotAuthorized, TopicNotFound
from spark_groupsource.partition import TopicPartition, listed
from spark_groupsource.patience import Deadline
from spark_groupsource.timeouts import ASK_AGAIN_S, REQUEST_TIMEOUT_S, SHORT_TIMEOUT_S

FIRST_TIMEOUTS_S = (SHORT_TIMEOUT_S, SHORT_TIMEOUT_S)
"""The time limits for the first attempts to describe topics. Each attempt asks another broker."""

T = TypeVar("T")

log = logging.getLogger(__name__)

APART = 0.75
"""If two calls to `ends` are more than this fraction of `patience_s` apart, they show nothing about the time in between. It is
below 1, because if the trigger interval equals `patience_s`, the time from the end of one call to the next call is a little
shorter."""


class Subscription(Protocol):
    """The topics that a query reads."""

    @property
    def subscribe(self) -> tuple[str, ...] | None:
        """The topics' names, or `None` if the query subscribes to a pattern."""

    def matches(self, topic: str) -> bool:
        """Return whether the query subscribes to the topic."""


@dataclass(frozen=True)
class TopicDescription:
    """A broker's description of one topic."""

    partitions: frozenset[TopicPartition]
    operations: frozenset[str] | None
    """The names of the operations that the user may perform (KIP-430). `None` if the broker does not report them."""


class Topics:
    """Asks the brokers for the current state of the subscribed topics.

    Only one thread may call `ends`, which remembers how long a partition's end has been unknown. In a query, this is the runner's
    main thread, and adoption uses a copy (`without_patience`). Any thread may call the other methods.
    """

    def __init__(
        self,
        client_settings: Mapping[str, str],
        subscription: Subscription,
        *,
        read_committed: bool,
        patience_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make the client without sending a request.

        Args:
            client_settings: librdkafka settings that every client needs.
            subscription: The query's topics.
            read_committed: Whether ends are last stable offsets instead of high watermarks.
            patience_s: How many seconds a partition's end may remain unknown before `ends` raises an error.
            clock: Returns monotonic time in seconds.

        Raises:
            OptionError: See `LastingAdmin`.
            AuthenticationFailed: See `LastingAdmin`.
        """
        self._admin = LastingAdmin(client_settings, clock=clock)
        self._subscription = subscription
        self._isolation = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
        self._patience_s = patience_s
        self._clock = clock
        self._cluster_id: str | None = None
        self._unknown_since: dict[TopicPartition, float] = {}
        self._asked_at = -math.inf
        self._all_answered = False
        self._absent: frozenset[TopicPartition] = frozenset()
        """The partitions whose topic did not exist when their offsets were last requested."""
        self.epochs: Mapping[TopicPartition, int] = {}
        """The leader epoch of each end that the last call to `ends` returned, if the brokers report epochs."""

    def without_patience(self) -> Topics:
        """Return a copy with the same client but no time limit, for callers on other threads that have their own time limits.

        The copy's `ends` never raises an error because a partition's end is unknown, and does not change what this object
        remembers. Threads may share the copy, because what it remembers only decides how long it waits for an answer.
        """
        patient = copy.copy(self)
        patient._patience_s = math.inf
        patient._unknown_since = {}
        patient._all_answered = True
        return patient

    def partitions(self, *, skip_missing: bool = False) -> list[TopicPartition]:
        """Return all partitions of the subscribed topics, sorted. A pattern may match none.

        Args:
            skip_missing: Whether to skip a topic that is subscribed by name but does not exist, instead of raising
                `TopicNotFound`. This is for a running query, whose topic may have been deleted.

        Raises:
            TopicNotFound: A topic that is subscribed by name does not exist.
            NotAuthorized: The user may not describe a topic that is subscribed by name.
            BrokerUnavailable: No broker answers.
            AuthenticationFailed: The brokers refuse the login.
        """
        if self._subscription.subscribe is None:
            return self._partitions_of(self._subscription.matches)
        self._admin.await_first_answer()
        partitions: list[TopicPartition] = []
        for name, future in self._described(self._subscription.subscribe).items():
            try:
                topic = self._asked(future.result, f"looking up topic {name!r}")
            except TopicNotFound:
                if not skip_missing:
                    raise
            else:
                partitions += (TopicPartition(topic.name, partition.id) for partition in topic.partitions)
        return sorted(partitions)

    def everywhere(self, *, leave_out: Collection[str]) -> list[TopicPartition]:
        """Return every partition in the cluster that the user may describe, subscribed or not, except in `leave_out` topics.

        Raises:
            BrokerUnavailable: No broker answers.
            AuthenticationFailed: The brokers refuse the login.
        """
        return self._partitions_of(lambda topic: topic not in leave_out)

    def cluster_id(self) -> str:
        """Return the cluster's id, which is the same no matter which broker answers.

        Raises:
            BrokerUnavailable: No broker answers.
            AuthenticationFailed: The brokers refuse the login.
        """
        if self._cluster_id is None:
            found = self._listed("looking up the cluster")
            self._cluster_id = str(found.cluster_id)
        return self._cluster_id

    def describe(self, topics: Iterable[str]) -> dict[str, TopicDescription | GroupKafkaError]:
        """Return each topic's description, or the error if it cannot be described.

        The errors are TopicNotFound, NotAuthorized, AuthenticationFailed and BrokerUnavailable.
        """
        found: dict[str, TopicDescription | GroupKafkaError] = {}
        try:
            self._admin.await_first_answer()
        except BrokerUnavailable as unreachable:
            return dict.fromkeys(topics, unreachable)
        for name, future in self._described(topics, with_operations=True).items():
            try:
                topic = self._asked(future.result, f"looking up topic {name!r}")
            except GroupKafkaError as error:
                found[name] = error
            else:
                partitions = frozenset(TopicPartition(topic.name, partition.id) for partition in topic.partitions)
                found[name] = TopicDescription(partitions, names_of(topic.authorized_operations))
        return found

    def ids(self, topics: Iterable[str]) -> dict[str, str | None]:
        """Return each topic's id.

        The id is `None` for a topic that does not exist, and "" if the brokers have no topic ids. The result does not contain
        topics for which no broker answers.

        Raises:
            NotAuthorized: The user may not describe a topic. Raised without waiting.
            AuthenticationFailed: The brokers refuse the login. Raised without waiting.
        """
        found: dict[str, str | None] = {}
        for name, future in self._described(topics).items():
            try:
                found[name] = id_text(self._asked(future.result, f"looking up topic {name!r}").topic_id)
            except TopicNotFound:
                found[name] = None
            except BrokerUnavailable:
                continue  # a caller that needs the topic's ends notices this, and waits only until its own time limit
        return found

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return each partition's end (exclusive): its high watermark or last stable offset.

        The result does not contain partitions whose leader does not answer, or whose topic does not exist.

        Raises:
            BrokerUnavailable: A partition's end has been unknown for `patience_s` seconds. If the last call was about that long
                ago (`APART`), this call keeps asking for up to `patience_s` for an end that was unknown then.
            NotAuthorized: The user may not read a topic. Raised without waiting.
            AuthenticationFailed: The brokers refuse the login. Raised without waiting.
        """
        began = self._clock()
        # If all leaders answered last time, one that is down must not delay the other partitions for long. But a leader that is
        # slow must get the full timeout.
        brief = self._all_answered and all(
            began - unknown_since < REQUEST_TIMEOUT_S for unknown_since in self._unknown_since.values()
        )
        far_apart = began - self._asked_at > APART * self._patience_s
        if far_apart:
            # If a leader did not answer at two triggers an hour apart, that shows nothing about the time in between.
            self._unknown_since = dict.fromkeys(self._unknown_since, began)
        known = self._offsets(dict.fromkeys(partitions, LATEST_OFFSET), SHORT_TIMEOUT_S if brief else REQUEST_TIMEOUT_S)
        now = self._clock()
        silent_again = {
            partition
            for partition, unknown_since in self._unknown_since.items()
            if partition in partitions and partition not in known and (far_apart or now - unknown_since >= self._patience_s)
        }
        if silent_again:
            # The leader may have moved since the last request. The call above has refreshed the leaders, so ask again.
            # If the last request was long ago, keep asking until `patience_s` is over: the next trigger may be an hour away.
            known |= self._ask_again(silent_again, began + self._patience_s - now if far_apart else 0)
        self._asked_at = now = self._clock()
        silent_before = self._unknown_since.keys()
        self._unknown_since = {
            partition: self._unknown_since.get(partition, now) for partition in partitions if partition not in known
        }
        self._warn_of(self._unknown_since.keys() - silent_before - self._absent)
        if known and not self._unknown_since:
            self._all_answered = True
            self._admin.last_error.clear(self._admin.client)
        for partition, unknown_since in self._unknown_since.items():
            if now - unknown_since >= self._patience_s:
                raise BrokerUnavailable(
                    f"The leader of {partition} has not returned the partition's end offset for {now - unknown_since:.0f} "
                    f"s{self._last_error_text()}. Nothing is lost. Check that its broker is running and that this driver can "
                    "reach it."
                )
        self.epochs = {partition: end.epoch for partition, end in known.items() if end.epoch is not None}
        return _numbers(known)

    def _warn_of(self, silent: Collection[TopicPartition]) -> None:
        """Warn about partitions whose ends have become unknown, once for each until its end is known again."""
        if silent and self._patience_s < math.inf:
            log.warning(
                "the leaders of %d partitions did not return an end offset in time: %s%s. This micro-batch skips their new "
                "records, and a later one will read them, so nothing is lost. If a leader has just moved, no action is needed. "
                "If this keeps happening, check that the brokers are running and that this driver can reach them",
                len(silent),
                listed(sorted(silent), 20),
                self._last_error_text(),
            )

    def _ask_again(self, partitions: Collection[TopicPartition], most_s: float) -> dict[TopicPartition, Found]:
        """Ask for these partitions' ends at least once, and keep asking for up to `most_s` seconds while one is unknown."""
        known: dict[TopicPartition, Found] = {}
        for _ in Deadline(most_s, clock=self._clock).attempts(ASK_AGAIN_S):
            unknown = set(partitions) - known.keys()
            if not unknown:
                break
            known |= self._offsets(dict.fromkeys(unknown, LATEST_OFFSET), REQUEST_TIMEOUT_S)
        return known

    def starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return each partition's log start offset (inclusive).

        The result does not contain partitions whose leader does not answer, or whose topic does not exist.

        Raises:
            NotAuthorized: The user may not read a topic. Raised without waiting.
            AuthenticationFailed: The brokers refuse the login. Raised without waiting.
        """
        return _numbers(self._offsets(dict.fromkeys(partitions, EARLIEST_OFFSET), REQUEST_TIMEOUT_S))

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return the offset of each partition's first record at or after the given time.

        The result does not contain partitions whose leader does not answer, or whose topic does not exist.

        Args:
            times: The time for each partition, in milliseconds since 1970.

        Returns:
            The offsets, or `None` where there is no such record.

        Raises:
            NotAuthorized: The user may not read a topic. Raised without waiting.
            AuthenticationFailed: The brokers refuse the login. Raised without waiting.
        """
        asked = {partition: OffsetSpec.for_timestamp(time) for partition, time in times.items()}
        found = _numbers(self._offsets(asked, REQUEST_TIMEOUT_S))
        return {partition: None if offset == NO_RECORD else offset for partition, offset in found.items()}

    def _partitions_of(self, matches: Callable[[str], bool]) -> list[TopicPartition]:
        topics = self._listed("listing the topics").topics
        return sorted(TopicPartition(name, number) for name in filter(matches, topics) for number in topics[name].partitions)

    def _listed(self, doing: str) -> Any:
        """Return all topics with their partitions, and the cluster's id."""
        self._admin.await_first_answer()
        idle = self._admin.idle

        def ask() -> Any:
            return self._admin.client.list_topics(timeout=REQUEST_TIMEOUT_S)

        try:
            found = ask()
        except KafkaException as failed:
            if not idle or failed.args[0].code() not in UNANSWERED:
                raise self._explained(failed.args[0], doing) from None
            self._admin.renew()
            found = self._asked(ask, doing)
        self._admin.answered()
        return found

    def _offsets(self, specs: Mapping[TopicPartition, OffsetSpec], timeout_s: float) -> dict[TopicPartition, Found]:
        idle, began = self._admin.idle, self._clock()
        known = self._answered(specs, timeout_s)
        missing = specs.keys() - known.keys()
        # A leader that did not answer before is probably down, so ask again only if a leader is newly silent. If no leader
        # answers at all, the network may be the reason.
        overdue = missing - self._unknown_since.keys() or (set() if known else missing)
        if idle and overdue:
            self._admin.renew()
        # Also ask again if the request failed immediately: librdkafka fails a request when it finds that the connection has been
        # idle for `connections.max.idle.ms`, and closes that connection.
        if overdue and (idle or self._clock() - began < timeout_s):
            known |= self._answered({partition: specs[partition] for partition in overdue}, timeout_s)
        self._refresh_leaders({partition.topic for partition in specs if partition not in known})
        return known

    def _answered(self, specs: Mapping[TopicPartition, OffsetSpec], timeout_s: float) -> dict[TopicPartition, Found]:
        admin = self._admin.client
        known = {}
        absent = set()
        for partition, answer in request_offsets(admin, specs, timeout_s, self._isolation).items():
            try:
                found = answer.result()
            except KafkaException as failed:
                error = self._explained(failed.args[0], f"asking for an offset of {partition}")
                if isinstance(error, TopicNotFound):
                    absent.add(partition)
                if isinstance(error, BrokerUnavailable | TopicNotFound):
                    continue  # there is no leader now, or the topic was just created or deleted: the caller's time limit decides
                raise error from None
            if found.offset >= NO_RECORD:
                known[partition] = Found(found.offset, epoch_of(found))
        self._absent = self._absent - specs.keys() | absent
        if known:
            self._admin.answered()
        return known

    def _refresh_leaders(self, topics: Iterable[str]) -> None:
        """Refresh librdkafka's cache of leaders and their epochs. A request for offsets does not refresh it."""
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
            admin = self._admin.client
            # Unlike list_topics(name), this never creates a topic.
            futures = admin.describe_topics(
                TopicCollection(names), include_authorized_operations=with_operations, request_timeout=timeout_s
            )
            wait(futures.values())
            return futures

        idle = self._admin.idle
        for earlier, timeout_s in enumerate(FIRST_TIMEOUTS_S):
            futures = ask(timeout_s)
            if not any(_is_unanswered(future) for future in futures.values()):
                self._admin.answered()
                _release_leaked_ids(futures.values())
                return futures
            if idle and not earlier:
                self._admin.renew()
                continue
            # librdkafka asks the controller that is in the last metadata, even if that broker is down. The request below asks any
            # broker, and so finds another controller. For a few seconds it may find the same one again.
            try:
                self._admin.client.list_topics(timeout=timeout_s)
            except KafkaException:
                # In the first round, this means that no broker answers. In a later round, a broker has just answered, so only one
                # broker may hang.
                if not earlier or idle:
                    return futures
        return ask(REQUEST_TIMEOUT_S)

    def _asked(self, request: Callable[[], T], doing: str) -> T:
        try:
            return request()
        except KafkaException as failed:
            raise self._explained(failed.args[0], doing) from None

    def _explained(self, error: KafkaError, doing: str) -> GroupKafkaError:
        explained = explain(self._admin.reason(error), doing)
        if isinstance(explained, TopicNotFound | NotAuthorized | AuthenticationFailed):
            return explained
        return BrokerUnavailable(str(explained))

    def _last_error_text(self) -> str:
        error = self._admin.last_error.newest(self._admin.client)
        return f" ({error.str()})" if error is not None else ""


def _numbers(answers: Mapping[TopicPartition, Found]) -> dict[TopicPartition, int]:
    """Return each partition's offset, without its leader epoch."""
    return {partition: answer.offset for partition, answer in answers.items()}


def names_of(operations: Iterable[AclOperation] | None) -> frozenset[str] | None:
    """Return the names of the operations, or `None` if the broker lists none."""
    return frozenset(operation.name for operation in operations) if operations else None


def _is_unanswered(described: Future[Any]) -> bool:
    failed = described.exception()
    return isinstance(failed, KafkaException) and failed.args[0].code() in UNANSWERED


def _references(description: Any) -> int:
    """Return the number of references to a description's topic id. The number includes this function's own references."""
    topic_id = description.topic_id
    return sys.getrefcount(topic_id)


_REFERENCES = _references(SimpleNamespace(topic_id=Uuid(0, 0)))
"""What `_references` returns for a topic id to which only its description refers."""


def _release_leaked_ids(answers: Iterable[Future[Any]]) -> None:
    """Release the reference to each topic id that confluent-kafka leaks, 200 bytes per topic and request.

    Admin_c_TopicDescription_to_py (2.16.1 and earlier) puts the new Uuid into a dict but keeps its own reference. An id without
    an extra reference is not changed, so a version without the leak is not affected.
    """
    for answer in answers:
        if answer.exception() is None and _references(description := answer.result()) > _REFERENCES:
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(description.topic_id))


def id_text(topic_id: Any) -> str:
    """Return a topic's id as Kafka's own tools print it, with `-` and `_` in place of librdkafka's `+` and `/`."""
    halves = (topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits())
    raw = b"".join(half.to_bytes(8, "big", signed=True) for half in halves)
    return base64.urlsafe_b64encode(raw).decode().rstrip("=") if any(raw) else ""
