"""Brokers that take less metadata with an offset than a commit record has."""

from __future__ import annotations

import pytest

from devtools.broker import Cluster
from spark_groupsource.errors import CommitRefused
from tests.conftest import NOT_FENCED, SHORT_SESSIONS
from tests.kafka.conftest import SHORT_TIMES, Query
from tests.support.waiting import until


@pytest.mark.long
def test_a_refused_commit_names_the_setting_of_the_brokers_and_passes_once_that_is_raised() -> None:
    few = {**SHORT_SESSIONS, **NOT_FENCED, "offset.metadata.max.bytes": "20"}
    with Cluster(config=few) as cluster:
        cluster.create_topic("orders")
        given = {
            "kafka.bootstrap.servers": cluster.bootstrap_servers,
            "kafka.group.id": "billing",
            "subscribe": "orders",
            **SHORT_TIMES,
        }
        refused = Query(given)
        with pytest.raises(CommitRefused, match=r"the brokers' offset\.metadata\.max\.bytes\. Raise that setting"):
            until(lambda: refused.plan() or bool(refused.positions), "a commit")
        (node,) = cluster.nodes
        node.stop()
        node.configure({**few, "offset.metadata.max.bytes": "4096"})
        node.launch()
        node.wait_until_answers({node.id})
        accepted = Query(given)
        until(lambda: accepted.plan() or bool(accepted.positions), "the partition is adopted")
        accepted.cycle.stop()
