"""What becomes of the errors of brokers."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from confluent_kafka import KafkaError

from spark_groupsource import errors
from spark_groupsource.brokers.broker_errors import COMMIT_ERRORS, MEMBER_ERRORS, REQUEST_ERRORS, ends_member, explain
from spark_groupsource.sink import failures

OPTION_AT_FAULT = {
    "INCONSISTENT_GROUP_PROTOCOL": "kafka.partition.assignment.strategy",
    "INVALID_SESSION_TIMEOUT": "kafka.session.timeout.ms",
    "GROUP_MAX_SIZE_REACHED": "group.max.size (group.consumer.max.size with kafka.group.protocol=consumer)",
    "UNSUPPORTED_ASSIGNOR": "kafka.group.remote.assignor",
    "GROUP_ID_NOT_FOUND": "kafka.group.protocol",
    "INVALID_GROUP_ID": "kafka.group.id",
    "INVALID_REGULAR_EXPRESSION": "subscribePattern",
    "UNSUPPORTED_VERSION": "kafka.group.protocol",
    "_UNSUPPORTED_FEATURE": "kafka.group.protocol",
}

AS_MEMBER = {KafkaError(code).name(): kind for code, kind in MEMBER_ERRORS.items()}

JAVA_ENDS = {
    "JoinGroup": {
        *("FENCED_INSTANCE_ID", "INCONSISTENT_GROUP_PROTOCOL", "INVALID_SESSION_TIMEOUT", "INVALID_GROUP_ID"),
        *("GROUP_AUTHORIZATION_FAILED", "GROUP_MAX_SIZE_REACHED", "UNSUPPORTED_VERSION", "INVALID_REQUEST", "UNKNOWN"),
    },
    "SyncGroup": {"GROUP_AUTHORIZATION_FAILED", "FENCED_INSTANCE_ID"},
    "ConsumerGroupHeartbeat": {
        *("GROUP_AUTHORIZATION_FAILED", "INVALID_REQUEST", "GROUP_MAX_SIZE_REACHED", "UNSUPPORTED_ASSIGNOR"),
        *("GROUP_ID_NOT_FOUND", "INVALID_REGULAR_EXPRESSION", "UNRELEASED_INSTANCE_ID", "FENCED_INSTANCE_ID"),
        *("UNSUPPORTED_VERSION", "INVALID_GROUP_ID"),
    },
}
"""Errors at which Java's consumer gives up (AbstractCoordinator, and the managers of heartbeats under KIP-848)."""

JAVA_TRIES_AGAIN = (
    *("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "UNKNOWN_MEMBER_ID", "MEMBER_ID_REQUIRED"),
    *("ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS", "FENCED_MEMBER_EPOCH"),
)
"""Errors after which it joins again, or looks for the coordinator."""

JOINED_ALREADY = ("UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID", "UNKNOWN")
"""Errors of a member that is in the group which say nothing about the next attempt."""


@pytest.mark.parametrize(
    ("code", "table", "kind"),
    [
        ("ILLEGAL_GENERATION", COMMIT_ERRORS, errors.GenerationChanged),
        ("UNKNOWN_TOPIC_OR_PART", REQUEST_ERRORS, errors.TopicNotFound),
        ("_AUTHENTICATION", REQUEST_ERRORS, errors.AuthenticationFailed),
        ("GROUP_MAX_SIZE_REACHED", MEMBER_ERRORS, errors.MembershipError),
    ],
)
def test_an_error_is_of_the_kind_that_its_request_gives_it(
    code: str, table: Mapping[int, type[errors.GroupKafkaError]], kind: type[errors.GroupKafkaError]
) -> None:
    error = explain(KafkaError(getattr(KafkaError, code)), "asking about orders-3", table)
    assert type(error) is kind
    assert str(error).startswith("asking about orders-3: ")


@pytest.mark.parametrize("has_joined", [False, True])
@pytest.mark.parametrize(
    "code", sorted({*AS_MEMBER, *JAVA_TRIES_AGAIN, *(code for codes in JAVA_ENDS.values() for code in codes)})
)
def test_a_query_ends_with_the_errors_of_its_member_that_end_javas_consumer(code: str, has_joined: bool) -> None:
    ended = ends_member(KafkaError(getattr(KafkaError, code)), has_joined=has_joined)
    assert ended == (code not in JAVA_TRIES_AGAIN and not (has_joined and code in JOINED_ALREADY))
    assert ends_member(KafkaError(getattr(KafkaError, code), None, True), has_joined=has_joined), "librdkafka has given up"


@pytest.mark.parametrize(("code", "kind"), [one for one in AS_MEMBER.items() if one[0] != "_FATAL"])
def test_an_error_that_librdkafka_hides_behind_a_fatal_one_becomes_the_same(
    code: str, kind: type[errors.GroupKafkaError]
) -> None:
    plain = KafkaError(getattr(KafkaError, code))
    fatal = KafkaError(KafkaError._FATAL, f"ConsumerGroupHeartbeat fatal error: {plain.str()}", True)
    assert type(explain(fatal, "as a member", MEMBER_ERRORS)) is kind
    assert plain.name() in str(explain(fatal, "as a member", MEMBER_ERRORS))


def test_a_fatal_error_of_a_member_that_is_not_listed_does_not_pass() -> None:
    error = explain(KafkaError(KafkaError.INVALID_RECORD, None, True), "as a member", MEMBER_ERRORS)
    assert type(error) is errors.MembershipError
    assert "INVALID_RECORD" in str(error)


@pytest.mark.parametrize(("code", "option"), OPTION_AT_FAULT.items())
def test_an_error_that_a_setting_causes_names_it_and_says_that_nothing_is_lost(code: str, option: str) -> None:
    text = str(explain(KafkaError(getattr(KafkaError, code)), "as a member", MEMBER_ERRORS))
    assert option in text
    assert "No record is lost" in text


def test_a_commit_refused_for_an_unlisted_reason_is_not_tried_again() -> None:
    error = explain(KafkaError(KafkaError.INVALID_REQUEST), "committing", COMMIT_ERRORS)
    assert type(error) is errors.CommitRefused
    assert not error.passing


def test_a_commit_whose_metadata_is_too_large_names_the_setting_of_the_brokers() -> None:
    error = explain(KafkaError(KafkaError.OFFSET_METADATA_TOO_LARGE), "committing", COMMIT_ERRORS)
    assert "offset.metadata.max.bytes" in str(error)


def test_only_passing_errors_are_tried_again() -> None:
    passing = {kind for kind in COMMIT_ERRORS.values() if kind(".").passing}
    assert passing == {errors.GenerationChanged, errors.CoordinatorUnavailable, errors.MemberUnknown}


def test_a_task_of_the_sink_that_may_not_write_hears_of_write() -> None:
    error = failures.failure(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), "committing as invoices-0", {})
    assert type(error) is errors.NotAuthorized
    assert "the ACL WRITE on the topic, and for exactly-once also READ" in str(error)
    assert str(error).count("READ") == 1
