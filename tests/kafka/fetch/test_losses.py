"""Records that are lost are an error, or a warning if the user asked for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from devtools.broker import Cluster
from spark_groupsource.errors import DataLossError
from spark_groupsource.fetch import reading
from spark_groupsource.fetch.bounds import wait_for_bounds
from spark_groupsource.fetch.choice import fetch
from spark_groupsource.fetch.contract import FetchConsumer, FetchRange, Reader
from spark_groupsource.fetch.lost_ranges import LogBounds
from spark_groupsource.partition import TopicPartition
from tests.conftest import MakeTopic, Produce
from tests.kafka.conftest import Filled
from tests.support.fetching import MEGABYTE, MakeSettings, delete_before, delete_topic, offsets, rows, warnings_of
from tests.support.producing import numbered

HALF_A_MEGABYTE = bytes(MEGABYTE // 2)


@dataclass
class Begun:
    """A task that has read the first records of [0, 60), half a megabyte each, and fetches little ahead."""

    topic: str
    found: list[int]
    batches: Iterator[pa.RecordBatch]

    def all(self) -> list[int]:
        """Read the rest; the offsets of everything."""
        return self.found + [offset for batch in self.batches for offset in batch.column("offset").to_pylist()]


@pytest.fixture
def begun(read: Reader, using: MakeSettings, filled: Filled) -> Begun:
    name = filled(count=60, value=HALF_A_MEGABYTE)
    little = {"queued.max.messages.kbytes": "1024", "queued.min.messages": "1"}
    batches = iter(read(FetchRange(name, 0, 0, 60), using(little, fail_on_data_loss=False)))
    return Begun(name, next(batches).column("offset").to_pylist(), batches)


def test_deleted_records_are_an_error_that_names_them_or_a_warning_if_asked_for(
    read: Reader, using: MakeSettings, filled: Filled, admin: AdminClient, caplog: pytest.LogCaptureFixture
) -> None:
    name = filled(count=20)
    delete_before(admin, name, 10)

    with pytest.raises(DataLossError, match=rf"{name}-0 .*\[5, 10\).*failOnDataLoss"):
        list(read(FetchRange(name, 0, 5, 15), using()))
    how = using(fail_on_data_loss=False)
    assert offsets(read, FetchRange(name, 0, 5, 15), how) == [10, 11, 12, 13, 14]
    assert f"{name}-0 are lost: offsets [5, 10)" in warnings_of(caplog)
    assert offsets(read, FetchRange(name, 0, 2, 8), how) == []
    assert "[2, 8)" in warnings_of(caplog)


def test_records_deleted_while_the_range_is_read(begun: Begun, admin: AdminClient, caplog: pytest.LogCaptureFixture) -> None:
    delete_before(admin, begun.topic, 55)

    found = begun.all()
    lost = [offset for offset in range(60) if offset not in found]
    assert found == sorted(set(found))
    assert found[-5:] == [55, 56, 57, 58, 59]
    assert lost
    assert f"[{lost[0]}, 55)" in warnings_of(caplog)
    assert lost == list(range(lost[0], 55))


def test_an_end_beyond_the_log_is_loss(
    read: Reader, using: MakeSettings, filled: Filled, caplog: pytest.LogCaptureFixture
) -> None:
    name = filled(count=20)

    with pytest.raises(DataLossError, match=r"\[20, 50\)"):
        list(read(FetchRange(name, 0, 5, 50), using()))
    assert offsets(read, FetchRange(name, 0, 15, 50), using(fail_on_data_loss=False)) == [15, 16, 17, 18, 19]
    assert "[20, 50)" in warnings_of(caplog)
    assert offsets(read, FetchRange(name, 0, 30, 50), using(fail_on_data_loss=False)) == []


@pytest.mark.parametrize(
    ("what", "lost", "left"),
    [
        ("deleted", "[5, 10)", range(10, 15)),
        ("cut", "[20, 50)", range(5, 20)),
        ("no topic", "[5, 15)", ()),
        ("another topic", "[8, 15)", range(5, 8)),
    ],
)
def test_a_consumer_that_has_read_the_partition_before_sees_what_is_lost(
    what: str,
    lost: str,
    left: Sequence[int],
    read: Reader,
    using: MakeSettings,
    filled: Filled,
    cluster: Cluster,
    admin: AdminClient,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It does not ask for the log's bounds first."""
    name, how = filled(count=20), using(fail_on_data_loss=False)
    assert offsets(read, FetchRange(name, 0, 0, 3), how) == [0, 1, 2]
    if what == "deleted":
        delete_before(admin, name, 10)
    elif what != "cut":
        delete_topic(admin, name)
    if what == "another topic":
        cluster.create_topic(name)
        fill_anew(cluster, name, [b"new"] * 8)

    found = rows(read, FetchRange(name, 0, 5, 50 if what == "cut" else 15), how)
    assert [row["offset"] for row in found] == list(left)
    assert all((row["value"] == b"new") == (what == "another topic") for row in found)
    assert f"offsets {lost}" in warnings_of(caplog)


