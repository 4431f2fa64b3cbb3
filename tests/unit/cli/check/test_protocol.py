"""Whether the brokers have the protocol that the options ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError

from spark_groupsource.brokers.client import make_client
from spark_groupsource.cli.check import protocol
from spark_groupsource.cli.check.findings import Level
from spark_groupsource.cli.check.protocol import ask_for_protocol, refusal_of
from tests.support.check_sources import only, options, source


@pytest.mark.parametrize(
    ("code", "level", "text"),
    [
        (KafkaError.UNSUPPORTED_ASSIGNOR, Level.OK, "the brokers have kafka.group.protocol=consumer"),
        (KafkaError.UNSUPPORTED_VERSION, Level.ERROR, "the brokers do not have kafka.group.protocol=consumer"),
        (KafkaError._UNSUPPORTED_FEATURE, Level.ERROR, "the brokers do not have kafka.group.protocol=consumer"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Level.ERROR, "asking for kafka.group.protocol=consumer: "),
        (None, Level.WARNING, "the coordinator did not say"),
    ],
)
def test_what_the_brokers_say_to_the_new_protocol(
    monkeypatch: pytest.MonkeyPatch, code: int | None, level: Level, text: str
) -> None:
    # librdkafka hides the code of a fatal error, and quotes its text.
    quoted = None if code is None else KafkaError(KafkaError._FATAL, f"Fatal error: {KafkaError(code).str()}: heartbeat")
    for refusal in (None if code is None else KafkaError(code), quoted):
        monkeypatch.setattr(protocol, "refusal_of", lambda _, refusal=refusal: refusal)
        found = only(ask_for_protocol(source(kafka_group_protocol="consumer")))
        assert (found.level, found.check) == (level, "protocol")
        if refusal is not quoted or code != KafkaError.TOPIC_AUTHORIZATION_FAILED:
            assert found.text.startswith(text)


def test_the_classic_protocol_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "refusal_of", lambda _: pytest.fail("all brokers have it"))
    assert not list(ask_for_protocol(source()))


def test_the_question_is_asked_without_the_instance_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no broker here, so nobody answers."""
    monkeypatch.setattr(protocol, "CHECK_STEP_S", 0.0)
    settings: list[Mapping[str, str]] = []

    def made(kind: Any, given: Mapping[str, str], *more: Any) -> Any:
        settings.append(given)
        return make_client(kind, given, *more)

    monkeypatch.setattr(protocol, "make_client", made)
    assert refusal_of(options(kafka_group_instance_id="spare", kafka_group_protocol="consumer")) is None
    assert "group.instance.id" not in settings[0]
