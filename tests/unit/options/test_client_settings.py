"""What each Kafka client is made with."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from spark_groupsource.kafka_settings.tables import AT_MOST
from spark_groupsource.options.client_settings import (
    RECONNECT,
    RECONNECT_MS,
    member_settings,
    producer_settings,
    request_settings,
)
from spark_groupsource.options.model import Options
from tests.support.options import BASE, NEEDED, WITH_PASSWORD, parse

SETUPS: dict[str, dict[str, str]] = {
    "by name": BASE,
    "by pattern": {**NEEDED, "subscribePattern": "orders-.*"},
    "KIP-848": {
        **BASE,
        "kafka.group.protocol": "consumer",
        "kafka.group.remote.assignor": "uniform",
        "kafka.max.poll.interval.ms": "40000",
    },
    "static member": {**BASE, "kafka.group.instance.id": "driver-1", "kafka.session.timeout.ms": "6000"},
    "transactions": {**BASE, "kafka.isolation.level": "read_committed"},
    "with a password": {**BASE, **WITH_PASSWORD},
    "fetch sizes": {
        **BASE,
        "kafka.fetch.max.bytes": "2000000",
        "kafka.receive.message.max.bytes": "3000000",
        "kafka.fetch.max.wait.ms": "10",
    },
}


@pytest.mark.parametrize("setup", SETUPS)
def test_librdkafka_takes_all_three_without_a_warning(setup: str, capfd: pytest.CaptureFixture[str]) -> None:
    options = Options.parse({name: value for name, value in SETUPS[setup].items() if name != "kafka.ssl.key.password"})
    Consumer(dict(options.member_settings())).close()
    Consumer(dict(options.fetch_settings().client)).close()
    client = options.client_settings()
    del client["isolation.level"]  # which only consumers have
    AdminClient(dict(client))
    assert "CONFWARN" not in capfd.readouterr().err


def test_every_client_closes_an_idle_connection_before_clouds_forget_it_or_when_the_user_says() -> None:
    for given, idle_ms in (({}, "180000"), ({"connections.max.idle.ms": "0"}, "0")):
        kafka = Options.parse({**BASE, **{f"kafka.{name}": value for name, value in given.items()}})
        for settings in (
            kafka.client_settings(),
            kafka.member_settings(),
            kafka.fetch_settings().client,
            producer_settings(given, exactly_once=True),
            request_settings(given),
        ):
            assert (settings["connections.max.idle.ms"], settings["socket.keepalive.enable"]) == (idle_ms, "true")


@pytest.mark.parametrize(
    ("given", "pause_ms"), [({}, "20"), ({"retry.backoff.ms": "200"}, "200"), ({"retry.backoff.max.ms": "10"}, "10")]
)
def test_a_transaction_that_begins_before_the_last_one_has_ended_waits_for_a_moment(given: dict[str, str], pause_ms: str) -> None:
    assert producer_settings(given, exactly_once=True)["retry.backoff.ms"] == pause_ms


ALL_KINDS: dict[str, str] = {
    **BASE,
    "kafka.client.id": "billing-1",
    "kafka.client.rack": "zone-a",
    "kafka.coordinator.query.interval.ms": "1000",
    "kafka.fetch.max.bytes": "2000000",
    "kafka.fetch.max.wait.ms": "33",
    "kafka.group.instance.id": "driver-1",
    "kafka.heartbeat.interval.ms": "3000",
    "kafka.isolation.level": "read_committed",
    "kafka.log_level": "7",
    "kafka.metadata.max.age.ms": "60000",
    "kafka.queued.min.messages": "7",
    "kafka.session.timeout.ms": "20000",
    "kafka.ssl.cipher.suites": "ECDHE-RSA-AES128-GCM-SHA256",
    "kafkaConsumer.bufferBytes": "8388608",
}
OF_THE_USER = {
    "bootstrap.servers": "127.0.0.1:1",
    "client.id": "billing-1",
    "connections.max.idle.ms": "180000",
    "isolation.level": "read_committed",
    "log_level": "7",
    "socket.keepalive.enable": "true",
    "ssl.cipher.suites": "ECDHE-RSA-AES128-GCM-SHA256",
    "topic.metadata.refresh.interval.ms": "60000",
}
OFFSETS = {"auto.offset.reset": "error", "enable.auto.commit": "false", "enable.auto.offset.store": "false"}


def test_each_client_gets_exactly_these_settings() -> None:
    options = Options.parse(ALL_KINDS)
    assert options.client_settings() == {**OF_THE_USER, "reconnect.backoff.ms": "1000"}
    assert options.member_settings() == {
        **OF_THE_USER,
        **OFFSETS,
        "coordinator.query.interval.ms": "1000",
        "group.id": "billing",
        "group.instance.id": "driver-1",
        "group.protocol": "classic",
        "heartbeat.interval.ms": "3000",
        "max.poll.interval.ms": "300000",
        "partition.assignment.strategy": "cooperative-sticky",
        "reconnect.backoff.ms": "1000",
        "session.timeout.ms": "20000",
    }
    assert options.fetch_settings().client == {
        **OF_THE_USER,
        **OFFSETS,
        "check.crcs": "true",
        "client.rack": "zone-a",
        "enable.partition.eof": "true",
        "fetch.max.bytes": "2000000",
        "fetch.queue.backoff.ms": "1",
        "fetch.wait.max.ms": "33",
        "group.id": "billing",
        "max.partition.fetch.bytes": "131072",
        "queued.max.messages.kbytes": "256",
        "queued.min.messages": "7",
        "receive.message.max.bytes": "2147483647",
        "reconnect.backoff.ms": "1000",
        "socket.timeout.ms": "30000",
    }


def test_checksums_are_checked_unless_the_user_turns_it_off() -> None:
    assert parse().fetch_settings().client["check.crcs"] == "true"
    assert parse(**{"kafka.check.crcs": "False"}).fetch_settings().client["check.crcs"] == "false"


@pytest.mark.parametrize(("name", "default"), sorted({*(pair[:2] for pair in AT_MOST), *(pair[2:] for pair in AT_MOST)}))
def test_durations_are_compared_with_the_defaults_that_the_clients_have(name: str, default: int) -> None:
    """Where we have no default, librdkafka's is in the table. Zero stands for a default that gives way to the user's maximum."""
    if default:
        assert member_settings({}).get(name, str(default)) == str(default)
    else:
        assert name == RECONNECT


@pytest.mark.parametrize("longest", ["1", "150", "500"])
def test_our_pause_between_connections_gives_way_to_the_users_longest(longest: str) -> None:
    """librdkafka refuses a pause above the longest one."""
    options = parse(**{"kafka.reconnect.backoff.max.ms": longest})
    for settings in (options.client_settings(), options.member_settings(), options.fetch_settings().client):
        assert settings[RECONNECT] == str(min(RECONNECT_MS, int(longest)))
        Consumer({"group.id": "billing", **settings}).close()
