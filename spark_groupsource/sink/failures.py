"""Converts librdkafka errors, and rows that were not delivered, to the sink's exceptions, with advice about what to check."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from confluent_kafka import KafkaError

from spark_groupsource.brokers.broker_errors import REQUEST_ERRORS, explain
from spark_groupsource.brokers.client import UNANSWERED
from spark_groupsource.brokers.login_trouble import MISSING_ACL, is_refused
from spark_groupsource.brokers.process_limits import is_limit
from spark_groupsource.errors import (
    BrokerUnavailable,
    GroupKafkaError,
    NotAuthorized,
    OptionError,
    RecordRefused,
    RecordTooLarge,
    SinkError,
    TopicNotFound,
    WriterFenced,
)


class Undelivered(NamedTuple):
    """The first row that was not delivered."""

    error: KafkaError
    topic: str
    partition: int
    """The row's partition. -1: none had been chosen yet."""
    size: int
    """The size of the key, the value and the headers, in bytes."""


class NotDelivered(Exception):
    """A row was not delivered. The argument is an `Undelivered`."""


FENCED = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.UNKNOWN_PRODUCER_ID,
    }
)
"""Errors that mean that another producer has taken the transactional id, or that the transaction timed out."""

PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._STATE})
"""Errors for rows that were not sent because their transaction had already failed."""

UNREACHED = UNANSWERED | {
    KafkaError._MSG_TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError._DESTROY,
    KafkaError._WAIT_COORD,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
}
"""Errors that mean that no broker answered, or that the right one was not available."""

TASK_ERRORS: Mapping[int, type[GroupKafkaError]] = {
    **REQUEST_ERRORS,
    **dict.fromkeys(FENCED, WriterFenced),
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: NotAuthorized,
    KafkaError._UNKNOWN_TOPIC: TopicNotFound,
    KafkaError._UNKNOWN_PARTITION: RecordRefused,
    KafkaError.MSG_SIZE_TOO_LARGE: RecordTooLarge,
    KafkaError.RECORD_LIST_TOO_LARGE: RecordTooLarge,
    KafkaError.INVALID_TRANSACTION_TIMEOUT: OptionError,
    KafkaError.NOT_ENOUGH_REPLICAS: SinkError,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND: SinkError,
    KafkaError.INVALID_RECORD: RecordRefused,
    KafkaError.POLICY_VIOLATION: RecordRefused,
    KafkaError.INVALID_TIMESTAMP: RecordRefused,
    KafkaError.TOPIC_EXCEPTION: TopicNotFound,
}

_ADVICE: Mapping[int, str] = {
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "The user needs the ACLs WRITE and DESCRIBE on the transactional id (transactionalIdPrefix, as a prefix)."
    ),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: (
        "Brokers before 2.8 require the ACL IDEMPOTENT_WRITE on the cluster. With at-least-once, you can set "
        "kafka.enable.idempotence=false instead."
    ),
    KafkaError._UNKNOWN_TOPIC: "Create the topic, or check its name.",
    KafkaError.UNKNOWN_TOPIC_OR_PART: (
        "A broker has no metadata for the topic, or for a partition that was just added. Usually the next task attempt "
        "succeeds. If it does not, check whether the topic was deleted."
    ),
    KafkaError._UNKNOWN_PARTITION: "The topic does not have the partition in the row's partition column.",
    KafkaError.MSG_SIZE_TOO_LARGE: (
        "Raise kafka.max.request.size, and the topic's max.message.bytes if it is lower, or filter out such rows. If the row is "
        "smaller than both, a batch of rows was too large: set kafka.batch.size to the topic's max.message.bytes."
    ),
    KafkaError.INVALID_RECORD: (
        "Usually the cause is a row without a key in a topic with cleanup.policy=compact. Give each row a key, filter out such "
        "rows, or choose another topic."
    ),
    KafkaError.INVALID_TIMESTAMP: (
        "The executor's and the brokers' clocks differ by more than the topic allows (message.timestamp.before.max.ms, "
        "message.timestamp.after.max.ms). Synchronize the clocks."
    ),
    KafkaError.INVALID_TRANSACTION_TIMEOUT: (
        "kafka.transaction.timeout.ms is higher than the brokers' transaction.max.timeout.ms: lower the former or raise the "
        "latter. kafka.transaction.timeout.ms must be longer than a task takes to write."
    ),
    **dict.fromkeys(
        (KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        "The topic has fewer in-sync replicas than its min.insync.replicas requires. Check the brokers that have its replicas.",
    ),
    KafkaError._MSG_TIMED_OUT: "Check that the executor can reach the brokers, or raise kafka.delivery.timeout.ms.",
}

