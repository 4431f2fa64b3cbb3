"""A worker keeps the producers of its tasks. Each row is there once, whatever has become of the transactional id meanwhile."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

from devtools.broker import Cluster
from devtools.broker.ready import quiet_client
from spark_groupsource.brokers.client_pool import ClientPool
from spark_groupsource.errors import InputIncomplete, RecordTooLarge
from spark_groupsource.native.libraries import NativeUnavailable
from spark_groupsource.options.sink_model import SinkOptions
from spark_groupsource.sink import producer, writing
from spark_groupsource.sink.producer import Producer as SinkProducer
from spark_groupsource.sink.writing import Report, write_at_least_once
from tests.conftest import MakeTopic
from tests.support.committed import read_committed
from tests.support.sink_queries import LATER_RUN, Query

ROOT = Path(__file__).parents[3]

Worker = Callable[[], None]


@pytest.fixture(autouse=True, params=["native", "pure"])
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each producer in turn."""
    if request.param == "pure":
        unavailable = NativeUnavailable("the test asks for it")
        monkeypatch.setattr(producer, "why_unavailable", lambda: unavailable)


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Worker]]:
    """Two workers: calling one has it run what follows."""
    pools = [ClientPool(), ClientPool()]

    def worker(pool: ClientPool) -> Worker:
        return lambda: monkeypatch.setattr(writing, "pool", lambda: pool)

    found = [worker(pool) for pool in pools]
    found[0]()
    yield found
    for pool in pools:
        pool.close_kept()


@pytest.fixture
def made(workers: list[Worker], monkeypatch: pytest.MonkeyPatch) -> list[SinkProducer]:
    """The producers that tasks make, in turn."""
    made: list[SinkProducer] = []

    def make(*arguments: Any) -> SinkProducer:
        made.append(producer.make_producer(*arguments))
        return made[-1]

    monkeypatch.setattr(writing, "make_producer", make)
    return made


@pytest.fixture
def query(cluster: Cluster, topic: MakeTopic) -> Query:
    return Query(cluster, topic(2))


def at_least_once(query: Query) -> Callable[[int, list[str] | pa.RecordBatch], Report]:
    """Return what writes a micro-batch with the other guarantee."""
    given = {name: value for name, value in query.given.items() if name != "transactionalIdPrefix"}
    settings = SinkOptions.parse({**given, "deliveryGuarantee": "at-least-once"}, "stream").sink_settings("stream")

    def write(_batch: int, rows: list[str] | pa.RecordBatch) -> Report:
        batch = pa.RecordBatch.from_pydict({"value": rows}) if isinstance(rows, list) else rows
        return write_at_least_once(settings, iter([batch]))

    return write


def test_the_micro_batches_of_a_run_share_a_producer(query: Query, made: list[SinkProducer]) -> None:
    for batch, row in enumerate("abc"):
        assert query.write(batch, [row]).written == 1
        query.finish(batch, 1, 1)
    assert len(made) == 1
    assert query.write(2, ["c"]).skipped == 1, "a stage that is retried looks at the token"
    assert query.write(3, ["d"], run=LATER_RUN).written == 1
    assert len(made) == 3
    assert read_committed(query.cluster, query.topic) == ["a", "b", "c", "d"]


