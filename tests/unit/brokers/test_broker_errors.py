"""What each broker error becomes: one test for each code that the code handles."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from spark_groupsource import errors
from spark_groupsource.brokers import login_trouble
from spark_groupsource.brokers.broker_errors import COMMIT_ERRORS, MEMBER_ERRORS, REQUEST_ERRORS, explain
from spark_groupsource.sink import failures

ON_COMMIT = {
    "ILLEGAL_GENERATION": errors.GenerationChanged,
    "STALE_MEMBER_EPOCH": errors.GenerationChanged,
    "REBALANCE_IN_PROGRESS": errors.GenerationChanged,
    "COORDINATOR_LOAD_IN_PROGRESS": errors.CoordinatorUnavailable,
    "COORDINATOR_NOT_AVAILABLE": errors.CoordinatorUnavailable,
    "NOT_COORDINATOR": errors.CoordinatorUnavailable,
    "_WAIT_COORD": errors.CoordinatorUnavailable,
    "UNKNOWN_MEMBER_ID": errors.MemberUnknown,
    "FENCED_MEMBER_EPOCH": errors.MemberUnknown,
    "FENCED_INSTANCE_ID": errors.MemberFenced,
    "UNRELEASED_INSTANCE_ID": errors.MemberFenced,
    "REQUEST_TIMED_OUT": errors.CommitOutcomeUnknown,
    "_TIMED_OUT": errors.CommitOutcomeUnknown,
    "_TRANSPORT": errors.CommitOutcomeUnknown,
    "_DESTROY_BROKER": errors.CommitOutcomeUnknown,
    "OFFSET_METADATA_TOO_LARGE": errors.CommitRefused,
    "INVALID_COMMIT_OFFSET_SIZE": errors.CommitRefused,
    "GROUP_AUTHORIZATION_FAILED": errors.NotAuthorized,
    "TOPIC_AUTHORIZATION_FAILED": errors.NotAuthorized,
    "UNKNOWN_TOPIC_OR_PART": errors.TopicNotFound,
}

ON_LOGIN = {
    "_AUTHENTICATION": errors.AuthenticationFailed,
    "SASL_AUTHENTICATION_FAILED": errors.AuthenticationFailed,
    "UNSUPPORTED_SASL_MECHANISM": errors.AuthenticationFailed,
    "_SSL": errors.AuthenticationFailed,
    "_ALL_BROKERS_DOWN": errors.BrokerUnavailable,
}

ON_REQUEST = {
    "GROUP_AUTHORIZATION_FAILED": errors.NotAuthorized,
    "TOPIC_AUTHORIZATION_FAILED": errors.NotAuthorized,
    "CLUSTER_AUTHORIZATION_FAILED": errors.NotAuthorized,
    "UNKNOWN_TOPIC_OR_PART": errors.TopicNotFound,
    "UNKNOWN_TOPIC_ID": errors.TopicNotFound,
    "FENCED_INSTANCE_ID": errors.MemberFenced,
    "UNRELEASED_INSTANCE_ID": errors.MemberFenced,
}

OPTION_AT_FAULT = {
    "INCONSISTENT_GROUP_PROTOCOL": "kafka.partition.assignment.strategy",
    "UNSUPPORTED_ASSIGNOR": "kafka.group.remote.assignor",
    "GROUP_ID_NOT_FOUND": "kafka.group.protocol",
    "INVALID_GROUP_ID": "kafka.group.id",
    "INVALID_REGULAR_EXPRESSION": "subscribePattern",
    "UNSUPPORTED_VERSION": "kafka.group.protocol",
    "_UNSUPPORTED_FEATURE": "kafka.group.protocol",
}

AS_MEMBER = {**ON_REQUEST, **dict.fromkeys([*OPTION_AT_FAULT, "_FATAL"], errors.MembershipError)}


@pytest.mark.parametrize(("code", "kind"), ON_COMMIT.items())
def test_a_commits_error_becomes(code: str, kind: type[errors.GroupKafkaError]) -> None:
    error = explain(KafkaError(getattr(KafkaError, code)), "committing orders-3", COMMIT_ERRORS)
    assert type(error) is kind
    assert str(error).startswith("committing orders-3: ")


@pytest.mark.parametrize(("code", "kind"), [*ON_REQUEST.items(), *ON_LOGIN.items()])
def test_a_requests_error_becomes(code: str, kind: type[errors.GroupKafkaError]) -> None:
    assert type(explain(KafkaError(getattr(KafkaError, code)), "reading")) is kind


@pytest.mark.parametrize(("code", "kind"), AS_MEMBER.items())
def test_an_error_that_ends_a_member_becomes(code: str, kind: type[errors.GroupKafkaError]) -> None:
    error = explain(KafkaError(getattr(KafkaError, code)), "as a member", MEMBER_ERRORS)
    assert type(error) is kind
    assert not error.passing


@pytest.mark.parametrize(("code", "kind"), [one for one in AS_MEMBER.items() if one[0] != "_FATAL"])
def test_an_error_that_librdkafka_hides_behind_a_fatal_one_becomes_the_same(
    code: str, kind: type[errors.GroupKafkaError]
) -> None:
    plain = KafkaError(getattr(KafkaError, code))
    fatal = KafkaError(KafkaError._FATAL, f"ConsumerGroupHeartbeat fatal error: {plain.str()}", True)
    assert type(explain(fatal, "as a member", MEMBER_ERRORS)) is kind
    assert plain.name() in str(explain(fatal, "as a member", MEMBER_ERRORS))


def test_a_fatal_error_of_a_member_that_is_not_listed_does_not_pass() -> None:
    error = explain(KafkaError(KafkaError.GROUP_MAX_SIZE_REACHED, None, True), "as a member", MEMBER_ERRORS)
    assert type(error) is errors.MembershipError
    assert "GROUP_MAX_SIZE_REACHED" in str(error)


@pytest.mark.parametrize(("code", "option"), OPTION_AT_FAULT.items())
def test_an_error_that_an_option_causes_names_the_option(code: str, option: str) -> None:
    assert option in str(explain(KafkaError(getattr(KafkaError, code)), "as a member", MEMBER_ERRORS))


def test_no_code_is_handled_without_a_test() -> None:
    assert {getattr(KafkaError, code) for code in AS_MEMBER} == MEMBER_ERRORS.keys()
    assert {getattr(KafkaError, code) for code in ON_COMMIT} == COMMIT_ERRORS.keys()
    assert {getattr(KafkaError, code) for code in ON_REQUEST} == REQUEST_ERRORS.keys()
    assert {getattr(KafkaError, code) for code in ON_LOGIN} == login_trouble._BY_CODE.keys()


def test_a_commit_refused_for_an_unlisted_reason_is_not_tried_again() -> None:
    error = explain(KafkaError(KafkaError.INVALID_REQUEST), "committing", COMMIT_ERRORS)
    assert type(error) is errors.CommitRefused
    assert not error.passing


def test_a_commit_whose_metadata_is_too_large_names_the_setting_of_the_brokers() -> None:
    error = explain(KafkaError(KafkaError.OFFSET_METADATA_TOO_LARGE), "committing", COMMIT_ERRORS)
    assert "offset.metadata.max.bytes" in str(error)


def test_only_passing_errors_are_tried_again() -> None:
    passing = {kind for kind in ON_COMMIT.values() if kind(".").passing}
    assert passing == {errors.GenerationChanged, errors.CoordinatorUnavailable}


def test_a_task_of_the_sink_that_may_not_write_hears_of_write() -> None:
    error = failures.failure(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), "committing as invoices-0", {})
    assert type(error) is errors.NotAuthorized
    assert "the ACL WRITE on the topic, and for exactly-once READ as well" in str(error)
    assert str(error).count("READ") == 1