_SINK_ACL: Mapping[int, str] = {
    **MISSING_ACL,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: (
        "The user needs the ACL WRITE on the topic, and for exactly-once also READ, because the sink commits offsets on it."
    ),
}
"""The ACL that a writing query is missing, by error code."""

_TOKEN_ADVICE: Mapping[type[GroupKafkaError], str] = {
    TopicNotFound: "Create the topic, or check its name.",
    BrokerUnavailable: (
        "Check kafka.bootstrap.servers and the network between this process and the brokers. Or an earlier attempt of the task "
        "may have left a transaction open, which the brokers will abort after kafka.transaction.timeout.ms (120 s by default)."
    ),
}
"""Advice for a failed request to read or commit a token."""

explain_token = partial(explain, advice_of=_TOKEN_ADVICE, missing_acl=_SINK_ACL)
"""Converts the error from a request to read or commit a token."""

_CHECK: Mapping[type[GroupKafkaError], str] = {
    BrokerUnavailable: "Check kafka.bootstrap.servers and the network between this executor and the brokers."
}
"""Advice for errors whose code has no specific advice."""

_FENCED_ADVICE = (
    "Another attempt of this task has started, or a second query uses the same checkpoint or a copy of it, and has taken over "
    "the transactional id. Or the transaction took longer than kafka.transaction.timeout.ms. This attempt's rows are aborted, "
    "and `read_committed` consumers will never see them. Stop the second query, or raise that timeout."
)


def failure(error: KafkaError, doing: str, reported: Mapping[int, KafkaError]) -> GroupKafkaError:
    """Convert a librdkafka error to this package's error.

    Args:
        error: The error.
        doing: The step that failed, for the message.
        reported: The errors that librdkafka has reported in the background, which may show why no broker answers.
    """
    if error.code() in UNREACHED:
        refused = [error for error in reported.values() if is_refused(error) or is_limit(error)]
        error = next(iter(refused), error)
    fenced = next((code for code in FENCED if error.code() == code or _quotes(error, code)), None)
    if fenced is not None:
        return WriterFenced(f"{doing}: {error.str()} ({error.name()}). {_FENCED_ADVICE}")
    found = explain(error, doing, TASK_ERRORS, _CHECK, _SINK_ACL)
    if type(found) is BrokerUnavailable and error.code() not in UNREACHED:
        # A broker answered, or librdkafka itself refused, so advice about the network would be misleading.
        return SinkError(f"{doing}: {error.str()} ({error.name()}).")
    advice = _ADVICE.get(error.code())
    return type(found)(f"{found} {advice}") if advice is not None else found


def undelivered(first: Undelivered, reported: Mapping[int, KafkaError]) -> GroupKafkaError:
    """Return the error for a row that was not written. It names the row's topic, partition and size."""
    where = f"partition {first.partition} of " if first.partition >= 0 else ""
    doing = f"writing a row of {first.size} bytes (key, value and headers) to {where}topic {first.topic}"
    return failure(first.error, doing, reported)


def _quotes(error: KafkaError, code: int) -> bool:
    return error.fatal() and KafkaError(code).str() in error.str()
