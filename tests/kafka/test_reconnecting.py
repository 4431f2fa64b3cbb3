"""How often clients try to connect while their broker is away, and how many lines they write to the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from benchmarks.reconnecting import DEBUG, SETTLED_S, Outage, fill, outage, planning, reading
from devtools.broker import Cluster
from spark_groupsource.fetch.native_consumer import NativeConsumer
from spark_groupsource.fetch.pure_consumer import PureConsumer

AWAY_S = SETTLED_S + 5


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        fill(cluster)
        yield cluster


@pytest.fixture(autouse=True)
def every_connection_is_counted() -> Iterator[None]:
    package = logging.getLogger("spark_groupsource")
    level, propagate = package.level, package.propagate
    package.setLevel(logging.DEBUG)
    package.propagate = False  # pytest would keep all lines
    yield
    package.setLevel(level)
    package.propagate = propagate


def assert_calm(found: Outage) -> None:
    assert 0 < found.settled_per_s <= 25, found
    assert len(found.lines) <= 20, found.lines


@pytest.mark.parametrize("accepts", [False, True], ids=["a closed port", "accepted and closed"])
def test_a_query_whose_brokers_are_away_is_calm(own_cluster: Cluster, accepts: bool) -> None:
    (node,) = own_cluster.nodes
    assert_calm(outage("query", node, lambda: planning(own_cluster, {} if accepts else DEBUG), AWAY_S, accepts=accepts))


@pytest.mark.parametrize("make", [NativeConsumer, PureConsumer])
def test_a_task_whose_brokers_are_away_is_calm(own_cluster: Cluster, make: type[NativeConsumer | PureConsumer]) -> None:
    (node,) = own_cluster.nodes
    assert_calm(outage("task", node, lambda: reading(make, own_cluster, DEBUG), AWAY_S, accepts=False))