def test_a_worker_that_gets_another_task_each_time_keeps_no_producer_that_is_overtaken(
    query: Query, made: list[SinkProducer], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = ClientPool()
    monkeypatch.setattr(writing, "pool", lambda: pool)
    for batch in range(6):
        query.write(batch, ["a"], task=batch)
        query.finish(batch, 6, 1, empty=tuple(task for task in range(6) if task != batch))
    assert len(pool._idle) == 2, "of the newest micro-batch, and of the one before"
    pool.close_kept()


def test_no_producer_is_kept_where_the_platform_does_not_name_the_run(
    query: Query, made: list[SinkProducer], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = ClientPool()
    monkeypatch.setattr(writing, "pool", lambda: pool)
    for batch, row in enumerate("ab"):
        query.write(batch, [row], run="")
        assert not pool._living
        query.finish(batch, 1, 1, run="")
    assert len(made) == 2
    assert read_committed(query.cluster, query.topic) == ["a", "b"]


@pytest.mark.parametrize("once", [True, False], ids=["exactly once", "at least once"])
def test_a_producer_that_is_kept_holds_no_rows(query: Query, made: list[SinkProducer], once: bool) -> None:
    write = query.write if once else at_least_once(query)
    write(0, ["a"])
    before = pa.total_allocated_bytes()
    for batch in (1, 2):
        write(batch, ["x" * 1000] * 5000)
    assert pa.total_allocated_bytes() - before < 1_000_000
    assert len(made) == 1


def taken_by_another(query: Query) -> None:
    """Take the transactional id of the task elsewhere."""
    another = Producer({"bootstrap.servers": query.cluster.bootstrap_servers, "transactional.id": query.names.task(0)})
    another.init_transactions(60)


def test_a_task_whose_id_another_producer_has_taken_begins_anew(
    query: Query, made: list[SinkProducer], caplog: pytest.LogCaptureFixture
) -> None:
    query.write(0, ["a"])
    caplog.set_level(logging.WARNING, "spark_groupsource")
    taken_by_another(query)
    assert query.write(1, ["b"]).written == 1
    assert len(made) == 2
    assert query.write(2, ["c"]).written == 1
    assert len(made) == 2
    assert read_committed(query.cluster, query.topic) == ["a", "b", "c"]
    assert not [record.getMessage() for record in caplog.records if "fenced" in record.getMessage()], "it harms nobody"


def test_what_another_worker_has_written_meanwhile_is_not_written_again(
    query: Query, workers: list[Worker], made: list[SinkProducer]
) -> None:
    query.write(0, ["a"])
    workers[1]()
    assert query.write(1, ["b"]).written == 1
    workers[0]()
    assert query.write(1, ["b"]).skipped == 1
    workers[1]()
    assert query.write(2, ["c"]).written == 1
    assert read_committed(query.cluster, query.topic) == ["a", "b", "c"]


def test_it_begins_anew_with_more_rows_than_are_remembered(query: Query, made: list[SinkProducer]) -> None:
    query.given |= {"kafka.buffer.memory": "65536", "kafka.max.request.size": "60000"}
    query.write(0, ["a"])
    taken_by_another(query)
    rows = [f"{number:04}" * 250 for number in range(200)]
    given = [pa.RecordBatch.from_pydict({"value": rows[at : at + 10]}) for at in range(0, 200, 10)]
    assert query.write_all(1, iter(given)).written == 200
    assert len(made) == 2
    assert query.write_all(2, iter(given)).written == 200
    assert len(made) == 2, "the coordinator confirms it before the first rows are forgotten"
    assert read_committed(query.cluster, query.topic) == sorted(["a", *rows, *rows])


def test_a_task_that_is_cut_off_writes_nothing_and_leaves_no_producer(query: Query, made: list[SinkProducer]) -> None:
    def cut() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"value": ["b"]})
        raise InputIncomplete("cut off")

    query.write(0, ["a"])
    with pytest.raises(InputIncomplete):
        query.write_all(1, cut())
    assert query.write(1, ["b", "c"]).written == 2
    assert len(made) == 2
    assert read_committed(query.cluster, query.topic) == ["a", "b", "c"]


def test_an_error_of_a_row_is_that_of_a_new_producer(query: Query, made: list[SinkProducer]) -> None:
    query.write(0, ["a"])
    with pytest.raises(RecordTooLarge, match="a row of 3000000 bytes"):
        query.write(1, ["x" * 3_000_000])
    assert query.write(1, ["b"]).written == 1
    assert read_committed(query.cluster, query.topic) == ["a", "b"]


def test_a_topic_that_was_created_again_is_written_to(query: Query, made: list[SinkProducer]) -> None:
    query.write(0, ["a"])
    admin = quiet_client(query.cluster.bootstrap_servers)
    assert query.topic is not None
    admin.delete_topics([query.topic])[query.topic].result()
    query.cluster.create_topic(query.topic, 3)
    assert query.write(1, ["b"]).written == 1
    assert read_committed(query.cluster, query.topic) == ["b"]


@pytest.mark.parametrize("once", [True, False], ids=["exactly once", "at least once"])
def test_a_partition_that_was_added_since_is_written_to(query: Query, made: list[SinkProducer], once: bool) -> None:
    assert query.topic is not None

    def write(batch: int, row: str, partition: int) -> None:
        rows = pa.RecordBatch.from_pydict({"value": [row], "partition": pa.array([partition], pa.int32())})
        (query.write if once else at_least_once(query))(batch, rows)

    write(0, "a", 1)
    write(1, "b", 1)
    assert len(made) == 1
    admin = quiet_client(query.cluster.bootstrap_servers)
    admin.create_partitions([NewPartitions(query.topic, 5)])[query.topic].result()
    write(2, "c", 4)
    assert len(made) == 2
    assert read_committed(query.cluster, query.topic) == ["a", "b", "c"]


FORKING = """
import os, sys
from types import SimpleNamespace
from tests.support.sink_queries import Query

query = Query(SimpleNamespace(bootstrap_servers=sys.argv[1]), sys.argv[2])
assert query.write(0, ["a"]).written == 1
child = os.fork()
if child == 0:
    assert query.write(1, ["b"]).written == 1
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
assert query.write(1, ["b"]).skipped == 1
assert query.write(2, ["c"]).written == 1
print("ends")
"""


def test_a_forked_process_does_not_use_the_producers_of_its_parent(query: Query) -> None:
    arguments = [sys.executable, "-c", FORKING, query.cluster.bootstrap_servers, query.topic or ""]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False, timeout=240)
    assert (done.returncode, done.stdout) == (0, "ends\n"), done.stderr
    assert read_committed(query.cluster, query.topic) == ["a", "b", "c"]
