"""What each error of the brokers or of librdkafka means: which exception it becomes, and what to check."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError

from spark_groupsource.brokers.login_trouble import MISSING_ACL, login_trouble
from spark_groupsource.errors import (
    AuthenticationFailed,
    BrokerUnavailable,
    CommitOutcomeUnknown,
    CommitRefused,
    CoordinatorUnavailable,
    GenerationChanged,
    GroupKafkaError,
    MemberFenced,
    MembershipError,
    MemberUnknown,
    NotAuthorized,
    TopicNotFound,
)

TOPIC_ERRORS = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID})

COMMIT_ERRORS: Mapping[int, type[GroupKafkaError]] = {
    KafkaError.ILLEGAL_GENERATION: GenerationChanged,
    KafkaError.STALE_MEMBER_EPOCH: GenerationChanged,
    KafkaError.REBALANCE_IN_PROGRESS: GenerationChanged,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS: CoordinatorUnavailable,
    KafkaError.COORDINATOR_NOT_AVAILABLE: CoordinatorUnavailable,
    KafkaError.NOT_COORDINATOR: CoordinatorUnavailable,
    KafkaError._WAIT_COORD: CoordinatorUnavailable,
    KafkaError.UNKNOWN_MEMBER_ID: MemberUnknown,
    KafkaError.FENCED_MEMBER_EPOCH: MemberUnknown,
    KafkaError.FENCED_INSTANCE_ID: MemberFenced,
    KafkaError.UNRELEASED_INSTANCE_ID: MemberFenced,
    KafkaError.REQUEST_TIMED_OUT: CommitOutcomeUnknown,
    KafkaError._TIMED_OUT: CommitOutcomeUnknown,
    KafkaError._TRANSPORT: CommitOutcomeUnknown,
    KafkaError._DESTROY_BROKER: CommitOutcomeUnknown,
    KafkaError.OFFSET_METADATA_TOO_LARGE: CommitRefused,
    KafkaError.INVALID_COMMIT_OFFSET_SIZE: CommitRefused,
    KafkaError.GROUP_AUTHORIZATION_FAILED: NotAuthorized,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: NotAuthorized,
    KafkaError.UNKNOWN_TOPIC_OR_PART: TopicNotFound,
}
"""The meaning of a refused or unanswered commit (KIP-345, KIP-848, Kafka's OffsetCommitResponse)."""

REQUEST_ERRORS: Mapping[int, type[GroupKafkaError]] = {
    KafkaError.GROUP_AUTHORIZATION_FAILED: NotAuthorized,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: NotAuthorized,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: NotAuthorized,
    KafkaError.UNKNOWN_TOPIC_OR_PART: TopicNotFound,
    KafkaError.UNKNOWN_TOPIC_ID: TopicNotFound,
    KafkaError.FENCED_INSTANCE_ID: MemberFenced,
    KafkaError.UNRELEASED_INSTANCE_ID: MemberFenced,
}
"""The meaning of other requests' errors. Any other code is BrokerUnavailable, or AuthenticationFailed (login_trouble.py)."""

OFFSET_ERRORS: Mapping[int, type[GroupKafkaError]] = {
    **REQUEST_ERRORS,
    **{code: kind for code, kind in COMMIT_ERRORS.items() if kind is CommitOutcomeUnknown},
}
"""The same for offsets that no member commits."""

MEMBER_ERRORS: Mapping[int, type[GroupKafkaError]] = {
    **REQUEST_ERRORS,
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: MembershipError,
    KafkaError.UNSUPPORTED_ASSIGNOR: MembershipError,
    KafkaError.GROUP_ID_NOT_FOUND: MembershipError,
    KafkaError.INVALID_GROUP_ID: MembershipError,
    KafkaError.INVALID_REGULAR_EXPRESSION: MembershipError,
    KafkaError.UNSUPPORTED_VERSION: MembershipError,
    KafkaError._UNSUPPORTED_FEATURE: MembershipError,
    KafkaError._FATAL: MembershipError,
}
"""The meaning of the errors of a member that end its query. TOPIC_ERRORS end it only before its first assignment, the others at
any time. Any other code that librdkafka calls fatal is MembershipError."""


_PROTOCOL = "The brokers do not have kafka.group.protocol=consumer, which Kafka has from 4.0 on. Set it to classic."

_MEMBER_ADVICE: Mapping[int, str] = {
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: "All members of a group need an assignor in common, and this one does not offer "
    "that of the others. Set kafka.partition.assignment.strategy to theirs (`groupkafka describe` shows it), or stop them first.",
    KafkaError.UNSUPPORTED_ASSIGNOR: "The brokers do not have the assignor that kafka.group.remote.assignor names. Kafka has "
    "uniform and range.",
    KafkaError.GROUP_ID_NOT_FOUND: "With kafka.group.protocol=consumer this means that the group has members of the classic "
    "protocol which cannot share it with this one. Stop them first, or set kafka.group.protocol to classic.",
    KafkaError.INVALID_GROUP_ID: "Check kafka.group.id.",
    KafkaError.INVALID_REGULAR_EXPRESSION: "Check subscribePattern: with kafka.group.protocol=consumer the brokers read it, and "
    "expect the syntax of RE2/J.",
    KafkaError.UNSUPPORTED_VERSION: _PROTOCOL,
    KafkaError._UNSUPPORTED_FEATURE: _PROTOCOL,
}
"""What to check when an error ends a member, where its class does not say enough."""

ADVICE: Mapping[type[GroupKafkaError], str] = {
    TopicNotFound: "Check subscribe or subscribePattern.",
    MemberFenced: "Another running process has the same kafka.group.instance.id; each query needs its own.",
    BrokerUnavailable: "Check kafka.bootstrap.servers and the network between this driver and the brokers.",
    CommitOutcomeUnknown: "The commit may or may not have been written. A restarted query reads what the group has, and goes on.",
}
"""What to check, by the error of this package."""


def _cause(error: KafkaError) -> KafkaError:
    """Return the error behind a fatal one. librdkafka hides its code, but quotes its text."""
    if error.code() == KafkaError._FATAL:
        for code in MEMBER_ERRORS.keys() - {KafkaError._FATAL}:
            cause = KafkaError(code)
            if cause.str() in error.str():
                return cause
    return error


def explain(
    error: KafkaError,
    doing: str,
    table: Mapping[int, type[GroupKafkaError]] = REQUEST_ERRORS,
    advice_of: Mapping[type[GroupKafkaError], str] = ADVICE,
    missing_acl: Mapping[int, str] = MISSING_ACL,
) -> GroupKafkaError:
    """Return this package's error for one of a broker or of librdkafka. Its text says what to check.

    Args:
        error: What was returned or raised.
        doing: What was being done, as in "committing orders-3".
        table: The meaning of the codes for this kind of request.
        advice_of: What to check, by the error of this package.
        missing_acl: Which ACL is missing, by the code of the refusal.
    """
    fallback: type[GroupKafkaError] = CommitRefused if table is COMMIT_ERRORS else BrokerUnavailable
    if table is MEMBER_ERRORS and error.fatal():
        fallback = MembershipError
    error = _cause(error)
    kind = table.get(error.code(), fallback)
    trouble = login_trouble(error)
    if kind is BrokerUnavailable and trouble is not None and trouble.final:
        kind = AuthenticationFailed
    advice = [missing_acl.get(error.code()), trouble.check if trouble is not None else None, advice_of.get(kind)]
    if table is MEMBER_ERRORS:
        advice.append(_MEMBER_ADVICE.get(error.code()))
    return kind(" ".join(filter(None, [f"{doing}: {error.str()} ({error.name()}).", *advice])))
