"""Brokers that refuse or do not answer: an error in time, with what to check, and no secret."""

from __future__ import annotations

import contextlib
import http.server
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from confluent_kafka import KafkaError

from devtools.broker import Cluster
from spark_groupsource.errors import (
    AuthenticationFailed,
    BrokerError,
    BrokerUnavailable,
    GroupKafkaError,
    NotAuthorized,
    OptionError,
)
from spark_groupsource.fetch import reading
from spark_groupsource.fetch.arrow_schema import arrow_schema
from spark_groupsource.fetch.contract import FetchRange, FetchSettings, Reader
from spark_groupsource.fetch.lost_ranges import LogBounds
from spark_groupsource.fetch.refusals import refusal
from spark_groupsource.options.model import Options
from tests.conftest import MakeTopic
from tests.kafka.conftest import Filled
from tests.support.fetching import MEGABYTE, NOWHERE, MakeSettings, offsets, rows
from tests.support.options import BASE
from tests.support.waiting import in_background


def test_a_broker_that_does_not_answer_is_an_error_in_time(
    read: Reader, using: MakeSettings, filled: Filled, cluster: Cluster
) -> None:
    name = filled(count=60, value=bytes(MEGABYTE // 2))
    small_prefetch = {"queued.max.messages.kbytes": "1024", "queued.min.messages": "1"}
    how = using(small_prefetch, poll_timeout_ms=5000)
    begun = read(FetchRange(name, 0, 0, 60), how)
    next(begun)
    cluster.nodes[0].pause()
    try:
        for batches in (begun, read(FetchRange(name, 0, 0, 60), using({"client.id": "fresh"}, poll_timeout_ms=5000))):
            began = time.monotonic()
            with pytest.raises(BrokerUnavailable, match=rf"{name}-0 \[0, 60\).*5000 ms.*bootstrap.servers"):
                list(batches)
            assert 0.5 < time.monotonic() - began < 30
    finally:
        cluster.nodes[0].resume()

    assert offsets(read, FetchRange(name, 0, 58, 60), using(small_prefetch)) == [58, 59]


def test_no_broker_at_all_is_an_error_in_time(read: Reader) -> None:
    nowhere = FetchSettings(NOWHERE, arrow_schema(False), poll_timeout_ms=500)

    with pytest.raises(BrokerUnavailable, match=r"refused.*kafka\.broker\.address\.family=v4"):
        list(read(FetchRange("any", 0, 7, 8), nowhere))
    Options.parse({**BASE, "kafka.broker.address.family": "v4"})


def read_without_descriptors(read: Reader, how: FetchSettings) -> None:
    """Read where two more files may be opened, which is too few for a connection."""
    import resource

    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit, 1024), most))
    taken: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        for _ in range(2):
            os.close(taken.pop())
        list(read(FetchRange("orders", 0, 0, 1), how))
    finally:
        for descriptor in taken:
            os.close(descriptor)


@pytest.mark.skipif(sys.platform == "win32", reason="no limit of open files")
def test_a_process_without_file_descriptors_is_an_error_long_before_the_poll_timeout(read: Reader, using: MakeSettings) -> None:
    how = using({"client.id": "no-descriptors"}, poll_timeout_ms=250_000)
    began = time.monotonic()
    # A process of its own: clients of other tests close on their threads, and give descriptors back.
    with (
        ProcessPoolExecutor(1, get_context("spawn")) as process,
        pytest.raises(BrokerError, match=r"Too many open files.*limit on open files"),
    ):
        process.submit(read_without_descriptors, read, how).result()
    assert time.monotonic() - began < 120


REFUSED = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "me",
    "sasl.password": "open-sesame",
}
"""The broker of the tests does no SASL: it refuses every mechanism."""


@pytest.mark.parametrize("answered", [False, True])
def test_refused_credentials_are_named_soon_and_without_the_password(
    answered: bool, read: Reader, using: MakeSettings, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the partition has answered before: then the task begins with its Fetch, and a password may have changed since."""
    if answered:
        monkeypatch.setattr(reading, "wait_for_bounds", lambda *_: LogBounds(0, 10))
    began = time.monotonic()

    with pytest.raises(AuthenticationFailed, match="sasl") as caught:
        list(read(FetchRange(topic(), 0, 0, 10), using(REFUSED, poll_timeout_ms=300_000)))
    assert time.monotonic() - began < 100
    assert "open-sesame" not in str(caught.value)


@pytest.mark.parametrize("limit", [{}, {"receive.message.max.bytes": "100000000"}])
def test_a_server_of_another_kind_is_no_question_of_sizes(limit: dict[str, str], read: Reader, using: MakeSettings) -> None:
    """librdkafka takes the begin of its answer for the size of a response, here a GB."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        in_background(server.serve_forever)
        there = {"bootstrap.servers": f"127.0.0.1:{server.server_port}", **limit}
        with pytest.raises(BrokerError, match=r"Check kafka\.security\.protocol") as caught:
            rows(read, FetchRange("any", 0, 0, 1), using(there, poll_timeout_ms=5_000))
        server.shutdown()
    assert "kafka.receive.message" not in str(caught.value)


def test_settings_that_librdkafka_refuses_are_named_without_secrets(read: Reader, using: MakeSettings) -> None:
    with pytest.raises(OptionError, match=r"no\.such\.setting"):
        list(read(FetchRange("t", 0, 0, 1), using({"no.such.setting": "1"})))
    with pytest.raises(OptionError) as caught:
        list(read(FetchRange("t", 0, 0, 1), using({"sasl.oauthbearer.method": "open-sesame", "sasl.password": "open-sesame"})))
    assert "open-sesame" not in str(caught.value)


def test_a_batch_that_cannot_be_decompressed_is_a_question_of_a_setting_in_zstd_alone() -> None:
    """In zstd librdkafka gives up when twice the compressed size, three times that, and so on would be above its limit."""
    for codec, advised in ((1, False), (2, False), (3, False), (4, True)):
        text = f"Decompression (codec 0x{codec}) of message at 7 of 9000 bytes failed: Local: Invalid compressed data"
        found = str(refusal(KafkaError(KafkaError._BAD_COMPRESSION, text), "Reading t-0 [0, 9), at offset 7"))
        assert ("remove this option, or raise it" in found) == advised
        assert ("0.7 and 2.1 GB" in found) == advised


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (KafkaError._AUTHENTICATION, AuthenticationFailed),
        (KafkaError._SSL, AuthenticationFailed),
        (KafkaError.SASL_AUTHENTICATION_FAILED, AuthenticationFailed),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, NotAuthorized),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, NotAuthorized),
        (KafkaError._BAD_MSG, BrokerError),
        (KafkaError._BAD_COMPRESSION, BrokerError),
        (KafkaError._TRANSPORT, None),
        (KafkaError.NOT_LEADER_FOR_PARTITION, None),
    ],
)
def test_what_an_error_means(code: int, expected: type[GroupKafkaError] | None) -> None:
    found = refusal(KafkaError(code), "Reading t-0 [0, 1)")

    assert (None if found is None else type(found)) == expected
