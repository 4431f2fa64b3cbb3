"""Ranges of several partitions in one task: the native reader returns what it returns for one range after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]  # its stubs miss it

from devtools.broker import Cluster
from spark_groupsource.brokers.client_pool import pool
from spark_groupsource.errors import DataLossError, SchemaError
from spark_groupsource.fetch import native_consumer as native
from spark_groupsource.fetch import native_shared, reading, shared
from spark_groupsource.fetch.arrow_schema import arrow_schema
from spark_groupsource.fetch.contract import FetchRange, FetchSettings, Reader
from spark_groupsource.spark import task
from tests.conftest import MakeTopic, Produce
from tests.kafka.conftest import Filled
from tests.kafka.fetch.conftest import COMMITTED, COMPACTED_AWAY, NO_MARKERS
from tests.support.fetching import NATIVE, MakeSettings, Row, delete_before, delete_topic, warnings_of

PARTITIONS = 40

SharedReader = Callable[[Sequence[FetchRange], FetchSettings], Iterator[pa.RecordBatch]]


@pytest.fixture(params=[pytest.param(native_shared.read_all, id="native", marks=NATIVE)])
def read_all(request: pytest.FixtureRequest) -> SharedReader:
    """The reader that does not just read one range after the other."""
    reader: SharedReader = request.param
    return reader


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[FetchRange]:
    """The ranges that the pass has left to the ordinary reader, which reads them. It does not leave them for being late."""
    monkeypatch.setattr(shared, "TASK_SHARED_SILENCE_S", 30.0)
    found: list[FetchRange] = []

    def noting(one: FetchRange, settings: FetchSettings) -> object:
        found.append(one)
        return read(one, settings)

    read = native.read
    monkeypatch.setattr(native_shared, "read", noting)
    return found


def rows(read_all: SharedReader, ranges: Sequence[FetchRange], how: FetchSettings) -> list[Row]:
    found: list[Row] = []
    for batch in read_all(ranges, how):
        assert batch.schema.equals(how.schema, check_metadata=True)
        assert batch.num_rows > 0
        found += batch.to_pylist()
    return found


def offsets(read_all: SharedReader, ranges: Sequence[FetchRange], how: FetchSettings) -> dict[int, list[int]]:
    """Return the offsets of each partition, in the order in which they came."""
    found: dict[int, list[int]] = {}
    for row in rows(read_all, ranges, how):
        found.setdefault(row["partition"], []).append(row["offset"])
    return found


@pytest.fixture(scope="module")
def wide(cluster: Cluster, produce: Produce) -> str:
    """40 partitions; partition p has p % 7 + 3 records with the values `p offset`."""
    name = "wide"
    cluster.create_topic(name, PARTITIONS)
    for partition in range(PARTITIONS):
        produce(name, [(b"k", b"%d %d" % (partition, offset)) for offset in range(partition % 7 + 3)], partition)
    return name


def whole(name: str) -> list[FetchRange]:
    return [FetchRange(name, partition, 0, partition % 7 + 3) for partition in range(PARTITIONS)]


def test_many_partitions_give_their_records_in_order_and_in_one_batch(
    read_all: SharedReader, using: MakeSettings, wide: str, left: list[FetchRange]
) -> None:
    (batch,) = read_all(whole(wide), using())

    assert [(row["topic"], row["partition"], row["offset"], row["value"]) for row in batch.to_pylist()] == [
        (wide, partition, offset, b"%d %d" % (partition, offset))
        for partition in range(PARTITIONS)
        for offset in range(partition % 7 + 3)
    ]
    assert left == []


def test_a_task_reads_several_parts_of_one_partition_when_only_these_are_granted(
    using: MakeSettings, wide: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass has each partition once, so these are read one after the other."""
    for once_in_a_worker in ("log_to_stderr", "freeze_imports"):
        monkeypatch.setattr(task, once_in_a_worker, lambda: None)
    ranges = (FetchRange(wide, 6, 0, 3), FetchRange(wide, 6, 5, 9), FetchRange(wide, 13, 1, 4))
    batches = task.TaskReader(using()).read(task.RangePartition(ranges))
    assert [(row["partition"], row["offset"]) for batch in batches for row in batch.to_pylist()] == [
        (one.partition, offset) for one in ranges for offset in range(one.start, one.end)
    ]


