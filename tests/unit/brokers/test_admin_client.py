"""An AdminClient has the settings of every client, but for one that librdkafka would warn of."""

from __future__ import annotations

import logging

import pytest

from spark_groupsource.brokers.admin_client import make_admin_client
from spark_groupsource.brokers.client import LastError
from spark_groupsource.errors import OptionError

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": "4"}


def test_a_setting_of_consumers_is_left_out_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        make_admin_client({**NOWHERE, "isolation.level": "read_committed"}, LastError()).poll(0)
    assert "isolation.level" not in caplog.text


def test_a_setting_that_librdkafka_refuses_is_an_error() -> None:
    with pytest.raises(OptionError, match="isolation"):
        make_admin_client({**NOWHERE, "isolation.levels": "read_committed"}, LastError())
