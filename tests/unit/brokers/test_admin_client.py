"""An AdminClient has the settings of every client, but for one that librdkafka would warn of."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
from confluent_kafka.admin import AdminClient

from spark_groupsource.brokers import admin_client
from spark_groupsource.brokers.admin_client import LastingAdmin, make_admin_client
from spark_groupsource.brokers.client import LastError
from spark_groupsource.errors import AuthenticationFailed, BrokerUnavailable, OptionError
from spark_groupsource.timeouts import IDLE_S

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": "4"}


def test_a_setting_of_consumers_is_left_out_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        make_admin_client({**NOWHERE, "isolation.level": "read_committed"}, LastError()).poll(0)
    assert "isolation.level" not in caplog.text


def test_a_client_is_replaced_unless_no_new_one_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    lasting = LastingAdmin(NOWHERE, clock=lambda: now)
    first = lasting.client
    assert not lasting.idle
    now = IDLE_S
    assert lasting.idle
    lasting.answered()
    assert not lasting.idle
    now = 2 * IDLE_S
    lasting.renew()
    second = lasting.client
    assert second is not first
    assert not lasting.idle, "brokers that are down cost no client with each question"

    def no_token(*_: object) -> AdminClient:
        raise AuthenticationFailed("the function returns no token")

    monkeypatch.setattr(admin_client, "make_admin_client", no_token)
    lasting.renew()
    assert lasting.client is second


def test_a_setting_that_librdkafka_refuses_is_an_error() -> None:
    with pytest.raises(OptionError, match="isolation"):
        make_admin_client({**NOWHERE, "isolation.levels": "read_committed"}, LastError())


def test_no_broker_is_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = SimpleNamespace(list_topics=lambda **_: SimpleNamespace(brokers={}))
    monkeypatch.setattr(admin_client, "make_admin_client", lambda *_: admin)
    with pytest.raises(BrokerUnavailable, match=r"lists no broker.*Try again"):
        admin_client.settings_of_a_broker({})
