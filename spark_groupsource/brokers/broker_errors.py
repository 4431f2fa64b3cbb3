"""Converts broker and librdkafka errors to this package's exceptions, with advice on what to check."""

from __future__ import annotations

import re
from collections.abc import Mapping

from confluent_kafka import KafkaError

from spark_groupsource.brokers.login_trouble import MISSING_ACL, login_trouble
from spark_groupsource.brokers.process_limits import is_limit, limit_reached
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
"""Maps error codes for a refused or unanswered commit to exceptions (KIP-345, KIP-848, Kafka's OffsetCommitResponse)."""

COORDINATOR_ERRORS = frozenset(code for code, kind in COMMIT_ERRORS.items() if kind is CoordinatorUnavailable)
"""Error codes for a group whose coordinator is missing or still loading. The request had no effect, so it may be retried."""

REQUEST_ERRORS: Mapping[int, type[GroupKafkaError]] = {
    KafkaError.GROUP_AUTHORIZATION_FAILED: NotAuthorized,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: NotAuthorized,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: NotAuthorized,
    KafkaError.UNKNOWN_TOPIC_OR_PART: TopicNotFound,
    KafkaError.UNKNOWN_TOPIC_ID: TopicNotFound,
    KafkaError.FENCED_INSTANCE_ID: MemberFenced,
    KafkaError.UNRELEASED_INSTANCE_ID: MemberFenced,
}
"""Exceptions by error code, for requests other than commits. Codes that are not listed become BrokerUnavailable, or
AuthenticationFailed (login_trouble.py)."""

OFFSET_ERRORS: Mapping[int, type[GroupKafkaError]] = {
    **REQUEST_ERRORS,
    **{code: kind for code, kind in COMMIT_ERRORS.items() if kind is CommitOutcomeUnknown},
}
"""Exceptions by error code, for requests from a client that writes a group's offsets but is not a member."""

MEMBER_ERRORS: Mapping[int, type[GroupKafkaError]] = {
    **REQUEST_ERRORS,
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: MembershipError,
    KafkaError.INVALID_SESSION_TIMEOUT: MembershipError,
    KafkaError.GROUP_MAX_SIZE_REACHED: MembershipError,
    KafkaError.UNSUPPORTED_ASSIGNOR: MembershipError,
    KafkaError.GROUP_ID_NOT_FOUND: MembershipError,
    KafkaError.INVALID_GROUP_ID: MembershipError,
    KafkaError.INVALID_REGULAR_EXPRESSION: MembershipError,
    KafkaError.UNSUPPORTED_VERSION: MembershipError,
    KafkaError._UNSUPPORTED_FEATURE: MembershipError,
    KafkaError.INVALID_REQUEST: MembershipError,
    KafkaError.UNKNOWN: MembershipError,
    KafkaError._FATAL: MembershipError,
}
"""Exceptions by error code, for errors that make a member and its query fail (`ends_member`). The Java consumer also fails on
these. Any other code that librdkafka calls fatal becomes MembershipError."""

_FINAL_ONLY_AT_THE_START = TOPIC_ERRORS | {KafkaError.UNKNOWN}


def ends_member(error: KafkaError, *, has_joined: bool) -> bool:
    """Return whether this error must make the query fail, as it does a Java consumer. librdkafka would keep rejoining forever.

    Args:
        error: the error that the member's consumer returned when it was polled.
        has_joined: whether the member has had its first assignment. After that, the query survives a deleted topic or an
            internal failure in the coordinator.
    """
    if error.fatal():
        return True
    return error.code() in MEMBER_ERRORS and not (has_joined and error.code() in _FINAL_ONLY_AT_THE_START)


_PROTOCOL = "The brokers do not support kafka.group.protocol=consumer, which requires Kafka 4.0. Set it to classic."

TO_MOVE_A_GROUP = (
    "Stop all members of the group, then start them with kafka.group.protocol=consumer. Only members with "
    "kafka.partition.assignment.strategy=range can move one by one. Or set kafka.group.protocol=classic. See "
    "docs/operations.md, Moving to the new group protocol."
)
"""How to move a group to the KIP-848 protocol if the brokers cannot convert its classic members' assignor."""

_COORDINATORS_LOG = "Only the coordinator's log has the reason; `groupkafka describe` shows which broker is the coordinator."

