"""The contract of readers: what `fetch` says, held against a real broker by every reader there is."""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs miss them
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_groupsource.dev_broker import Cluster
from spark_groupsource.errors import (
    AuthenticationFailed,
    BrokerError,
    BrokerUnavailable,
    DataLossError,
    GroupKafkaError,
    NotAuthorized,
    OptionError,
)
from spark_groupsource.fetch import consumer_cache as consumers
from spark_groupsource.fetch import native_consumer as native
from spark_groupsource.fetch import pure_consumer as pure
from spark_groupsource.fetch import reading
from spark_groupsource.fetch.arrow_schema import arrow_schema
from spark_groupsource.fetch.contract import FetchRange, Reader, fetch
from spark_groupsource.fetch.lost_ranges import LogBounds, lost_ranges, remaining
from spark_groupsource.fetch.native_api import why_unavailable
from spark_groupsource.fetch.refusals import refusal
from spark_groupsource.fetch.settings import BATCH_BYTES, BATCH_ROWS, BUFFER_BYTES, FetchSettings
from spark_groupsource.options.client_settings import consumer_settings
from tests.conftest import MakeTopic, Produce

Row = dict[str, Any]
Headers = list[tuple[str, "bytes | None"]]
MakeSettings = Callable[..., FetchSettings]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MEGABYTE = 1_000_000
NOWHERE = consumer_settings({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}, BUFFER_BYTES)


NATIVE = pytest.mark.skipif(why_unavailable() is not None, reason=f"no native reader: {why_unavailable()}")


@pytest.fixture(params=[pytest.param(pure.read, id="pure"), pytest.param(native.read, id="native", marks=NATIVE)])
def read(request: pytest.FixtureRequest) -> Reader:
    reader: Reader = request.param
    return reader


@pytest.fixture
def using(cluster: Cluster) -> MakeSettings:
    """Make settings: client settings as a mapping, all others by name."""

    def make(client: Mapping[str, str] | None = None, buffer_bytes: int = BUFFER_BYTES, **others: Any) -> FetchSettings:
        given = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "fetch-tests", **(client or {})}
        finished = consumer_settings(given, buffer_bytes)
        return FetchSettings(client=finished, buffer_bytes=buffer_bytes, **{"poll_timeout_ms": 30_000, **others})

    return make


@pytest.fixture(scope="module", autouse=True)
def no_consumer_left() -> Iterator[None]:
    yield
    consumers.close_kept()


@pytest.fixture(scope="module")
def quick_cleaner(cluster: Cluster, admin: AdminClient) -> None:
    """The log cleaner looks for work every 0.1 s instead of every 15 s."""
    entry = ConfigEntry("log.cleaner.backoff.ms", "100", incremental_operation=AlterConfigOpType.SET)
    for node in cluster.nodes:
        resource = ConfigResource(ResourceType.BROKER, str(node.id), incremental_configs=[entry])
        for done in admin.incremental_alter_configs([resource]).values():
            done.result()


def rows(read: Reader, what: FetchRange, how: FetchSettings) -> list[Row]:
    found: list[Row] = []
    for batch in read(what, how):
        assert batch.schema.equals(arrow_schema(how.include_headers), check_metadata=True)
        assert batch.num_rows > 0
        found += batch.to_pylist()
    return found


def offsets(read: Reader, what: FetchRange, how: FetchSettings) -> list[int]:
    return [row["offset"] for row in rows(read, what, how)]


def numbered(count: int) -> list[tuple[bytes, bytes]]:
    return [(b"k%d" % number, b"v%d" % number) for number in range(count)]


def delete_before(admin: AdminClient, topic: str, offset: int) -> None:
    for done in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        done.result()


def delete_topic(admin: AdminClient, topic: str) -> None:
    for done in admin.delete_topics([topic]).values():
        done.result()
    limit = time.monotonic() + 20
    while topic in admin.list_topics(timeout=5).topics and time.monotonic() < limit:
        time.sleep(0.05)


def warnings_of(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)


# --- Records


