"""Records that clients of today seldom write, compared with Spark's own Kafka source."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame

from devtools.broker import Cluster
from spark_groupsource.sink.native_producer import NativeProducer
from tests.conftest import MakeTopic
from tests.support.fetching import NATIVE
from tests.support.queries import Read, assert_same_rows
from tests.support.written_logs import OLD_RECORDS, broker_with_old_records

DAY_MS = 24 * 3600 * 1000


def micros(frame: DataFrame) -> list[int]:
    return [row[0] for row in frame.orderBy("offset").selectExpr("unix_micros(timestamp)").collect()]


def test_a_time_before_the_gregorian_calendar(read: Read, topic: MakeTopic, cluster: Cluster) -> None:
    name = topic(config={"message.timestamp.before.max.ms": str(2**63 - 1)})
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    days = [datetime(*day, tzinfo=timezone.utc) for day in ((1582, 10, 15), (1582, 10, 14), (1000, 1, 1), (1, 1, 1))]
    times_ms = [(day - epoch) // timedelta(milliseconds=1) for day in days]
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for time_ms in times_ms:
        producer.produce(name, b"v", timestamp=time_ms)
        assert producer.flush(60) == 0

    theirs, ours = (micros(read(name, source=source)) for source in ("kafka", "groupkafka"))

    assert ours == [time_ms * 1000 for time_ms in times_ms]
    off_days = [(their - our) / 1000 / DAY_MS for their, our in zip(theirs, ours, strict=True)]
    assert off_days[0] == 0
    assert all(off_days[1:]), off_days


@NATIVE
def test_headers_keys_with_a_nul(read: Read, topic: MakeTopic, cluster: Cluster) -> None:
    name = topic()
    headers = [[{"key": key, "value": value} for value in (None, b"", b"v")] for key in ("a\0b", "\0", "\0\0")]
    with_nul = pa.array(headers, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    producer = NativeProducer({"bootstrap.servers": cluster.bootstrap_servers, "queue.buffering.max.kbytes": "1024"}, name)
    producer.write(pa.record_batch({"value": pa.array([b"v"] * len(headers)), "headers": with_nul}))
    producer.flush()
    producer.close()

    rows = assert_same_rows(*(read(name, source=source, includeHeaders="true") for source in ("kafka", "groupkafka")))

    read_keys = [[header.key for header in row.headers] for row in sorted(rows, key=lambda row: row.offset)]
    assert read_keys == [[header["key"] for header in of_record] for of_record in headers]


@pytest.mark.long
def test_records_of_old_message_formats(read: Read, tmp_path: Path) -> None:
    with broker_with_old_records(tmp_path) as cluster:
        last = len(OLD_RECORDS) - 1
        there = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
        theirs, ours = (read("old", source=source, **there).where(f"offset < {last}") for source in ("kafka", "groupkafka"))
        rows = assert_same_rows(theirs, ours)
        assert len(rows) == last
        assert {row.timestampType for row in rows} == {-1, 0, 1}
