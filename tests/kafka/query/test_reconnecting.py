"""How often clients try to connect while their broker is away, and how many lines they write to the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from benchmarks.reconnecting import DEBUG, SETTLED_S, TRY_CONNECT, Outage, fill, outage, planning, reading
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
def every_connection_is_counted(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.DEBUG, "spark_groupsource")
    monkeypatch.setattr(logging.getLogger("spark_groupsource"), "propagate", False)  # pytest would keep all lines


def assert_calm(found: Outage) -> None:
    assert 0 < found.settled_per_s <= 13, found
    assert len(found.lines) <= 20, found.lines


class LateTries(logging.Handler):
    """Notes who still tries to connect after the first seconds: clients differ in their loggers and formats."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._since = time.monotonic()
        self.by: set[tuple[str, str]] = set()

    def emit(self, record: logging.LogRecord) -> None:
        if TRY_CONNECT in record.getMessage() and SETTLED_S <= time.monotonic() - self._since < AWAY_S:
            self.by.add((record.name, record.msg))


def test_a_query_and_both_tasks_whose_brokers_are_away_are_calm(own_cluster: Cluster) -> None:
    (node,) = own_cluster.nodes
    package = logging.getLogger("spark_groupsource")
    tried: set[tuple[str, str]] = set()

    @contextmanager
    def all_of_them() -> Iterator[None]:
        with (
            planning(own_cluster, DEBUG),
            reading(NativeConsumer, own_cluster, DEBUG),
            reading(PureConsumer, own_cluster, DEBUG),
        ):
            late = LateTries()
            package.addHandler(late)
            yield
            package.removeHandler(late)
            tried.update(late.by)

    assert_calm(outage("a query and both tasks", node, all_of_them, AWAY_S, accepts=False))
    assert tried == {
        ("spark_groupsource.librdkafka", "%s [%s] %s"),
        ("spark_groupsource.fetch.librdkafka", "%s [%s] %s"),
        ("spark_groupsource.fetch.librdkafka", "%s: %s"),
    }, "the query, the pure Python task and the native one"


@pytest.mark.long
def test_a_query_whose_connections_are_accepted_and_closed_is_calm(own_cluster: Cluster) -> None:
    (node,) = own_cluster.nodes
    assert_calm(outage("query", node, lambda: planning(own_cluster, {}), AWAY_S, accepts=True))