def test_a_range_in_the_middle_of_a_partition_gives_exactly_its_records(
    read: Reader, using: MakeSettings, topic: MakeTopic, produce: Produce
) -> None:
    name = topic(partitions=2)
    produce(name, numbered(100), 1)

    found = rows(read, FetchRange(name, 1, 40, 60), using())

    assert [row["offset"] for row in found] == list(range(40, 60))
    assert [row["key"] for row in found] == [b"k%d" % number for number in range(40, 60)]
    assert [row["value"] for row in found] == [b"v%d" % number for number in range(40, 60)]
    assert {(row["topic"], row["partition"]) for row in found} == {(name, 1)}


def test_ranges_meet_without_a_gap_or_an_overlap(read: Reader, using: MakeSettings, topic: MakeTopic, produce: Produce) -> None:
    name = topic()
    produce(name, numbered(30), 0)
    cuts = [0, 1, 2, 11, 29, 30]

    found = [offsets(read, FetchRange(name, 0, low, high), using()) for low, high in itertools.pairwise(cuts)]

    assert found == [list(range(low, high)) for low, high in itertools.pairwise(cuts)]


def test_an_empty_range_gives_nothing_and_asks_no_broker(read: Reader) -> None:
    nowhere = FetchSettings(
        consumer_settings({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}, BUFFER_BYTES), poll_timeout_ms=1
    )

    assert rows(read, FetchRange("any", 0, 7, 7), nowhere) == []


def test_null_and_empty_keys_and_values_stay_apart(read: Reader, using: MakeSettings, topic: MakeTopic, produce: Produce) -> None:
    name = topic()
    records = [(None, None), (None, b"v"), (b"k", None), (b"", b""), (b"", None), (None, b""), (b"k", b"")]
    produce(name, records, 0)

    found = rows(read, FetchRange(name, 0, 0, len(records)), using())

    assert [(row["key"], row["value"]) for row in found] == records


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_and_values_of_1_mb(
    codec: str, read: Reader, using: MakeSettings, topic: MakeTopic, cluster: Cluster
) -> None:
    name = topic(config={"max.message.bytes": str(8 * MEGABYTE)})
    values = [b"small", os.urandom(MEGABYTE), b"z" * MEGABYTE, b"", os.urandom(5 * MEGABYTE), b"last"]
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "compression.codec": codec,
            "message.max.bytes": 8 * MEGABYTE,
            "linger.ms": 20,
        }
    )
    for value in values:
        producer.produce(name, value, b"k", 0)
    assert producer.flush(30) == 0

    assert [row["value"] for row in rows(read, FetchRange(name, 0, 0, len(values)), using())] == values


def test_headers(read: Reader, using: MakeSettings, topic: MakeTopic, cluster: Cluster) -> None:
    name = topic()
    all_headers: list[Headers | None] = [
        None,
        [("a", b"1"), ("b", None), ("a", b"2"), ("", b""), ("\u00fc", b"\x00\xff")],
        [("only", None)],
        None,
    ]
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for headers in all_headers:
        if headers is None:
            producer.produce(name, b"v", partition=0)
        else:
            producer.produce(name, b"v", partition=0, headers=list(headers))
    assert producer.flush(10) == 0
    what = FetchRange(name, 0, 0, len(all_headers))

    found = rows(read, what, using(include_headers=True))

    expected = [None if each is None else [{"key": key, "value": value} for key, value in each] for each in all_headers]
    assert [row["headers"] for row in found] == expected
    assert "headers" not in rows(read, what, using())[0]


def test_create_time(read: Reader, using: MakeSettings, topic: MakeTopic, cluster: Cluster) -> None:
    name = topic()
    now_ms = int(time.time() * 1000)
    times_ms = [1, 1_234_567_890_123, now_ms]
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for time_ms in times_ms:
        producer.produce(name, b"v", partition=0, timestamp=time_ms)
    assert producer.flush(10) == 0

    found = rows(read, FetchRange(name, 0, 0, 3), using())

    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    assert [row["timestamp"] for row in found] == [epoch + timedelta(milliseconds=time_ms) for time_ms in times_ms]
    assert {row["timestampType"] for row in found} == {0}