def test_one_consumer_reads_older_ranges_after_newer_ones_and_other_partitions(
    read_all: SharedReader, using: MakeSettings, topic: MakeTopic, produce: Produce, left: list[FetchRange]
) -> None:
    name = topic(partitions=12)
    for partition in range(12):
        produce(name, [(b"p%d" % partition, b"%d" % number) for number in range(60)], partition)
    before = set(pool()._living)
    how = using({"client.id": name})

    for turn in range(40):
        start = (50 - turn * 7) % 53
        ranges = [FetchRange(name, (turn + other) % 12, start, start + 1 + (turn + other) % 7) for other in range(5)]
        found = rows(read_all, ranges, how)
        assert [(row["key"], row["value"]) for row in found] == [
            (b"p%d" % one.partition, b"%d" % number) for one in ranges for number in range(one.start, one.end)
        ]

    assert left == []
    assert len(set(pool()._living) - before) <= 1


def test_ranges_that_are_larger_than_a_response(
    read_all: SharedReader, using: MakeSettings, filled: Filled, left: list[FetchRange]
) -> None:
    name = filled(3, 60, bytes(20_000))
    ranges = [FetchRange(name, partition, 3, 55) for partition in range(3)]

    batches = list(read_all(ranges, using(buffer_bytes=2_000_000)))

    assert [(row["partition"], row["offset"]) for batch in batches for row in batch.to_pylist()] == [
        (partition, offset) for partition in range(3) for offset in range(3, 55)
    ]
    assert all(batch.nbytes < 300_000 for batch in batches)
    assert left == []


def test_more_ranges_than_fit_into_the_buffer_are_read_in_portions(
    read_all: SharedReader, using: MakeSettings, wide: str, left: list[FetchRange]
) -> None:
    how = using(buffer_bytes=16 * 1024 * 1024)
    assert [len(portion) for portion in shared._portions(whole(wide), how.buffer_bytes)] == [16, 16, 8]

    assert offsets(read_all, whole(wide), how) == {one.partition: list(range(one.end)) for one in whole(wide)}
    assert left == []


def test_a_task_that_stops_early_leaves_nothing_to_the_next(read_all: SharedReader, using: MakeSettings, filled: Filled) -> None:
    name = filled(3, 60, bytes(20_000))
    how = using(buffer_bytes=2_000_000)
    batches = read_all([FetchRange(name, partition, 0, 60) for partition in range(3)], how)
    next(batches)
    batches.close()  # type: ignore[attr-defined]

    again = [FetchRange(name, partition, 10, 13) for partition in range(3)]
    assert offsets(read_all, again, how) == {partition: [10, 11, 12] for partition in range(3)}


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_transaction_markers_and_aborted_records_are_no_loss_wherever_they_are(
    isolation: str, read_all: SharedReader, using: MakeSettings, transactions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "TASK_SILENCE_S", 25.0)
    bounds = [(0, 15), (0, 3), (0, 4), (2, 4), (3, 4), (3, 9), (4, 8), (5, 11), (9, 15), (11, 15)]
    ranges = [FetchRange(transactions, partition, *each) for partition, each in enumerate(bounds)]
    there = COMMITTED if isolation == "read_committed" else NO_MARKERS
    expected = {partition: [offset for offset in range(*each) if offset in there] for partition, each in enumerate(bounds)}

    began = time.monotonic()
    found = offsets(read_all, ranges, using({"isolation.level": isolation}, fail_on_data_loss=True))

    assert found == {partition: each for partition, each in expected.items() if each}
    assert time.monotonic() - began < 20


