"""The child process that asks about groups: it cannot be started, it dies once, or always."""

from __future__ import annotations

import os
import pickle
import signal

import pytest

from devtools.broker import Cluster
from spark_groupsource.brokers import group_admin_process
from spark_groupsource.brokers.group_admin_process import GroupAdminProcess
from spark_groupsource.errors import BrokerUnavailable, GroupNotFound
from tests.conftest import MakeTopic
from tests.support.consumers import joined


def test_a_process_that_cannot_be_started_says_why() -> None:
    with (
        GroupAdminProcess({"bootstrap.servers": lambda: "cannot be sent"}) as process,  # type: ignore[dict-item]
        pytest.raises((AttributeError, pickle.PicklingError), match="pickle"),
    ):
        process.describe("any")


def test_a_process_that_dies_is_started_again(topic: MakeTopic, cluster: Cluster) -> None:
    """As librdkafka does to its process when a coordinator's connection breaks at the wrong moment."""
    name = topic()
    with (
        GroupAdminProcess({"bootstrap.servers": cluster.bootstrap_servers}) as process,
        joined(cluster, f"group-of-{name}", name, 1),
    ):
        assert process.describe(f"group-of-{name}").state == "stable"
        first = process.pid
        assert first is not None
        os.kill(first, signal.SIGABRT)
        assert process.describe(f"group-of-{name}").state == "stable"
        assert process.pid not in (None, first)
        with pytest.raises(GroupNotFound, match="no-such-group"):
            process.describe("no-such-group")
    assert process.pid is None


def test_a_process_that_always_dies_is_an_error_and_not_the_end(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_admin_process, "_PROGRAM", "import os; os.abort()")
    with GroupAdminProcess({"bootstrap.servers": cluster.bootstrap_servers}) as process:
        with pytest.raises(BrokerUnavailable, match="the Kafka client crashed"):
            process.describe("any")
        assert process.pid is None