def test_a_timestamp_beyond_sparks_range_is_the_nearest_within_it(
    read: Reader, using: MakeSettings, topic: MakeTopic, cluster: Cluster
) -> None:
    any_time = {"message.timestamp.before.max.ms": str(2**63 - 1), "message.timestamp.after.max.ms": str(2**63 - 1)}
    name = topic(config=any_time)
    largest = (2**63 - 1) // 1000
    times_ms = [largest, largest + 1, 2**62, 1, -largest, -largest - 1, -(2**62)]
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for time_ms in times_ms:
        producer.produce(name, b"v", partition=0, timestamp=time_ms)
        assert producer.flush(30) == 0

    batches = list(read(FetchRange(name, 0, 0, len(times_ms)), using()))

    found = [us for batch in batches for us in batch.column("timestamp").cast(pa.int64()).to_pylist()]
    assert found == [largest * 1000] * 3 + [1000] + [-largest * 1000] * 3


def test_log_append_time(read: Reader, using: MakeSettings, topic: MakeTopic, cluster: Cluster) -> None:
    name = topic(config={"message.timestamp.type": "LogAppendTime"})
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce(name, b"v", partition=0, timestamp=1_000)
    assert producer.flush(10) == 0

    (found,) = rows(read, FetchRange(name, 0, 0, 1), using())

    assert abs(found["timestamp"] - datetime.now(timezone.utc)) < timedelta(minutes=1)
    assert found["timestampType"] == 1


def test_batches_are_bounded_by_rows(read: Reader, using: MakeSettings, topic: MakeTopic, produce: Produce) -> None:
    name = topic()
    produce(name, numbered(25_000), 0)

    batches = list(read(FetchRange(name, 0, 0, 25_000), using()))

    assert [batch.num_rows for batch in batches] == [BATCH_ROWS, BATCH_ROWS, 25_000 - 2 * BATCH_ROWS]
    assert [offset for batch in batches for offset in batch.column("offset").to_pylist()] == list(range(25_000))


def test_batches_are_bounded_by_bytes(read: Reader, using: MakeSettings, topic: MakeTopic, produce: Produce) -> None:
    name = topic()
    value = os.urandom(MEGABYTE - 1000)
    produce(name, [(None, value)] * 40, 0)

    sizes = [batch.num_rows * len(value) for batch in read(FetchRange(name, 0, 0, 40), using())]

    assert sum(sizes) == 40 * len(value)
    assert len(sizes) >= 2
    assert max(sizes) <= BATCH_BYTES + len(value)


def test_a_task_holds_no_more_than_its_buffer(read: Reader, using: MakeSettings, topic: MakeTopic, produce: Produce) -> None:
    name = topic()
    value = os.urandom(10_000)
    produce(name, [(None, value)] * 2_000, 0)
    how = using(buffer_bytes=MEGABYTE)

    sizes = [batch.num_rows * len(value) for batch in read(FetchRange(name, 0, 0, 2_000), how)]

    assert sum(sizes) == 2_000 * len(value)
    assert max(sizes) <= how.batch_bytes <= MEGABYTE // 8
    assert int(how.client["queued.max.messages.kbytes"]) * 1024 + 3 * how.batch_bytes < MEGABYTE


binary = st.none() | st.just(b"") | st.binary(max_size=30)
headers_of_a_record = st.none() | st.lists(
    st.tuples(st.text(max_size=5).filter(lambda key: "\0" not in key), binary), min_size=1, max_size=3
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    records=st.lists(st.tuples(binary, binary, headers_of_a_record), min_size=1, max_size=20),
    data=st.data(),
)
def test_any_mix_of_records_comes_back_as_it_was(
    records: Sequence[tuple[bytes | None, bytes | None, Headers | None]],
    data: st.DataObject,
    read: Reader,
    using: MakeSettings,
    mixed_topic: tuple[str, Producer],
) -> None:
    name, producer = mixed_topic
    at: list[int] = []

    def note(error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        assert error is None
        assert offset is not None
        at.append(offset)

    for key, value, headers in records:
        producer.produce(name, value, key, 0, note, headers=list(headers or ()))
    assert producer.flush(10) == 0
    low = data.draw(st.integers(0, len(records) - 1))
    high = data.draw(st.integers(low + 1, len(records)))

    found = rows(read, FetchRange(name, 0, at[0] + low, at[0] + high), using(include_headers=True))

    assert [row["offset"] for row in found] == at[low:high]
    assert [
        (row["key"], row["value"], row["headers"] and [(header["key"], header["value"]) for header in row["headers"]])
        for row in found
    ] == [tuple(record) for record in records[low:high]]


@pytest.fixture
def mixed_topic(topic: MakeTopic, cluster: Cluster) -> tuple[str, Producer]:
    return topic(), Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0})


