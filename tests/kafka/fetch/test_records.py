"""Readers return exactly the records of a range, in batches of limited size."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, Message, Producer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from devtools.broker import Cluster
from spark_groupsource.errors import SchemaError
from spark_groupsource.fetch import native_consumer as native
from spark_groupsource.fetch import pure_consumer as pure
from spark_groupsource.fetch.arrow_schema import arrow_schema
from spark_groupsource.fetch.contract import FetchRange, FetchSettings, Reader
from spark_groupsource.sink.native_producer import NativeProducer
from tests.conftest import MakeTopic, Produce
from tests.kafka.conftest import Filled
from tests.support.fetching import MEGABYTE, NATIVE, NOWHERE, Headers, MakeSettings, rows
from tests.support.producing import IN_ORDER, numbered

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


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


def test_an_empty_range_gives_nothing_and_asks_no_broker(read: Reader) -> None:
    nowhere = FetchSettings(NOWHERE, arrow_schema(False), poll_timeout_ms=1)

    assert rows(read, FetchRange("any", 0, 7, 7), nowhere) == []


def test_every_codec_and_values_of_1_mb(read: Reader, using: MakeSettings, topic: MakeTopic, cluster: Cluster) -> None:
    name = topic(config={"max.message.bytes": str(8 * MEGABYTE)})
    values = [b"small", os.urandom(MEGABYTE), b"z" * MEGABYTE, b"", os.urandom(5 * MEGABYTE), b"last"]
    for codec in CODECS:
        producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "compression.codec": codec,
                "message.max.bytes": 8 * MEGABYTE,
                "linger.ms": 20,
                **IN_ORDER,
            }
        )
        for value in values:
            producer.produce(name, value, b"k", 0)
        assert producer.flush(30) == 0

    found = rows(read, FetchRange(name, 0, 0, len(CODECS) * len(values)), using())
    assert [row["value"] for row in found] == values * len(CODECS)


@NATIVE
def test_a_header_whose_key_is_not_utf_8(using: MakeSettings, topic: MakeTopic, cluster: Cluster) -> None:
    name = topic()
    raw = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
    headers = pa.array([None, [{"key": b"a\xff", "value": b"1"}]], raw)
    producer = NativeProducer({"bootstrap.servers": cluster.bootstrap_servers, "queue.buffering.max.kbytes": "1024"}, name)
    producer.write(pa.record_batch({"value": pa.array([b"v", b"w"]), "headers": headers}))
    producer.flush()
    producer.close()
    what = FetchRange(name, 0, 0, 2)

    found = rows(native.read, what, using(include_headers=True))
    assert [row["headers"] for row in found] == [None, [{"key": "a\N{REPLACEMENT CHARACTER}", "value": b"1"}]]
    with pytest.raises(SchemaError, match=rf"{name}-0: the record at offset 1 has a header.*native"):
        rows(pure.read, what, using(include_headers=True))
    assert [row["value"] for row in rows(pure.read, what, using())] == [b"v", b"w"]


NUL_KEYS = ("a\0b", "\0", "a\0", "\0\0z", "whole", "")


@NATIVE
def test_a_nul_in_a_headers_key_is_read_with_what_follows(using: MakeSettings, topic: MakeTopic, cluster: Cluster) -> None:
    """The pure reader cannot see it: confluent-kafka ends the key there."""
    name = topic()
    headers = [[{"key": key, "value": value}] for key in NUL_KEYS for value in (None, b"", b"v\0w")]
    headers.append([each[0] for each in headers])
    with_nul = pa.array(headers, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    producer = NativeProducer({"bootstrap.servers": cluster.bootstrap_servers, "queue.buffering.max.kbytes": "1024"}, name)
    producer.write(pa.record_batch({"value": pa.array([b"v"] * len(headers)), "headers": with_nul}))
    producer.flush()
    producer.close()
    what = FetchRange(name, 0, 0, len(headers))

    assert [row["headers"] for row in rows(native.read, what, using(include_headers=True))] == headers
    cut = [[{**each, "key": str(each["key"]).split("\0")[0]} for each in of_record] for of_record in headers]
    assert [row["headers"] for row in rows(pure.read, what, using(include_headers=True))] == cut


def test_a_timestamp_beyond_sparks_range_is_the_nearest_within_it(
    read: Reader, using: MakeSettings, topic: MakeTopic, cluster: Cluster
) -> None:
    any_time = {"message.timestamp.before.max.ms": str(2**63 - 1), "message.timestamp.after.max.ms": str(2**63 - 1)}
    name = topic(config=any_time)
    largest = (2**63 - 1) // 1000
    within_ms = [1, 1_234_567_890_123, int(time.time() * 1000)]
    times_ms = [*within_ms, largest, largest + 1, 2**62, -largest, -largest - 1, -(2**62)]
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for time_ms in times_ms:
        producer.produce(name, b"v", partition=0, timestamp=time_ms)
        assert producer.flush(30) == 0

    table = pa.Table.from_batches(read(FetchRange(name, 0, 0, len(times_ms)), using()))

    expected = [time_ms * 1000 for time_ms in within_ms] + [largest * 1000] * 3 + [-largest * 1000] * 3
    assert table.column("timestamp").cast(pa.int64()).to_pylist() == expected
    assert set(table.column("timestampType").to_pylist()) == {0}


def test_log_append_time(read: Reader, using: MakeSettings, topic: MakeTopic, cluster: Cluster) -> None:
    name = topic(config={"message.timestamp.type": "LogAppendTime"})
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce(name, b"v", partition=0, timestamp=1_000)
    assert producer.flush(10) == 0

    (found,) = rows(read, FetchRange(name, 0, 0, 1), using())

    assert abs(found["timestamp"] - datetime.now(timezone.utc)) < timedelta(minutes=1)
    assert found["timestampType"] == 1


def test_a_task_holds_no_more_than_its_buffer(read: Reader, using: MakeSettings, filled: Filled) -> None:
    value = os.urandom(10_000)
    name = filled(count=2_000, value=value)
    how = using(buffer_bytes=MEGABYTE)

    sizes = [batch.num_rows * len(value) for batch in read(FetchRange(name, 0, 0, 2_000), how)]

    assert sum(sizes) == 2_000 * len(value)
    assert max(sizes) <= how.batch_bytes <= MEGABYTE // 8
    assert int(how.client["queued.max.messages.kbytes"]) * 1024 + 3 * how.batch_bytes < MEGABYTE


binary = st.none() | st.just(b"") | st.binary(max_size=30)

# confluent-kafka's producer ends a header's key at a NUL; tests/unit/fetch/test_native_consumer.py has any keys.
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
    return topic(), Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0, **IN_ORDER})


@NATIVE
def test_both_readers_give_the_same_rows(using: MakeSettings, topic: MakeTopic, cluster: Cluster) -> None:
    chance = random.Random("zstd")
    name = topic(config={"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "compression.codec": "zstd", "linger.ms": 20})
    count = 11_000
    now_ms = int(time.time() * 1000)

    def refuse(error: KafkaError | None, _message: Message) -> None:
        assert error is None

    # Of each producer batch some records are alike, so that the codec has something to do.
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
