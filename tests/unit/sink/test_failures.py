"""What a query that writes says of an error of the brokers or of librdkafka."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from spark_groupsource.errors import (
    AuthenticationFailed,
    BrokerUnavailable,
    GroupKafkaError,
    NotAuthorized,
    RecordTooLarge,
    SinkError,
    TopicNotFound,
    WriterFenced,
)
from spark_groupsource.sink.failures import Undelivered, failure, undelivered


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        (KafkaError._TRANSPORT, BrokerUnavailable, "between this executor and the brokers"),
        (KafkaError._FENCED, WriterFenced, "Another attempt of this task has started"),
        (KafkaError.INVALID_PRODUCER_EPOCH, WriterFenced, "Another attempt of this task has started"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, NotAuthorized, "ACL WRITE on the topic"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, TopicNotFound, "a partition that was just added"),
        (KafkaError.NOT_ENOUGH_REPLICAS, SinkError, "min.insync.replicas"),
    ],
)
def test_an_error_has_a_kind_and_says_what_to_do(code: int, kind: type[GroupKafkaError], says: str) -> None:
    found = failure(KafkaError(code), "committing as q-0", {})
    assert type(found) is kind
    assert str(found).startswith("committing as q-0: ")
    assert says in str(found)


def test_a_refused_login_explains_why_no_broker_answers() -> None:
    refused = KafkaError(KafkaError._AUTHENTICATION, "SASL authentication error: Authentication failed: Invalid username")
    found = failure(KafkaError(KafkaError._TIMED_OUT), "beginning to write", {refused.code(): refused})
    assert type(found) is AuthenticationFailed


def test_a_row_that_is_too_large_is_named_with_its_place_and_size() -> None:
    found = undelivered(Undelivered(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), "invoices", 3, 2_000_000), {})
    assert type(found) is RecordTooLarge
    assert "a row of 2000000 bytes (key, value and headers) to partition 3 of topic invoices" in str(found)
    assert "kafka.max.request.size" in str(found)
