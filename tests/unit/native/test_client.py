"""A client by librdkafka's C API: which settings it takes, and where its log lines go."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError, KafkaException

from spark_groupsource.errors import OptionError
from spark_groupsource.native.client import NativeClient, _to_log, decoded
from spark_groupsource.native.structs import NO_ERROR, PRODUCER
from tests.support.fetching import NATIVE

pytestmark = NATIVE


def test_a_setting_that_librdkafka_refuses_is_named_without_a_secret() -> None:
    with pytest.raises(OptionError, match=r"retry\.backoff\.ms") as refused:
        NativeClient(
            PRODUCER, {"bootstrap.servers": "127.0.0.1:1", "sasl.password": "open-sesame", "retry.backoff.ms": "open-sesame"}
        )
    assert "open-sesame" not in str(refused.value)


def test_a_code_of_librdkafka_is_its_error() -> None:
    client = NativeClient(PRODUCER, {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"})
    client._raise_for(NO_ERROR)
    with pytest.raises(KafkaException) as raised:
        client._raise_for(KafkaError._TIMED_OUT)
    assert raised.value.args[0].code() == KafkaError._TIMED_OUT
    client._kafka.destroy(client._handle)


@pytest.mark.parametrize(
    ("severity", "level"),
    [(0, logging.CRITICAL), (3, logging.ERROR), (4, logging.WARNING), (7, logging.DEBUG), (9, logging.DEBUG)],
)
def test_a_log_line_has_the_level_of_its_severity(severity: int, level: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="spark_groupsource.fetch.librdkafka"):
        _to_log(None, severity, b"FAIL", f"of the test {level}".encode())
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [(level, f"FAIL: of the test {level}")]


def test_a_text_may_be_missing_or_broken() -> None:
    assert (decoded(None), decoded(b"\xff")) == ("", "\N{REPLACEMENT CHARACTER}")
