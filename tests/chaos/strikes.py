"""The strikes of `make chaos-sink` against queries and brokers: kills, and ordinary stops, restarts and failures."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from devtools.broker import Cluster
from devtools.broker.ready import quiet_client
from spark_groupsource.patience import Deadline
from tests.chaos.copying_queries import NAMES, Queries
from tests.chaos.copying_reader import StableOffsets
from tests.chaos.visible import Strike
from tests.harness.brokers import in_sync

BROKER_KILLED = "broker-killed"

IN_SYNC_LIMIT_S = 180.0
MIDDLE_LIMIT_S = 60.0
"""How long a strike waits until its query has written something that is not visible. A start takes most of it."""
TAKEN_LIMIT_S = 30.0
TRIES_LIMIT_S = 60.0
"""How long a task may take to fail as often as Spark tries it."""
SECOND_LIMIT_S = 120.0
"""How long a second driver may take to start, and then how long both may live."""
FEW, MANY = 1, (2, 4)
"""Cores of a query."""


class Strikes:
    """Strikes against a query or a broker. Each returns when it is over, or `None` if there was nothing to strike."""

    def __init__(self, cluster: Cluster, folder: Path, queries: Queries, offsets: StableOffsets, chance: random.Random) -> None:
        self._cluster = cluster
        self._folder = folder
        self._queries = queries
        self._offsets = offsets
        self._chance = chance

    def strike(self, kind: str) -> Strike | None:
        """Strike once."""
        return KINDS[kind](self)

    def _in_the_middle(self) -> str | None:
        """Wait until a query has written rows of a micro-batch that are not visible yet, and return its name."""
        writing: list[str] = []

        def found() -> bool:
            writing.extend(name for name in NAMES if name in self._offsets.writing())
            return bool(writing)

        return self._chance.choice(writing) if self._queries.until(found, MIDDLE_LIMIT_S) else None

    def kill(self, of: str) -> Strike | None:
        """Kill a driver or a worker, no matter what it is doing."""
        running, at = self._queries.current(self._chance.choice(NAMES)), time.monotonic()
        if not running.kill(of, self._chance):
            return None
        return Strike(f"{of}-killed", running.name, at, at)

    def command(self, kind: str, command: str) -> Strike | None:
        """In the middle of a micro-batch: stop the query, stop it and start it in the same process, or cancel its jobs."""
        name = self._in_the_middle()
        if name is None:
            return None
        running, at = self._queries.current(name), time.monotonic()
        if not running.command(command, TAKEN_LIMIT_S):
            return None
        return Strike(kind, running.name, at, time.monotonic())

    def failing(self, kind: str, file: str) -> Strike | None:
        """In the middle of a micro-batch: make one task fail. With a row that is too large, it fails in each of its attempts.

        Spark then cancels the others. With a row that fails once, they continue.
        """
        name = self._in_the_middle()
        if name is None:
            return None
        running, at = self._queries.current(name), time.monotonic()
        order = self._folder / f"{name}.{file}"
        order.touch()
        taken, over = self._queries.until(lambda: not order.exists(), TAKEN_LIMIT_S), time.monotonic()
        order.unlink(missing_ok=True)
        # The next strike comes after the last attempt: until then, the program keeps the failing task's file.
        self._queries.until(lambda: not any(self._folder.glob(f"{name}.{file}-*")), TRIES_LIMIT_S)
        return Strike(kind, running.name, at, over) if taken else None

    def other_cores(self) -> Strike | None:
        """In the middle of a micro-batch: kill or stop the query, and start it on one core, or on more cores again."""
        name = self._in_the_middle()
        if name is None:
            return None
        cores = self._queries.cores
        before, cores[name] = cores[name], FEW if cores[name] != FEW else self._chance.choice(MANY)
        running, at = self._queries.current(name), time.monotonic()
        killed = self._chance.random() < 0.5
        if not (running.kill("driver", self._chance) if killed else running.command("stop", TAKEN_LIMIT_S)):
            cores[name] = before
            return None
        return Strike("other-cores", running.name, at, time.monotonic())

    def second_driver(self) -> Strike | None:
        """Start the query a second time from its checkpoint while the first one is running, until one of the two has ended."""
        name = self._in_the_middle()
        if name is None:
            return None
        first, second = self._queries.current(name), self._queries.start(name, again=False)
        if not self._queries.until(lambda: second.starts > 0 or second.ended, SECOND_LIMIT_S):
            second.close()
            return None
        at = time.monotonic()
        for _ in Deadline(SECOND_LIMIT_S).attempts(0.1):
            if first.ended or second.ended:
                break
        stays, ended = (second, first) if first.ended and not second.ended else (first, second)
        self._queries.contested(name, stays, ended)
        return Strike("second-driver", second.name, at, time.monotonic())

    def kill_broker(self) -> Strike:
        """Kill a broker, and start it again. It leads partitions, and coordinates groups and transactions."""
        node, at = self._chance.choice(self._cluster.nodes), time.monotonic()
        node.kill()
        self._queries.until(lambda: False, self._chance.uniform(1, 15))
        node.start()
        # Wait before another one is killed, because a partition with one in-sync replica accepts no records.
        client = quiet_client(self._cluster.bootstrap_servers)
        self._queries.until(lambda: _in_sync(client), IN_SYNC_LIMIT_S)
        return Strike(BROKER_KILLED, f"node {node.id}", at, time.monotonic())


def _in_sync(client: AdminClient) -> bool:
    with contextlib.suppress(KafkaException):
        return in_sync(client.list_topics(timeout=30).topics.values())
    return False


KINDS: Mapping[str, Callable[[Strikes], Strike | None]] = {
    "driver-killed": lambda strikes: strikes.kill("driver"),
    "worker-killed": lambda strikes: strikes.kill("worker"),
    "stopped": lambda strikes: strikes.command("stopped", "stop"),
    "restarted": lambda strikes: strikes.command("restarted", "restart"),
    "group-cancelled": lambda strikes: strikes.command("group-cancelled", "cancel"),
    "failing-row": lambda strikes: strikes.failing("failing-row", "large"),
    "failing-try": lambda strikes: strikes.failing("failing-try", "once"),
    "other-cores": Strikes.other_cores,
    "second-driver": Strikes.second_driver,
    BROKER_KILLED: Strikes.kill_broker,
}
"""The kinds of strikes, by their names. The last one needs three brokers."""