def test_what_compaction_removed_is_no_loss(
    read_all: SharedReader, using: MakeSettings, compacted: str, caplog: pytest.LogCaptureFixture
) -> None:
    for start, end in [(0, 15), (0, 1), (1, 3), (4, 6), (5, 6), (5, 10), (8, 12), (14, 15)]:
        found = offsets(read_all, [FetchRange(compacted, partition, start, end) for partition in range(2)], using())
        there = [offset for offset in range(start, end) if offset not in COMPACTED_AWAY]
        assert found == ({partition: there for partition in range(2) if there}), (start, end)
    assert not warnings_of(caplog)


def test_deleted_records_are_an_error_that_names_the_partition_or_a_warning_and_all_others_are_read(
    read_all: SharedReader, using: MakeSettings, filled: Filled, admin: AdminClient, caplog: pytest.LogCaptureFixture
) -> None:
    name = filled(5, 20)
    delete_before(admin, name, 10)
    ranges = [FetchRange(name, partition, 5, 15) for partition in (1, 0, 2, 3, 4)]

    with pytest.raises(DataLossError, match=rf"{name}-0 .*\[5, 10\).*failOnDataLoss"):
        list(read_all(ranges, using()))
    found = offsets(read_all, ranges, using(fail_on_data_loss=False))

    assert found == {0: list(range(10, 15))} | {partition: list(range(5, 15)) for partition in range(1, 5)}
    assert f"{name}-0 are lost: offsets [5, 10)" in warnings_of(caplog)


def test_a_topic_that_was_deleted_is_passed_over(
    read_all: SharedReader,
    using: MakeSettings,
    filled: Filled,
    admin: AdminClient,
    caplog: pytest.LogCaptureFixture,
    wide: str,
) -> None:
    name = filled(2, 3)
    gone = [FetchRange(name, partition, 0, 3) for partition in range(2)]
    ranges = [*gone, *whole(wide)]
    how = using(fail_on_data_loss=False, poll_timeout_ms=15_000)
    # The consumer knows the topic.
    assert len(rows(read_all, ranges, how)) == 6 + sum(one.end for one in whole(wide))
    delete_topic(admin, name)

    found = rows(read_all, ranges, how)
    assert {row["topic"] for row in found} == {wide}
    assert len(found) == sum(one.end for one in whole(wide))
    assert f"{name}-1 are lost" in warnings_of(caplog)


def test_partitions_that_were_added_meanwhile(
    read_all: SharedReader, using: MakeSettings, filled: Filled, produce: Produce, admin: AdminClient
) -> None:
    name = filled(2, 3)
    old = [FetchRange(name, partition, 0, 3) for partition in range(2)]
    assert len(rows(read_all, old, using())) == 6
    for done in admin.create_partitions([NewPartitions(name, 4)]).values():
        done.result()
    for partition in (2, 3):
        produce(name, [(None, b"v")] * 3, partition)

    ranges = [*old, FetchRange(name, 2, 0, 3), FetchRange(name, 3, 0, 3)]
    assert offsets(read_all, ranges, using()) == {partition: [0, 1, 2] for partition in range(4)}


def test_a_null_that_the_schema_excludes_names_its_partition(
    read_all: SharedReader, using: MakeSettings, topic: MakeTopic, produce: Produce
) -> None:
    name = topic(partitions=3)
    for partition in range(3):
        produce(name, [(b"k", None if partition == 1 else b"v")], partition)
    columns = arrow_schema(include_headers=False)
    schema = columns.set(1, columns.field("value").with_nullable(False))

    with pytest.raises(SchemaError, match=rf"{name}-1 \[0, 1\).* has no value"):
        list(read_all([FetchRange(name, partition, 0, 1) for partition in range(3)], using(schema=schema)))


def test_headers_and_chosen_columns_are_those_of_one_range_after_the_other(
    read_all: SharedReader, read: Reader, using: MakeSettings, wide: str, cluster: Cluster
) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for partition in range(PARTITIONS):
        producer.produce(wide, b"h", partition=partition, headers=[("a", b"1"), ("b", None)] if partition % 2 else [])
    assert producer.flush(30) == 0
    ranges = [FetchRange(wide, one.partition, 0, one.end + 1) for one in whole(wide)]
    how = using(include_headers=True)

    assert rows(read_all, ranges, how) == [row for one in ranges for batch in read(one, how) for row in batch.to_pylist()]