@NATIVE
@pytest.mark.parametrize("codec", CODECS)
def test_both_readers_give_the_same_rows(codec: str, using: MakeSettings, topic: MakeTopic, cluster: Cluster) -> None:
    chance = random.Random(codec)
    name = topic(config={"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "compression.codec": codec, "linger.ms": 20})
    count = 11_000
    now_ms = int(time.time() * 1000)

    def refuse(error: KafkaError | None, _message: Message) -> None:
        assert error is None

    # Of each producer batch some records are alike, so that the codecs have something to do.
    pool = [None, b"", *(chance.randbytes(chance.choice([1, 10, 100, 1_000, 5_000])) for _ in range(40))]
    for _ in range(count):
        key, value = chance.choice(pool[:20]), chance.choice(pool)
        headers: list[tuple[str, str | bytes | None]] = [
            (chance.choice(["", "a", "\u00fc\U0001f600", "k" * 300]), chance.choice(pool[:20]))
            for _ in range(chance.choice([0, 0, 1, 3]))
        ]
        producer.produce(name, value, key, 0, headers=headers, timestamp=chance.randint(1, now_ms), on_delivery=refuse)
        producer.poll(0)
    assert producer.flush(60) == 0
    ranges = [(0, count), *(sorted(chance.sample(range(count), 2)) for _ in range(5))]

    for start, end in ranges:
        for include_headers in (True, False):
            how = using(include_headers=include_headers)
            first, second = (
                pa.Table.from_batches(reader(FetchRange(name, 0, start, end), how)) for reader in (pure.read, native.read)
            )
            assert first.num_rows == end - start
            assert first.equals(second)
            second.validate(full=True)


# --- Gaps that are no loss


@pytest.fixture
def compacted(topic: MakeTopic, cluster: Cluster, quick_cleaner: None) -> str:
    """Offsets 0, 1, 5 and 9 are compacted away below 15: in partition 0 whole batches, in partition 1 records of one batch."""
    name = topic(
        partitions=2,
        config={
            "cleanup.policy": "compact",
            "segment.ms": "1000",
            "min.cleanable.dirty.ratio": "0",
            "min.compaction.lag.ms": "0",
        },
    )
    keys = [*range(10), 0, 1, 5, 9, 10]
    now_ms = int(time.time() * 1000)
    for partition, config in enumerate(({"linger.ms": 0}, {"linger.ms": 200})):
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, **config})
        for number, key in enumerate(keys):
            # The last one is the first of a new segment, by its time: only closed segments are compacted.
            late = number == len(keys) - 1
            if late or partition == 0:
                assert producer.flush(10) == 0
            producer.produce(name, b"v%d" % number, b"k%d" % key, partition, timestamp=now_ms + (5_000 if late else 0))
        assert producer.flush(10) == 0
    for partition in range(2):
        wait_for_first(cluster, name, partition, 2)
    return name


def wait_for_first(cluster: Cluster, name: str, partition: int, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "look", "auto.offset.reset": "error"})
    limit = time.monotonic() + 30
    first = None
    while first != offset:
        assert time.monotonic() < limit, f"not compacted: the first record is at {first}"
        consumer.assign([TopicPartition(name, partition, 0)])
        message = consumer.poll(5)
        first = None if message is None else message.offset()
        consumer.unassign()
        time.sleep(0.05)
    consumer.close()


COMPACTED_AWAY = {0, 1, 5, 9}


@pytest.mark.parametrize("fail", [True, False])
def test_what_compaction_removed_is_no_loss(
    fail: bool, read: Reader, using: MakeSettings, compacted: str, caplog: pytest.LogCaptureFixture
) -> None:
    for partition in range(2):
        for start, end in [(0, 15), (0, 1), (0, 2), (1, 3), (0, 10), (4, 6), (5, 6), (5, 9), (5, 10), (9, 10), (8, 12), (14, 15)]:
            began = time.monotonic()
            found = offsets(read, FetchRange(compacted, partition, start, end), using(fail_on_data_loss=fail))
            assert found == [offset for offset in range(start, end) if offset not in COMPACTED_AWAY], (partition, start, end)
            assert time.monotonic() - began < 2
    assert not warnings_of(caplog)


