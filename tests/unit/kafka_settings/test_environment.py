"""`${env:NAME}` in a setting that may differ by host: who resolves it, and who never shows it."""

from __future__ import annotations

import logging
import pickle

import pytest
from confluent_kafka import Consumer

from spark_groupsource.brokers.client import librdkafka_log, make_client
from spark_groupsource.errors import OptionError
from spark_groupsource.fetch.contract import FetchConsumer
from spark_groupsource.fetch.native_consumer import NativeConsumer
from spark_groupsource.fetch.pure_consumer import PureConsumer
from spark_groupsource.kafka_settings import environment
from spark_groupsource.kafka_settings.environment import resolved
from spark_groupsource.kafka_settings.tables import NAMES, PER_HOST
from spark_groupsource.kafka_settings.translation import translate
from spark_groupsource.options.model import Options
from spark_groupsource.options.sink_model import SinkOptions
from spark_groupsource.sink.producer import make_producer
from spark_groupsource.sink.pure_producer import PureProducer
from tests.support.fetching import NATIVE, warnings_of
from tests.support.kafka_settings import refusal
from tests.support.options import BASE
from tests.support.waiting import until

IN_ZONE = {**BASE, "kafka.client.rack": "${env:ZONE}"}
PRIVATE = "not-to-be-shown"
SSL = {"security.protocol": "SSL"}
KEY_STORE = {
    "kafka.security.protocol": "SSL",
    "kafka.ssl.keystore.type": "PKCS12",
    "kafka.ssl.keystore.password": "hunter2",
    "kafka.ssl.keystore.location": "/keys/${env:ZONE}.p12",
}
"""librdkafka quotes the name of a file that it cannot read."""
CONSUMERS = [PureConsumer, pytest.param(NativeConsumer, marks=NATIVE)]


@pytest.fixture(autouse=True)
def zone_is_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZONE", raising=False)
    monkeypatch.setattr(environment, "_put_in", set())
    environment._warn_of_no_rack.cache_clear()


def test_the_driver_sends_what_the_user_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZONE", PRIVATE)
    options = Options.parse(IN_ZONE)
    sink = SinkOptions.parse(
        {"kafka.bootstrap.servers": "localhost:9092", "topic": "orders", "kafka.client.rack": "${env:ZONE}"}, "stream"
    ).sink_settings("stream")
    for settings in (options.fetch_settings().client, sink.producer):
        assert settings["client.rack"] == "${env:ZONE}"
    assert PRIVATE.encode() not in pickle.dumps((options.fetch_settings(), sink))


def test_each_process_puts_in_its_own_value(monkeypatch: pytest.MonkeyPatch) -> None:
    given = translate({"client.rack": "eu-${env:ZONE}-${env:_Z1}", "ssl.ca.location": "/certs/${env:ZONE}.pem"} | SSL)
    monkeypatch.setenv("ZONE", "a")
    monkeypatch.setenv("_Z1", "${env:ZONE}")
    assert resolved(given) == {
        **given,
        "client.rack": "eu-a-${env:ZONE}",
        "ssl.ca.location": "/certs/a.pem",
    }, "a value is not looked at again"
    monkeypatch.setenv("ZONE", "b")
    assert resolved(given)["ssl.ca.location"] == "/certs/b.pem"


@pytest.mark.parametrize("value", ["${env:}", "${env:1A}", "${env:A-B}", "${env:ZONE", "${env:ZÖNE}", "x${env:A}${env: B}"])
def test_a_malformed_one_is_refused_when_the_options_are_read(value: str) -> None:
    said = refusal({"client.rack": value})
    assert said.startswith("kafka.client.rack = ")
    assert "${env:NAME}, where NAME contains only letters, digits and _" in said


def test_any_other_setting_takes_the_text_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZONE", PRIVATE)
    given = {"client.id": "${env:ZONE}", "group.id": "${env:1A}", "sasl.password": "${env:ZONE}", "client.rack": "${file:/a}"}
    assert resolved(given) == given
    assert translate({"client.id": "${env:1A}"}) == {"client.id": "${env:1A}"}
    assert PER_HOST < NAMES


@pytest.mark.parametrize("value", [None, ""])
def test_without_the_variable_there_is_no_rack_and_only_who_reads_warns_once(
    value: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if value is not None:
        monkeypatch.setenv("ZONE", value)
    assert "client.rack" not in resolved({"client.rack": "${env:ZONE}"})
    assert warnings_of(caplog) == ""
    for text in ("${env:ZONE}", "eu-${env:ZONE}"):
        assert "client.rack" not in resolved({"client.rack": text}, reads=True)
    assert warnings_of(caplog).count("ZONE") == 1
    resolved({"client.rack": "${env:NO_SUCH_ZONE}"}, reads=True)
    assert "They read from the partitions' leaders" in warnings_of(caplog).splitlines()[1]


def test_without_the_variable_of_a_file_there_is_no_client() -> None:
    with pytest.raises(OptionError, match=r"kafka\.ssl\.ca\.location .* environment variable ZONE, which is not set"):
        resolved({"ssl.ca.location": "/certs/${env:ZONE}.pem"})


@pytest.mark.parametrize("kind", CONSUMERS)
def test_a_consumer_is_made_without_a_rack_with_one_warning(kind: type[FetchConsumer], caplog: pytest.LogCaptureFixture) -> None:
    client = Options.parse(IN_ZONE).fetch_settings().client
    for _ in range(2):
        kind(client).close()  # type: ignore[call-arg]
    assert warnings_of(caplog).count("ZONE") == 1
    assert client["client.rack"] == "${env:ZONE}"


@pytest.mark.parametrize("kind", CONSUMERS)
def test_what_librdkafka_refuses_of_the_environment_is_masked(kind: type[FetchConsumer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZONE", PRIVATE)
    with pytest.raises(OptionError) as caught:
        kind(Options.parse({**BASE, **KEY_STORE}).fetch_settings().client)  # type: ignore[call-arg]
    assert "/keys/********.p12" in str(caught.value)
    assert PRIVATE not in str(caught.value)


def test_producers_and_the_clients_of_the_driver_mask_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZONE", PRIVATE)
    given = {"kafka.bootstrap.servers": "localhost:9092", "topic": "orders", **KEY_STORE}
    producer = SinkOptions.parse(given, "stream").sink_settings("stream").producer
    member = Options.parse({**BASE, **KEY_STORE}).member_settings()
    for make in (
        lambda: make_producer(producer, "orders"),
        lambda: PureProducer(producer, "orders"),
        lambda: make_client(Consumer, member, lambda _error: None, librdkafka_log),
    ):
        with pytest.raises(OptionError) as caught:
            make()
        assert "********" in str(caught.value)
        assert PRIVATE not in str(caught.value)


@pytest.mark.parametrize("kind", CONSUMERS)
def test_librdkafkas_most_detailed_log_does_not_show_it(
    kind: type[FetchConsumer], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("ZONE", PRIVATE)
    consumer = kind(Options.parse({**IN_ZONE, "kafka.debug": "all", "kafka.log_level": "7"}).fetch_settings().client)  # type: ignore[call-arg]

    def configured() -> bool:
        consumer.serve()
        return "client.rack" in caplog.text

    try:
        until(configured, "the settings in the log")
    finally:
        consumer.close()
    assert "client.rack = ********" in caplog.text
    assert PRIVATE not in caplog.text