def fill_anew(cluster: Cluster, topic: str, values: Sequence[bytes]) -> None:
    """Write to a topic that was created again, with a producer that has not known the old one."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


def test_bounds_are_asked_for_once_by_each_consumer(
    read: Reader, using: MakeSettings, filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, how = filled(partitions=2), using({"client.id": "once"})
    asked: list[TopicPartition] = []

    def ask(consumer: FetchConsumer, partition: TopicPartition, *more: Any) -> LogBounds | None:
        asked.append(partition)
        return wait_for_bounds(consumer, partition, *more)

    monkeypatch.setattr(reading, "wait_for_bounds", ask)

    for partition in (0, 1, 0, 1, 1):
        assert offsets(read, FetchRange(name, partition, 5, 8), how) == [5, 6, 7]

    assert asked == [(name, 0), (name, 1)]


@pytest.mark.parametrize("missing", ["topic", "partition"])
def test_a_missing_topic_or_partition_is_loss(
    missing: str, read: Reader, using: MakeSettings, topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    what = FetchRange("no-such-topic", 0, 3, 9) if missing == "topic" else FetchRange(topic(), 7, 3, 9)

    with pytest.raises(DataLossError, match=r"\[3, 9\): the topic or the partition no longer exists"):
        list(read(what, using()))
    assert rows(read, what, using(fail_on_data_loss=False)) == []
    assert "[3, 9)" in warnings_of(caplog)


def test_a_topic_deleted_while_it_is_read_is_loss(begun: Begun, admin: AdminClient, caplog: pytest.LogCaptureFixture) -> None:
    delete_topic(admin, begun.topic)

    found = begun.all()
    assert found == list(range(len(found)))
    lost = f"{begun.topic}-0 are lost: offsets [{len(found)}, 60)"
    assert f"{lost}: the topic or the partition no longer exists" in warnings_of(caplog)


def test_a_topic_made_anew_with_less_records_while_it_is_read_is_loss(
    begun: Begun, admin: AdminClient, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    delete_topic(admin, begun.topic)
    cluster.create_topic(begun.topic)

    found = begun.all()
    assert found == list(range(len(found)))
    assert f"[{len(found)}, 60)" in warnings_of(caplog)


def test_a_gap_at_the_start_is_loss_if_the_log_start_has_moved_into_it_meanwhile(
    using: MakeSettings, compacted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if records were deleted between its first look at the bounds and its first Fetch.
    monkeypatch.setattr(reading, "ask_bounds", lambda *_: LogBounds(2, 15))

    with pytest.raises(DataLossError, match=r"\[0, 2\)"):
        list(fetch(FetchRange(compacted, 0, 0, 10), using()))
    assert offsets(fetch, FetchRange(compacted, 0, 2, 10), using()) == [2, 3, 4, 6, 7, 8]


def test_an_end_that_comes_back_is_no_loss(
    read: Reader, using: MakeSettings, filled: Filled, produce: Produce, patient: None, caplog: pytest.LogCaptureFixture
) -> None:
    # As after a change of leaders: the range was planned by a high watermark that is reached again some seconds later.
    name = filled()
    later = threading.Timer(2, lambda: produce(name, numbered(10), 0))
    later.start()

    found = offsets(read, FetchRange(name, 0, 5, 20), using())
    later.join()

    assert found == list(range(5, 20))
    assert not warnings_of(caplog)


def test_an_end_that_comes_back_while_the_range_is_read_is_no_loss(
    patient: None, begun: Begun, admin: AdminClient, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    # The only way to lower the end of a real log in the middle is another log: its records have other values.
    delete_topic(admin, begun.topic)
    cluster.create_topic(begun.topic)
    later = threading.Timer(2, lambda: fill_anew(cluster, begun.topic, [HALF_A_MEGABYTE] * 60))
    later.start()
    found = begun.all()
    later.join()

    assert found == list(range(60))
    assert "are lost" not in warnings_of(caplog)