@pytest.fixture
def transactions(topic: MakeTopic, cluster: Cluster) -> str:
    """0-2 committed, 3 its marker, 4-6 aborted, 7 its marker, 8-9 committed, 10 its marker, 11-13 aborted, 14 its marker."""
    name = topic()
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(30)
    for count, commit in ((3, True), (3, False), (2, True), (3, False)):
        producer.begin_transaction()
        for number in range(count):
            producer.produce(name, b"%d" % number, partition=0)
        assert producer.flush(30) == 0
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    return name


COMMITTED = [0, 1, 2, 8, 9]
NO_MARKERS = [0, 1, 2, 4, 5, 6, 8, 9, 11, 12, 13]
RANGES = [
    (0, 15),
    (0, 3),
    (0, 4),
    (2, 4),
    (3, 4),
    (3, 5),
    (4, 8),
    (4, 7),
    (5, 6),
    (3, 8),
    (7, 11),
    (6, 9),
    (10, 15),
    (11, 15),
    (14, 15),
]


@pytest.mark.parametrize(
    ("isolation", "visible"), [("read_committed", COMMITTED), ("read_uncommitted", NO_MARKERS), (None, NO_MARKERS)]
)
def test_transactions(isolation: str | None, visible: list[int], read: Reader, using: MakeSettings, transactions: str) -> None:
    how = using({} if isolation is None else {"isolation.level": isolation})
    for start, end in RANGES:
        began = time.monotonic()
        assert offsets(read, FetchRange(transactions, 0, start, end), how) == [each for each in visible if start <= each < end]
        assert time.monotonic() - began < 2, (start, end)


# --- Loss


def test_deleted_records_are_an_error_that_names_them(
    read: Reader, using: MakeSettings, topic: MakeTopic, produce: Produce, admin: AdminClient
) -> None:
    name = topic()
    produce(name, numbered(20), 0)
    delete_before(admin, name, 10)

    with pytest.raises(DataLossError, match=rf"{name}-0 .*\[5, 10\).*failOnDataLoss"):
        list(read(FetchRange(name, 0, 5, 15), using()))
    assert offsets(read, FetchRange(name, 0, 10, 15), using()) == [10, 11, 12, 13, 14]


