"""How long an error of the background explains requests that nobody answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

from spark_groupsource.brokers.client import LAST_ERROR_KEPT_S, LastError

CLIENT = cast(AdminClient, SimpleNamespace(poll=lambda _: 0))


def test_an_error_that_is_not_reported_again_is_over() -> None:
    now = 100.0
    last = LastError(clock=lambda: now)
    refused, silent = KafkaError(KafkaError._SSL), KafkaError(KafkaError._TIMED_OUT)
    last.record(refused)
    now += LAST_ERROR_KEPT_S - 1
    assert last.reason(silent, CLIENT) is refused
    last.record(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    assert last.newest(CLIENT) is refused, "which says more"
    now += 1
    assert last.newest(CLIENT) is None
    assert last.reason(silent, CLIENT) is silent
    last.record(down := KafkaError(KafkaError._ALL_BROKERS_DOWN))
    assert last.newest(CLIENT) is down


def test_what_waited_in_a_client_that_nobody_asked_for_long_is_of_no_known_time() -> None:
    now = 100.0
    last = LastError(clock=lambda: now)
    waiting = [KafkaError(KafkaError._AUTHENTICATION)]

    def poll(_: float) -> int:
        while waiting:
            last.record(waiting.pop())
        return 0

    client = cast(AdminClient, SimpleNamespace(poll=poll))
    now += LAST_ERROR_KEPT_S
    assert last.newest(client) is None
    waiting.append(again := KafkaError(KafkaError._AUTHENTICATION))
    now += 30
    assert last.newest(client) is again
