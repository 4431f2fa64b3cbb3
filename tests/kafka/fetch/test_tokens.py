"""`kafka.oauth_cb` in both readers: tokens that expire while a task waits, and functions that fail."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from spark_groupsource.brokers.client_pool import pool
from spark_groupsource.errors import AuthenticationFailed
from spark_groupsource.fetch import native_consumer as native
from spark_groupsource.fetch import pure_consumer as pure
from spark_groupsource.fetch.contract import FetchRange, FetchSettings, Reader
from spark_groupsource.options.model import Options
from tests.support.fetching import NATIVE, offsets
from tests.support.secured import Secured
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("no_secret_is_logged")

READERS = (pure.read, native.read)
RECORDS = 20


def settings(secured: Secured, function: str, **more: str) -> FetchSettings:
    given = {"kafka.group.id": "open-tokens", "subscribe": "any", "kafka.log_level": "0", **secured.login("oauth_cb"), **more}
    return Options.parse({**given, "kafka.oauth_cb": f"tests.support.tokens:{function}"}).fetch_settings()


@pytest.fixture
def large(secured: Secured, secured_topic: Callable[[str], str]) -> FetchRange:
    """A range that is read in small portions: a response has one record, and so has a batch (see `slowly`)."""
    topic = secured_topic("open-")
    producer = Producer({"bootstrap.servers": secured.cluster.bootstrap_servers, "linger.ms": 0})
    for _ in range(RECORDS):
        producer.produce(topic, bytes(100_000))
        assert producer.flush(60) == 0
    return FetchRange(topic, 0, 10, 10 + RECORDS)


def slowly(secured: Secured, function: str, timeout_ms: int) -> FetchSettings:
    more = {
        "kafka.max.partition.fetch.bytes": "10000",
        "kafka.queued.min.messages": "1",
        "kafkaConsumer.pollTimeoutMs": str(timeout_ms),
    }
    return replace(settings(secured, function, **more), buffer_bytes=1_000_000)


@NATIVE
def test_a_task_goes_on_and_a_kept_consumer_serves_the_next_task_after_their_tokens_have_expired(
    secured: Secured, large: FetchRange, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool().close_kept()
    monkeypatch.setattr(secured.tokens, "valid_s", 20)
    how = slowly(secured, "callback", 15_000)
    tasks = {read: read(large, how) for read in READERS}
    for read, task in tasks.items():
        assert next(task).num_rows == 1
        assert len(offsets(read, replace(large, end=12), how)) == 2  # with a second consumer, which is kept
    issued, expired_at = len(secured.tokens.issued), time.time() + secured.tokens.valid_s

    until(lambda: time.time() > expired_at and len(secured.tokens.issued) > issued, "a new token for the four consumers")
    assert len(secured.tokens.issued) - issued <= 1 + (time.time() - expired_at) / 16, "they share it"

    for read, task in tasks.items():
        assert len(offsets(read, replace(large, start=12, end=15), how)) == 3
        assert sum(batch.num_rows for batch in task) == RECORDS - 1


@NATIVE
@pytest.mark.long
def test_a_function_that_fails_later_is_a_warning_and_the_task_fails_when_the_last_token_has_expired(
    secured: Secured, large: FetchRange, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(secured.tokens, "valid_s", 15)
    how = slowly(secured, "first_only", 3_000)
    tasks = [read(large, how) for read in READERS]
    for task in tasks:
        assert next(task).num_rows == 1

    def warnings() -> list[str]:
        said = (one.getMessage() for one in caplog.records if one.levelno == logging.WARNING)
        return [text for text in said if "the function raised PermissionError. The last token is valid for another" in text]

    until(warnings, "a warning for both consumers")
    expired_at = time.time() + secured.tokens.valid_s / 5 + 2  # a fifth of its time, a second of clock skew, and one more
    until(lambda: time.time() > expired_at, "the last tokens to expire")

    for task in tasks:
        with pytest.raises(AuthenticationFailed, match="with OAUTHBEARER, check the token"):
            list(task)
    for read in READERS:
        assert len(offsets(read, replace(large, end=12), how)) == 2, "the next task gets a consumer and a token of its own"


def test_a_function_that_ends_its_process_ends_the_task_with_an_error(read: Reader, secured: Secured) -> None:
    with pytest.raises(AuthenticationFailed, match=r"^kafka\.oauth_cb = 'tests\.support\.tokens:exits': .* raised SystemExit\.$"):
        list(read(FetchRange("any", 0, 0, 1), settings(secured, "exits")))


def test_a_principal_and_extensions_go_to_the_broker(read: Reader, secured: Secured, secured_topic: Callable[[str], str]) -> None:
    how = settings(secured, "with_extensions")
    assert offsets(read, FetchRange(secured_topic("open-"), 0, 0, 10), how) == list(range(10))
