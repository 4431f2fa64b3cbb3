"""Batches that are damaged or malformed: no row of them is returned, and the error says where, in bounded time."""

from __future__ import annotations

import gzip
import re
import shutil
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from devtools.broker import Cluster
from spark_groupsource.errors import BrokerError
from spark_groupsource.fetch import native_shared
from spark_groupsource.fetch.choice import fetch
from spark_groupsource.fetch.contract import FetchRange, Reader
from tests.conftest import KEEP_ALL, NOT_FENCED
from tests.support.fetching import NATIVE, MakeSettings, Row, offsets, rows
from tests.support.waiting import until
from tests.support.written_logs import (
    ATTRIBUTES,
    CONTROL,
    GZIP,
    LAST_OFFSET_DELTA,
    RECORDS,
    batch,
    batch_of,
    folder_of,
    marker,
    overwrite,
    record,
    write_logs,
)

FIRST, END = 10, 20
"""The offsets of the batch in the middle, which is damaged."""

VALUES = [b"value %02d" % number for number in range(30)]

DAMAGE = {
    "value": (RECORDS + len(record(0, VALUES[0])) - 3, b"X"),
    "key": (RECORDS + 4, b"\0"),
    "last-offset-low": (LAST_OFFSET_DELTA + 3, b"\1"),
    "last-offset-high": (LAST_OFFSET_DELTA + 3, b"\x0d"),
    "control": (ATTRIBUTES + 1, bytes([CONTROL])),
    "codec": (ATTRIBUTES + 1, bytes([GZIP])),
    "length": (RECORDS + len(record(0, VALUES[0])), b"\x40"),
    "checksum": (ATTRIBUTES - 1, b"\0"),
}
"""By the name of a topic: where one byte of the batch is changed, and what it becomes."""


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker with a topic for each kind of damage: three batches of ten records, the second one damaged."""
    batches = [batch(VALUES[first : first + 10], 0, first) for first in range(0, 30, 10)]
    logs = {**dict.fromkeys(DAMAGE, batches), "after-marker": [batch(VALUES[:9], 0), marker(9), *batches[1:]]}
    logs["malformed"] = [batches[0], batch_of(record(0, VALUES[10]) + b"\x40" + bytes(12), 0, 10, FIRST), batches[2]]
    members = gzip.compress(record(0, VALUES[10])) + gzip.compress(record(1, VALUES[11]))
    logs["members"] = [batches[0], batch_of(members, GZIP, 2, FIRST)]
    with Cluster(data_dir=tmp_path_factory.mktemp("damaged"), config={**KEEP_ALL, **NOT_FENCED}) as cluster:
        for name in logs:
            cluster.create_topic(name)
        write_logs(cluster, logs)
        for name, (at, content) in {**DAMAGE, "after-marker": DAMAGE["value"]}.items():
            overwrite(cluster.nodes[0], name, sum(map(len, logs[name][:-2])) + at, content)
        yield cluster


def until_error(read: Reader, what: FetchRange, using: MakeSettings, cluster: Cluster) -> tuple[list[Row], BrokerError]:
    """Return the rows that come before the error, and the error."""
    return rows_and_error(read(what, using({"bootstrap.servers": cluster.bootstrap_servers})))


def rows_and_error(batches: Iterator[pa.RecordBatch]) -> tuple[list[Row], BrokerError]:
    found: list[Row] = []
    began = time.monotonic()
    try:
        for taken in batches:
            found += taken.to_pylist()
    except BrokerError as error:
        assert time.monotonic() - began < 25
        return found, error
    raise AssertionError(f"no error after {len(found)} rows")


# A broker that takes the batch for shorter does not send it to a reader that begins after that. The reader of the offsets before
# that one gets the error.
@pytest.mark.parametrize(
    ("name", "start"), [(name, start) for name in DAMAGE for start in (0, 10, 15) if (name, start) != ("last-offset-low", 15)]
)
def test_a_damaged_byte_is_an_error_and_no_row_of_its_batch_is_returned(
    name: str, start: int, read: Reader, using: MakeSettings, damaged: Cluster
) -> None:
    found, error = until_error(read, FetchRange(name, 0, start, 30), using, damaged)

    assert [row["offset"] for row in found if row["offset"] >= FIRST] == []
    assert all(row["value"] == VALUES[row["offset"]] for row in found)
    assert f"at offset {FIRST}: " in str(error)
    assert "CRC" in str(error)
    assert "kafka.check.crcs" in str(error)
    how = using({"bootstrap.servers": damaged.bootstrap_servers})
    assert offsets(read, FetchRange(name, 0, 0, FIRST), how) == list(range(FIRST))
    assert offsets(read, FetchRange(name, 0, END, 30), how) == list(range(END, 30))


@NATIVE
@pytest.mark.parametrize("name", DAMAGE)
def test_nothing_behind_a_damaged_batch_is_read_by_a_task_of_several_partitions(
    name: str, using: MakeSettings, damaged: Cluster
) -> None:
    how = using({"bootstrap.servers": damaged.bootstrap_servers})
    others = ("control", "value") if name == "length" else ("length",)
    ranges = [FetchRange(topic, 0, 0, FIRST if topic != name else 30) for topic in (*others, name)]
    found, error = rows_and_error(native_shared.read_all(ranges, how))
    assert re.search(rf"{name}-0.*at offset {FIRST}: .*CRC", str(error))
    assert [row["offset"] for row in found if row["offset"] >= FIRST] == []


def test_the_check_can_be_turned_off(read: Reader, using: MakeSettings, damaged: Cluster) -> None:
    how = using({"bootstrap.servers": damaged.bootstrap_servers, "check.crcs": "false"})

    found = rows(read, FetchRange("value", 0, 0, 30), how)

    assert [row["offset"] for row in found if row["value"] != VALUES[row["offset"]]] == [FIRST]


def test_a_range_that_ends_with_a_marker_is_read_though_the_batch_after_it_is_damaged(
    read: Reader, using: MakeSettings, damaged: Cluster
) -> None:
    how = using({"bootstrap.servers": damaged.bootstrap_servers})

    assert offsets(read, FetchRange("after-marker", 0, 0, FIRST), how) == list(range(9))
    assert offsets(read, FetchRange("after-marker", 0, 9, FIRST), how) == []
    with pytest.raises(BrokerError, match=rf"at offset {FIRST}: .*CRC"):
        rows(read, FetchRange("after-marker", 0, 0, FIRST + 1), how)


def test_a_malformed_batch_with_the_right_checksum_is_named_as_a_possible_reason(
    read: Reader, using: MakeSettings, damaged: Cluster
) -> None:
    """librdkafka takes it for a part of a batch, and asks for more of it without end."""
    how = using({"bootstrap.servers": damaged.bootstrap_servers}, poll_timeout_ms=5_000)
    with pytest.raises(BrokerError, match=rf"at offset {FIRST + 1}: no record .* malformed"):
        rows(read, FetchRange("malformed", 0, 0, 30), how)
    assert offsets(read, FetchRange("malformed", 0, END, 30), how) == list(range(END, 30))


def test_of_a_gzip_with_several_members_only_the_first_is_read(read: Reader, using: MakeSettings, damaged: Cluster) -> None:
    """A fault of librdkafka's: it does not compare the number of records in a batch. Java's clients never write such a batch."""
    how = using({"bootstrap.servers": damaged.bootstrap_servers})

    assert offsets(read, FetchRange("members", 0, 0, 12), how) == [*range(11)]


@pytest.mark.long
def test_a_replica_that_is_intact_is_read_and_the_damaged_one_is_made_anew(using: MakeSettings) -> None:
    """The steps of docs/operations.md."""
    with Cluster(nodes=3, config=KEEP_ALL) as cluster:
        cluster.create_topic("orders")
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
        for value in VALUES:
            producer.produce("orders", value)
        assert producer.flush(60) == 0
        only = FetchRange("orders", 0, 0, 30)
        how = using({"bootstrap.servers": cluster.bootstrap_servers})

        def known() -> Any:
            return admin.list_topics("orders", timeout=60).topics["orders"].partitions[0]

        until(lambda: len(known().isrs) == 3, "all replicas have the records")
        (leader,) = (node for node in cluster.nodes if node.id == known().leader)
        overwrite(leader, "orders", RECORDS + len(record(0, VALUES[0])) - 3, b"X")
        with pytest.raises(BrokerError, match="CRC"):
            rows(fetch, only, how)

        leader.stop()
        until(lambda: known().leader not in (leader.id, -1), "another replica leads")
        assert [row["value"] for row in rows(fetch, only, how)] == VALUES
        shutil.rmtree(folder_of(leader, "orders"))
        leader.start()
        until(lambda: leader.id in known().isrs, "it has copied the partition")
        admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition("orders", 0)]).result(60)
        until(lambda: known().leader == leader.id, "it leads again")
        assert [row["value"] for row in rows(fetch, only, how)] == VALUES