def test_deleted_records_are_a_warning_if_asked_for(
    read: Reader, using: MakeSettings, topic: MakeTopic, produce: Produce, admin: AdminClient, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic()
    produce(name, numbered(20), 0)
    delete_before(admin, name, 10)
    how = using(fail_on_data_loss=False)

    assert offsets(read, FetchRange(name, 0, 5, 15), how) == [10, 11, 12, 13, 14]
    assert f"{name}-0 are lost, offsets [5, 10)" in warnings_of(caplog)
    assert offsets(read, FetchRange(name, 0, 2, 8), how) == []
    assert "[2, 8)" in warnings_of(caplog)


@pytest.mark.parametrize("fail", [True, False])
def test_records_deleted_while_the_range_is_read(
    fail: bool,
    read: Reader,
    using: MakeSettings,
    topic: MakeTopic,
    produce: Produce,
    admin: AdminClient,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = topic()
    produce(name, [(None, bytes(MEGABYTE // 2))] * 80, 0)
    small_prefetch = {"queued.max.messages.kbytes": "1024", "queued.min.messages": "1"}
    batches = read(FetchRange(name, 0, 0, 80), using(small_prefetch, fail_on_data_loss=fail))
    found = next(batches).column("offset").to_pylist()
    delete_before(admin, name, 75)

    if fail:
        with pytest.raises(DataLossError, match=r"\[\d+, 75\)"):
            list(batches)
        return
    found += [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    lost = [offset for offset in range(80) if offset not in found]
    assert found == sorted(set(found))
    assert found[-5:] == [75, 76, 77, 78, 79]
    assert lost
    assert f"[{lost[0]}, 75)" in warnings_of(caplog)
    assert lost == list(range(lost[0], 75))


def test_an_end_beyond_the_log_is_loss(
    read: Reader, using: MakeSettings, topic: MakeTopic, produce: Produce, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic()
    produce(name, numbered(20), 0)

    with pytest.raises(DataLossError, match=r"\[20, 50\)"):
        list(read(FetchRange(name, 0, 5, 50), using()))
    assert offsets(read, FetchRange(name, 0, 15, 50), using(fail_on_data_loss=False)) == [15, 16, 17, 18, 19]
    assert "[20, 50)" in warnings_of(caplog)
    assert offsets(read, FetchRange(name, 0, 30, 50), using(fail_on_data_loss=False)) == []


def test_a_recreated_topic_is_loss(
    read: Reader, using: MakeSettings, topic: MakeTopic, produce: Produce, cluster: Cluster, admin: AdminClient
) -> None:
    name = topic()
    produce(name, numbered(20), 0)
    assert len(offsets(read, FetchRange(name, 0, 0, 20), using())) == 20
    delete_topic(admin, name)
    cluster.create_topic(name)
    # With a producer of its own: it must not hold on to the old topic.
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(5):
        producer.produce(name, b"new%d" % number, partition=0)
    assert producer.flush(10) == 0

    with pytest.raises(DataLossError, match=r"\[5, 30\)"):
        list(read(FetchRange(name, 0, 3, 30), using()))
    found = rows(read, FetchRange(name, 0, 3, 30), using(fail_on_data_loss=False))
    assert [row["value"] for row in found] == [b"new3", b"new4"]


@pytest.mark.parametrize("missing", ["topic", "partition"])
def test_a_missing_topic_or_partition_is_loss(
    missing: str, read: Reader, using: MakeSettings, topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    what = FetchRange("no-such-topic", 0, 3, 9) if missing == "topic" else FetchRange(topic(), 7, 3, 9)

    with pytest.raises(DataLossError, match=r"\[3, 9\): the topic or the partition does not exist"):
        list(read(what, using()))
    assert rows(read, what, using(fail_on_data_loss=False)) == []
    assert "[3, 9)" in warnings_of(caplog)


def test_a_topic_deleted_while_it_is_read_is_loss(
    read: Reader, using: MakeSettings, topic: MakeTopic, produce: Produce, admin: AdminClient
) -> None:
    name = topic()
    produce(name, [(None, bytes(MEGABYTE // 2))] * 60, 0)
    small_prefetch = {"queued.max.messages.kbytes": "1024", "queued.min.messages": "1"}
    batches = read(FetchRange(name, 0, 0, 60), using(small_prefetch))
    next(batches)
    delete_topic(admin, name)

    with pytest.raises(DataLossError, match="does not exist"):
        list(batches)


def test_a_topic_deleted_while_it_is_read_is_a_warning_if_asked_for(
    read: Reader, using: MakeSettings, topic: MakeTopic, produce: Produce, admin: AdminClient, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic()
    produce(name, [(None, bytes(MEGABYTE // 2))] * 60, 0)
    small_prefetch = {"queued.max.messages.kbytes": "1024", "queued.min.messages": "1"}
    batches = read(FetchRange(name, 0, 0, 60), using(small_prefetch, fail_on_data_loss=False))
    found = next(batches).column("offset").to_pylist()
    delete_topic(admin, name)

    found += [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    assert found == list(range(len(found)))
    assert f"{name}-0 are lost, offsets [{len(found)}, 60): the topic or the partition does not exist any more" in warnings_of(
        caplog
    )


@pytest.mark.parametrize("fail", [True, False])
def test_a_topic_made_anew_with_less_records_while_it_is_read_is_loss(
    fail: bool,
    read: Reader,
    using: MakeSettings,
    topic: MakeTopic,
    produce: Produce,
    admin: AdminClient,
    cluster: Cluster,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = topic()
    produce(name, [(None, bytes(MEGABYTE // 2))] * 60, 0)
    small_prefetch = {"queued.max.messages.kbytes": "1024", "queued.min.messages": "1"}
    batches = read(FetchRange(name, 0, 0, 60), using(small_prefetch, fail_on_data_loss=fail))
    found = next(batches).column("offset").to_pylist()
    delete_topic(admin, name)
    cluster.create_topic(name)

    if fail:
        with pytest.raises(DataLossError, match=r"\[\d+, 60\)"):
            list(batches)
        return
    found += [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    assert found == list(range(len(found)))
    assert f"[{len(found)}, 60)" in warnings_of(caplog)


def test_a_gap_at_the_start_is_loss_if_the_log_start_has_moved_into_it_meanwhile(
    using: MakeSettings, compacted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of the pure reader only: as if records were deleted between its first look at the bounds and its first Fetch.
    monkeypatch.setattr(reading, "ask_bounds", lambda *_: LogBounds(2, 15))

    with pytest.raises(DataLossError, match=r"\[0, 2\)"):
        list(fetch(FetchRange(compacted, 0, 0, 10), using()))
    assert offsets(fetch, FetchRange(compacted, 0, 2, 10), using()) == [2, 3, 4, 6, 7, 8]


def test_an_end_that_comes_back_is_no_loss(
    read: Reader, using: MakeSettings, topic: MakeTopic, produce: Produce, caplog: pytest.LogCaptureFixture
) -> None:
    # As after a change of leaders: the range was planned by a high watermark that is reached again a moment later.
    name = topic()
    produce(name, numbered(10), 0)
    later = threading.Timer(0.4, lambda: produce(name, numbered(10), 0))
    later.start()

    found = offsets(read, FetchRange(name, 0, 5, 20), using())
    later.join()

    assert found == list(range(5, 20))
    assert not warnings_of(caplog)


# --- Consumers


def test_one_consumer_reads_range_after_range_without_a_stale_record(
    read: Reader, using: MakeSettings, topic: MakeTopic, produce: Produce
) -> None:
    name = topic(partitions=5)
    for partition in range(5):
        produce(name, [(b"p%d" % partition, b"%d" % number) for number in range(40)], partition)
    before = set(consumers._living)
    how = using({"client.id": name})

    for turn in range(50):
        partition, start = turn % 5, turn * 7 % 30
        found = rows(read, FetchRange(name, partition, start, start + 10), how)
        assert [(row["key"], row["value"]) for row in found] == [
            (b"p%d" % partition, b"%d" % number) for number in range(start, start + 10)
        ]

    assert len(set(consumers._living) - before) <= 1


def test_a_task_that_stops_early_leaves_nothing_to_the_next(
    read: Reader, using: MakeSettings, topic: MakeTopic, produce: Produce
) -> None:
    name = topic(partitions=2)
    produce(name, numbered(25_000), 0)
    produce(name, numbered(10), 1)
    batches = read(FetchRange(name, 0, 0, 25_000), using())
    next(batches)
    batches.close()  # type: ignore[attr-defined]

    assert offsets(read, FetchRange(name, 1, 0, 10), using()) == list(range(10))


def test_two_ranges_at_a_time(read: Reader, using: MakeSettings, topic: MakeTopic, produce: Produce) -> None:
    name = topic(partitions=2)
    for partition in range(2):
        produce(name, numbered(21_000), partition)
    pair = [read(FetchRange(name, partition, 0, 21_000), using()) for partition in range(2)]

    batches = [(partition, next(pair[partition])) for _ in range(3) for partition in range(2)]

    assert all(set(batch.column("partition").to_pylist()) == {partition} for partition, batch in batches)
    assert sum(batch.num_rows for _, batch in batches) == 42_000


FORKING = """
import os, sys
from spark_groupsource.fetch.contract import FetchRange, fetch
from spark_groupsource.fetch.settings import BUFFER_BYTES, FetchSettings
from spark_groupsource.options.client_settings import consumer_settings

client = consumer_settings({"bootstrap.servers": sys.argv[1], "group.id": "fork"}, BUFFER_BYTES)
settings = FetchSettings(client, poll_timeout_ms=20000)
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


def test_a_forked_child_fetches_and_ends(cluster: Cluster, topic: MakeTopic, produce: Produce) -> None:
    name = topic()
    produce(name, numbered(10), 0)
    command = [sys.executable, "-W", "ignore", "-c", FORKING, cluster.bootstrap_servers, name]

    done = subprocess.run(command, timeout=30, check=False, capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")


def test_settings_pickle_and_do_not_show_secrets() -> None:
    how = FetchSettings({"sasl.password": "open-sesame"}, include_headers=True)

    assert pickle.loads(pickle.dumps(how)) == how  # noqa: S301
    assert pickle.loads(pickle.dumps(FetchRange("t", 0, 1, 2))) == FetchRange("t", 0, 1, 2)  # noqa: S301
    assert "open-sesame" not in repr(how)


@pytest.mark.parametrize(("start", "end"), [(5, 4), (-1, 4)])
def test_what_is_no_range_is_refused(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="not a range"):
        FetchRange("t", 0, start, end)


# --- Brokers that refuse or are silent


def test_a_broker_that_does_not_answer_is_an_error_in_time(
    read: Reader, using: MakeSettings, topic: MakeTopic, produce: Produce, cluster: Cluster
) -> None:
    name = topic()
    produce(name, [(None, bytes(MEGABYTE // 2))] * 60, 0)
    small_prefetch = {"queued.max.messages.kbytes": "1024", "queued.min.messages": "1"}
    how = using(small_prefetch, poll_timeout_ms=1000)
    begun = read(FetchRange(name, 0, 0, 60), how)
    next(begun)
    cluster.nodes[0].pause()
    try:
        for batches in (begun, read(FetchRange(name, 0, 0, 60), using({"client.id": "fresh"}, poll_timeout_ms=1000))):
            began = time.monotonic()
            with pytest.raises(BrokerUnavailable, match=rf"{name}-0 \[0, 60\).*1000 ms.*bootstrap.servers"):
                list(batches)
            assert 0.5 < time.monotonic() - began < 4
    finally:
        cluster.nodes[0].resume()

    assert offsets(read, FetchRange(name, 0, 58, 60), using(small_prefetch)) == [58, 59]


def test_no_broker_at_all_is_an_error_in_time(read: Reader) -> None:
    nowhere = FetchSettings(
        consumer_settings({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}, BUFFER_BYTES), poll_timeout_ms=500
    )

    with pytest.raises(BrokerUnavailable, match="refused"):
        list(read(FetchRange("any", 0, 7, 8), nowhere))


def test_refused_credentials_are_named_without_the_password(read: Reader, using: MakeSettings, topic: MakeTopic) -> None:
    # The broker of the tests does no SASL: it refuses every mechanism.
    sasl = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": "open-sesame",
    }

    with pytest.raises(AuthenticationFailed, match="sasl") as caught:
        list(read(FetchRange(topic(), 0, 0, 1), using(sasl)))
    assert "open-sesame" not in str(caught.value)


def test_settings_that_librdkafka_refuses_are_named_without_secrets(read: Reader, using: MakeSettings) -> None:
    with pytest.raises(OptionError, match=r"no\.such\.setting"):
        list(read(FetchRange("t", 0, 0, 1), using({"no.such.setting": "1"})))
    with pytest.raises(OptionError) as caught:
        list(read(FetchRange("t", 0, 0, 1), using({"sasl.oauthbearer.method": "open-sesame", "sasl.password": "open-sesame"})))
    assert "open-sesame" not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (KafkaError._AUTHENTICATION, AuthenticationFailed),
        (KafkaError._SSL, AuthenticationFailed),
        (KafkaError.SASL_AUTHENTICATION_FAILED, AuthenticationFailed),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, NotAuthorized),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, NotAuthorized),
        (KafkaError._BAD_MSG, BrokerError),
        (KafkaError._BAD_COMPRESSION, BrokerError),
        (KafkaError._TRANSPORT, None),
        (KafkaError.NOT_LEADER_FOR_PARTITION, None),
    ],
)
def test_what_an_error_means(code: int, expected: type[GroupKafkaError] | None) -> None:
    found = refusal(KafkaError(code), "Reading t-0 [0, 1)")

    assert (None if found is None else type(found)) == expected


@pytest.mark.parametrize(
    ("bounds", "lost", "left"),
    [
        (LogBounds(0, 100), [], (10, 20)),
        (LogBounds(10, 20), [], (10, 20)),
        (LogBounds(12, 100), [(10, 12)], (12, 20)),
        (LogBounds(20, 100), [(10, 20)], (20, 20)),
        (LogBounds(50, 100), [(10, 20)], (20, 20)),
        (LogBounds(0, 15), [(15, 20)], (10, 15)),
        (LogBounds(0, 10), [(10, 20)], (20, 20)),
        (LogBounds(0, 0), [(10, 20)], (20, 20)),
        (LogBounds(12, 15), [(10, 12), (15, 20)], (12, 15)),
        (LogBounds(15, 15), [(10, 15), (15, 20)], (20, 20)),
        (None, [(10, 20)], (20, 20)),
    ],
)
def test_what_is_lost_and_what_is_left(bounds: LogBounds | None, lost: list[tuple[int, int]], left: tuple[int, int]) -> None:
    found = lost_ranges(10, 20, bounds)

    assert [(loss.start, loss.end) for loss in found] == lost
    assert remaining(found, 10, 20) == left
