"""A client by librdkafka's C API: which settings it takes, and where its log lines go."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException

from spark_groupsource import oauth_callback
from spark_groupsource.brokers import client as making
from spark_groupsource.brokers.shared_token import Token
from spark_groupsource.errors import AuthenticationFailed, OptionError
from spark_groupsource.fetch.native_consumer import NativeConsumer
from spark_groupsource.native.client import NativeClient, _to_log, decoded
from spark_groupsource.native.structs import NO_ERROR, PRODUCER
from tests.support.fetching import NATIVE, NOWHERE
from tests.support.waiting import until

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


pytestmark = NATIVE

SECRET = "tweedledee"  # noqa: S105


def with_callback(name: str, **more: str) -> dict[str, str]:
    login = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": name}
    return {**NOWHERE, **login, **more}


@oauth_callback
def raised(name: str) -> tuple[str, float]:
    raise PermissionError(SECRET)


@pytest.mark.parametrize(
    ("give", "message"),
    [
        (lambda: Token(SECRET, time.time() - 1), "librdkafka rejected the token"),
        (lambda: Token(SECRET + "\x7f", time.time() + 60), "librdkafka rejected the token"),  # librdkafka's text quotes it
        (lambda: Token(SECRET, time.time() + 60, "", {"auth": SECRET}), "librdkafka rejected the token"),
        (lambda: raised(""), "the function raised PermissionError"),
    ],
)
def test_what_librdkafka_does_not_take_is_reported_and_not_shown(
    give: Callable[[], Token], message: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(making, "token_callback", lambda _name, _config: give)
    consumer = NativeConsumer(with_callback("any:any", log_level="7", debug="security"))
    try:

        def reported() -> bool:
            consumer.serve()
            return any("OAUTHBEARER" in error.str() for error in consumer.errors.values())

        until(reported, "an error of the token")
        (error,) = [error for error in consumer.errors.values() if "OAUTHBEARER" in error.str()]
    finally:
        consumer.close()
    assert f"kafka.oauth_cb: {message}" in error.str()
    assert f"kafka.oauth_cb = 'any:any': {message}" in caplog.text
    assert SECRET not in caplog.text + error.str()


def test_a_consumer_whose_function_fails_at_once_is_not_made() -> None:
    with pytest.raises(AuthenticationFailed, match=r"kafka\.oauth_cb.*raised PermissionError") as caught:
        NativeConsumer(with_callback(f"{__name__}:raised"))
    assert SECRET not in f"{caught.value!r}"


def test_a_callback_without_its_mechanism_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "spark_groupsource.brokers.client.token_callback", lambda _name, _config: lambda: Token(SECRET, time.time() + 60)
    )
    with pytest.raises(OptionError, match="No SASL mechanism using callbacks"):
        NativeConsumer({**NOWHERE, "oauth_cb": "any:any"})
