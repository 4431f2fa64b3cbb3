"""The record batches of the pure reader, made of confluent-kafka's messages."""

from __future__ import annotations

from datetime import datetime, timezone

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE, Message

from spark_groupsource.fetch.arrow_schema import LARGEST_TIMESTAMP_MS, arrow_schema
from spark_groupsource.fetch.pure_consumer import headers_size, size, to_record_batch

ALL = arrow_schema(include_headers=True)


def message(offset: int, *, time: tuple[int, int] = (TIMESTAMP_CREATE_TIME, 1000), **more: object) -> Message:
    return Message(topic="orders", partition=3, offset=offset, timestamp=time, **more)  # type: ignore[arg-type]


def test_a_message_is_a_row_with_the_columns_of_the_schema() -> None:
    batch = to_record_batch("orders", 3, [message(7, key=b"k", value=None, headers=[("a", b"1"), ("a", None)]), message(8)], ALL)
    assert batch.schema.equals(ALL, check_metadata=True)
    assert batch.to_pylist()[0] == {
        "key": b"k",
        "value": None,
        "topic": "orders",
        "partition": 3,
        "offset": 7,
        "timestamp": datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc),
        "timestampType": 0,
        "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
    }
    assert batch.to_pylist()[1]["headers"] is None, "as Spark has it"
    assert to_record_batch("orders", 3, [message(7)], ALL.empty_table().select(["offset"]).schema).to_pylist() == [{"offset": 7}]


def test_a_time_that_is_not_there_and_one_that_does_not_fit() -> None:
    times = [(TIMESTAMP_NOT_AVAILABLE, 0), (TIMESTAMP_CREATE_TIME, 2**62), (TIMESTAMP_CREATE_TIME, -(2**62))]
    batch = to_record_batch("orders", 3, [message(offset, time=time) for offset, time in enumerate(times)], ALL)
    microseconds = batch.column("timestamp").cast("int64").to_pylist()
    assert microseconds == [-1000, LARGEST_TIMESTAMP_MS * 1000, -LARGEST_TIMESTAMP_MS * 1000]
    assert batch.column("timestampType").to_pylist() == [-1, 0, 0]


def test_the_size_of_a_message_is_that_of_what_it_holds() -> None:
    assert size(message(7, key=b"key", value=b"value")) == 8
    assert size(message(7)) == headers_size(message(7)) == 0
    assert headers_size(message(7, headers=[("a", b"123"), ("bc", None)])) == 6
