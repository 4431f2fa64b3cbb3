"""One consumer serves task after task, and nothing of one task is left for the next."""

from __future__ import annotations

import subprocess
import sys

from devtools.broker import Cluster
from spark_groupsource.brokers.client_pool import pool
from spark_groupsource.fetch.contract import FetchRange, Reader
from tests.conftest import MakeTopic, Produce
from tests.kafka.conftest import Filled
from tests.support.fetching import MakeSettings, offsets, rows
from tests.support.producing import numbered


def test_one_consumer_reads_range_after_range_without_a_stale_record(
    read: Reader, using: MakeSettings, topic: MakeTopic, produce: Produce
) -> None:
    name = topic(partitions=5)
    for partition in range(5):
        produce(name, [(b"p%d" % partition, b"%d" % number) for number in range(40)], partition)
    before = set(pool()._living)
    how = using({"client.id": name})

    for turn in range(50):
        partition, start = turn % 5, turn * 7 % 30
        found = rows(read, FetchRange(name, partition, start, start + 10), how)
        assert [(row["key"], row["value"]) for row in found] == [
            (b"p%d" % partition, b"%d" % number) for number in range(start, start + 10)
        ]

    assert len(set(pool()._living) - before) <= 1


def test_a_task_that_stops_early_leaves_nothing_to_the_next(
    read: Reader, using: MakeSettings, topic: MakeTopic, produce: Produce
) -> None:
    name = topic(partitions=2)
    produce(name, numbered(25_000), 0)
    produce(name, numbered(10), 1)
    batches = read(FetchRange(name, 0, 0, 25_000), using())
    next(batches)
    batches.close()

    assert offsets(read, FetchRange(name, 1, 0, 10), using()) == list(range(10))


def test_two_ranges_at_a_time(read: Reader, using: MakeSettings, filled: Filled) -> None:
    name = filled(2, 21_000)
    pair = [read(FetchRange(name, partition, 0, 21_000), using()) for partition in range(2)]

    batches = [(partition, next(pair[partition])) for _ in range(3) for partition in range(2)]

    assert all(set(batch.column("partition").to_pylist()) == {partition} for partition, batch in batches)
    assert sum(batch.num_rows for _, batch in batches) == 42_000


FORKING = """
import os, sys
from spark_groupsource.fetch.arrow_schema import arrow_schema
from spark_groupsource.fetch.choice import fetch
from spark_groupsource.fetch.contract import FetchRange
from spark_groupsource.fetch.contract import BUFFER_BYTES, FetchSettings
from spark_groupsource.options.client_settings import consumer_settings

client = consumer_settings({"bootstrap.servers": sys.argv[1], "group.id": "fork"}, BUFFER_BYTES)
settings = FetchSettings(client, arrow_schema(False), poll_timeout_ms=20000)
def count():
    return sum(batch.num_rows for batch in fetch(FetchRange(sys.argv[2], 0, 0, 10), settings))

assert count() == 10
started = fetch(FetchRange(sys.argv[2], 0, 0, 10), settings)
next(started)
child = os.fork()
if child == 0:
    started.close()
    assert count() == 10
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert list(started) == []
assert count() == 10
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_forked_child_fetches_and_ends(cluster: Cluster, filled: Filled) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKING, cluster.bootstrap_servers, filled()]

    done = subprocess.run(command, timeout=120, check=False, capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")
