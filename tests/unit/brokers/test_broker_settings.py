"""A cluster that names no broker, as one does whose only broker has just started."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from spark_groupsource.brokers import broker_settings
from spark_groupsource.errors import BrokerUnavailable


def test_no_broker_is_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = SimpleNamespace(list_topics=lambda **_: SimpleNamespace(brokers={}))
    monkeypatch.setattr(broker_settings, "make_admin_client", lambda *_: admin)
    with pytest.raises(BrokerUnavailable, match=r"names no broker.*Try again"):
        broker_settings.settings_of_a_broker({})