_MEMBER_ADVICE: Mapping[int, str] = {
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: "All members of a group need a common assignor, but this member does not offer the "
    "other members' assignor. Set kafka.partition.assignment.strategy to theirs (`groupkafka describe` shows it), or stop the "
    "other members first.",
    KafkaError.INVALID_SESSION_TIMEOUT: "kafka.session.timeout.ms (45000 by default) is outside the range that the "
    "brokers allow, from group.min.session.timeout.ms to group.max.session.timeout.ms. `groupkafka check` shows both limits. Set "
    "a value in that range.",
    KafkaError.GROUP_MAX_SIZE_REACHED: "The group already has as many members as the brokers' group.max.size "
    "(group.consumer.max.size with kafka.group.protocol=consumer) allows. Stop another member (`groupkafka describe` shows "
    "them), or raise that setting. A member that was killed still counts until its session expires (45 s by default), so "
    "restart this query after that.",
    KafkaError.UNSUPPORTED_ASSIGNOR: "The brokers do not have the assignor that kafka.group.remote.assignor names. "
    "Kafka includes uniform and range.",
    KafkaError.GROUP_ID_NOT_FOUND: "The group has members that use the classic protocol, and the brokers cannot move it "
    "to kafka.group.protocol=consumer while they are running, usually because their assignor is cooperative-sticky, the default. "
    f"{TO_MOVE_A_GROUP} If their assignor is already range, the brokers' group.consumer.migration.policy may forbid the move.",
    KafkaError.INVALID_GROUP_ID: "Check kafka.group.id.",
    KafkaError.INVALID_REGULAR_EXPRESSION: "Check subscribePattern: with kafka.group.protocol=consumer, the brokers "
    "interpret the pattern, and expect RE2/J syntax.",
    KafkaError.UNSUPPORTED_VERSION: _PROTOCOL,
    KafkaError._UNSUPPORTED_FEATURE: _PROTOCOL,
    KafkaError.INVALID_REQUEST: _COORDINATORS_LOG,
    KafkaError.UNKNOWN: _COORDINATORS_LOG,
}
"""What to check after an error that makes a member fail, if the advice for the error's class is not enough."""

_COMMIT_ADVICE: Mapping[int, str] = {
    KafkaError.OFFSET_METADATA_TOO_LARGE: "This commit's metadata is larger than the brokers' offset.metadata.max.bytes. "
    "Raise that setting (Kafka's default is 4096).",
}
"""What to check after a refused commit, if the advice for the error's class is not enough."""

ADVICE: Mapping[type[GroupKafkaError], str] = {
    TopicNotFound: "Check subscribe or subscribePattern.",
    MembershipError: "No record is lost: once the query can join, it will continue from its checkpoint.",
    MemberFenced: "Another running process is using the same kafka.group.instance.id. Give each query its own.",
    BrokerUnavailable: "Check kafka.bootstrap.servers and the network between this driver and the brokers.",
    CommitOutcomeUnknown: "The commit may or may not have been written. A restarted query reads the group's commits and "
    "continues from there.",
}
"""Advice about what to check, by exception class."""

LEARNED = re.compile(r"(\S+:\d+)/(\d+): ")
"""Matches librdkafka's name for a broker whose address another broker returned: the address and the broker's id."""

_ADVERTISED = (
    "{0} is the address that broker {1} advertises, as returned by a bootstrap server. Check that the broker is running, that "
    "its advertised.listeners are correct, and that this machine can reach that address."
)
"""What to check if an advertised address cannot be reached."""


def cause_of(error: KafkaError) -> KafkaError:
    """Return the error that caused a fatal error. librdkafka replaces the cause's code but quotes its text."""
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
    """Convert a broker or librdkafka error to this package's exception, with advice on what to check.

    Args:
        error: The error that was returned or raised.
        doing: What the client was doing, as in "committing orders-3".
        table: Maps error codes for this kind of request to exceptions.
        advice_of: Advice about what to check, by exception class.
        missing_acl: Which ACL is missing, by error code.
    """
    fallback: type[GroupKafkaError] = CommitRefused if table is COMMIT_ERRORS else BrokerUnavailable
    if table is MEMBER_ERRORS and error.fatal():
        fallback = MembershipError
    error = cause_of(error)
    if is_limit(error):
        return limit_reached(f"{doing}: {error.str()}")
    kind = table.get(error.code(), fallback)
    trouble = login_trouble(error)
    if kind is BrokerUnavailable and trouble is not None and trouble.final:
        kind = AuthenticationFailed
    learned = LEARNED.search(error.str()) if kind is BrokerUnavailable else None
    check = advice_of.get(kind) if learned is None else _ADVERTISED.format(*learned.groups())
    advice = [missing_acl.get(error.code()), trouble.check if trouble is not None else None, check]
    if table is MEMBER_ERRORS:
        advice.append(_MEMBER_ADVICE.get(error.code()))
    if table is COMMIT_ERRORS:
        advice.append(_COMMIT_ADVICE.get(error.code()))
    return kind(" ".join(filter(None, [f"{doing}: {error.str()} ({error.name()}).", *advice])))
