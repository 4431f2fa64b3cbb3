"""What an error of librdkafka means for a task of the sink: which exception it becomes, and what to check."""

from __future__ import annotations

from collections.abc import Mapping

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
from spark_groupsource.sink.contract import Undelivered

FENCED = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.UNKNOWN_PRODUCER_ID,
    }
)
"""Another producer has the transactional id now, or the transaction has timed out."""

PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._STATE})
"""The transaction has failed, so its rows are not sent."""

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
"""No broker has answered, or none that could."""

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
        "Brokers before 2.8 want IDEMPOTENT_WRITE on the cluster; set kafka.enable.idempotence=false for at-least-once."
    ),
    KafkaError._UNKNOWN_TOPIC: "Create the topic, or check its name.",
    KafkaError.UNKNOWN_TOPIC_OR_PART: (
        "A broker does not know the topic, or a partition that was just added: usually the next attempt of the task succeeds. If "
        "it does not, check whether the topic was deleted."
    ),
    KafkaError._UNKNOWN_PARTITION: "The topic does not have the partition that the column partition names.",
    KafkaError.MSG_SIZE_TOO_LARGE: (
        "Raise kafka.max.request.size, and the topic's max.message.bytes if it is lower, or leave such rows out. If the row is "
        "smaller than both, a batch of rows was refused: set kafka.batch.size to the topic's max.message.bytes."
    ),
    KafkaError.INVALID_RECORD: (
        "Mostly that is a row without a key in a topic with cleanup.policy=compact: give each row a key, leave such rows out, or "
        "choose another topic."
    ),
    KafkaError.INVALID_TIMESTAMP: (
        "The clock of the executor and that of the brokers differ by more than the topic allows "
        "(message.timestamp.before.max.ms, message.timestamp.after.max.ms)."
    ),
    KafkaError.INVALID_TRANSACTION_TIMEOUT: (
        "kafka.transaction.timeout.ms is higher than the brokers' transaction.max.timeout.ms: lower the one or raise the other. "
        "It must be longer than a task takes to write."
    ),
    KafkaError.NOT_ENOUGH_REPLICAS: "Too few replicas are in sync for the topic's min.insync.replicas.",
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "Too few replicas are in sync for the topic's min.insync.replicas.",
    KafkaError._MSG_TIMED_OUT: "Check that the executor reaches the brokers, or raise kafka.delivery.timeout.ms.",
}

SINK_ACL: Mapping[int, str] = {
    **MISSING_ACL,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: (
        "The user needs the ACL WRITE on the topic, and for exactly-once READ as well: a token is an offset of the topic."
    ),
}
"""Which ACL a query that writes is missing, by the code of the refusal."""

TOKEN_ADVICE: Mapping[type[GroupKafkaError], str] = {
    TopicNotFound: "Create the topic, or check its name.",
    BrokerUnavailable: (
        "Check kafka.bootstrap.servers and the network between this process and the brokers. Or an earlier attempt of the task "
        "left a transaction open: it ends after kafka.transaction.timeout.ms (120 s by default)."
    ),
}
"""What to check if a token cannot be read or committed."""

_CHECK: Mapping[type[GroupKafkaError], str] = {
    BrokerUnavailable: "Check kafka.bootstrap.servers and the network between this executor and the brokers."
}
"""What to check, where the code says no more."""

_FENCED_ADVICE = (
    "Another attempt of this task has begun, or a second query runs on the same checkpoint or on a copy of it: each takes the id "
    "from the other. Or the transaction took longer than kafka.transaction.timeout.ms. What this attempt wrote is aborted; no "
    "reader of committed records sees it"
)


def failure(error: KafkaError, doing: str, reported: Mapping[int, KafkaError]) -> GroupKafkaError:
    """Return this package's error for one of librdkafka.

    Args:
        error: The error.
        doing: What was being done.
        reported: What librdkafka reported in the background. It says why no broker answers.
    """
    if error.code() in UNREACHED:
        refused = [error for error in reported.values() if is_refused(error) or is_limit(error)]
        error = next(iter(refused), error)
    fenced = next((code for code in FENCED if error.code() == code or _quotes(error, code)), None)
    if fenced is not None:
        return WriterFenced(f"{doing}: {error.str()} ({error.name()}). {_FENCED_ADVICE}.")
    found = explain(error, doing, TASK_ERRORS, _CHECK, SINK_ACL)
    if type(found) is BrokerUnavailable and error.code() not in UNREACHED:
        # A broker has answered, or librdkafka has refused: the network is not what is to be looked at.
        return SinkError(f"{doing}: {error.str()} ({error.name()}).")
    advice = _ADVICE.get(error.code())
    return type(found)(f"{found} {advice}") if advice is not None else found


def undelivered(first: Undelivered, reported: Mapping[int, KafkaError]) -> GroupKafkaError:
    """Return the error for a row that could not be written. It names topic, partition and size."""
    where = f"partition {first.partition} of " if first.partition >= 0 else ""
    doing = f"writing a row of {first.size} bytes (key, value and headers) to {where}topic {first.topic}"
    return failure(first.error, doing, reported)


def _quotes(error: KafkaError, code: int) -> bool:
    return error.fatal() and KafkaError(code).str() in error.str()
