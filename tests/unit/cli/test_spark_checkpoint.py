"""What is read out of the checkpoint of a query over Spark's own Kafka source, file by file."""

from __future__ import annotations

import json

import pytest

from spark_groupsource.checkpoint.files import without_password
from spark_groupsource.checkpoint.offset_log import source_lines
from spark_groupsource.cli.spark_checkpoint import (
    choose_source,
    kafka_offsets,
    last_batches,
)
from spark_groupsource.errors import OffsetError, OptionError
from spark_groupsource.handoff.plan_offset import PlanOffset
from spark_groupsource.partition import TopicPartition

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1763744384000,"conf":{"spark.sql.shuffle.partitions":"2"}}'
ORDERS = '{"orders":{"1":45,"0":23}}'
BILLS = '{"bills":{"0":7},"more.bills":{"0":0}}'


@pytest.mark.parametrize(
    "text",
    [
        "-",
        "17",
        "{}",
        "[1,2]",
        '{"logOffset":3}',
        '{"0":{"value":1,"runTimeMs":2}}',
        '{"sourceVersion":1,"reservoirId":"x","reservoirVersion":4}',
        '{"orders":{"0":-1}}',
        '{"orders":{"0":1,"0":2}}',
        '{"orders":{"99999999999":1}}',
        '{"orders":{"0":9223372036854775808}}',
        '{"a topic\\u001b":{"0":1}}',
        "[" * 100_000,
    ],
    ids=lambda text: text[:20],
)
def test_an_offset_of_something_else_is_none_of_kafka(text: str) -> None:
    assert kafka_offsets(text) is None


def test_the_first_format_numbers_the_sources_in_the_order_of_the_query() -> None:
    assert source_lines(f'v1\n{METADATA}\n{ORDERS}\n-\n{{"logOffset":3}}') == {"0": ORDERS, "1": "-", "2": '{"logOffset":3}'}
    assert source_lines(f"v1\n\n{ORDERS}\n") == {"0": ORDERS}, "without Spark's settings, and with a line's end"


def test_the_second_format_names_them() -> None:
    assert source_lines(f"v2\n{METADATA}\norders_in:{ORDERS}\n1:-") == {"orders_in": ORDERS, "1": "-"}


@pytest.mark.parametrize("text", ["v3\n{}\n" + ORDERS, "", ORDERS, "v1x", "v2\n\nnothing", "v2\n\na\x1b[2J:{}"])
def test_an_unknown_format_is_not_guessed(text: str) -> None:
    with pytest.raises(OffsetError, match="only v1 and v2 are supported"):
        source_lines(text)


def test_the_only_kafka_source_is_found_among_others() -> None:
    found = choose_source({"0": '{"logOffset":3}', "1": ORDERS, "2": "-"}, None)
    assert found == ("1", {TopicPartition("orders", 0): 23, TopicPartition("orders", 1): 45})


def test_of_several_kafka_sources_one_has_to_be_chosen() -> None:
    lines = {"0": ORDERS, "1": "-", "bills": BILLS}
    with pytest.raises(OptionError, match=r"2 Kafka sources(.|\n)*--source 0  orders\n  --source bills  bills, more.bills"):
        choose_source(lines, None)
    assert choose_source(lines, "bills") == ("bills", {TopicPartition("bills", 0): 7, TopicPartition("more.bills", 0): 0})
    with pytest.raises(OptionError, match=r"--source 1 is not a Kafka source(.|\n)*--source 0"):
        choose_source(lines, "1")


def test_a_checkpoint_of_this_source_has_nothing_to_migrate() -> None:
    ours = PlanOffset.build(stream="alpha", plan=3, generation=1, member="member", group="billing", ranges={})
    with pytest.raises(OffsetError, match="in the consumer group 'billing', so there is nothing to migrate"):
        choose_source({"0": json.dumps(ours.to_json())}, None)


def test_a_checkpoint_without_kafka_says_so() -> None:
    with pytest.raises(OffsetError, match="reads from another source"):
        choose_source({"0": '{"logOffset":3}'}, None)
    with pytest.raises(OffsetError, match="no offset from any source"):
        choose_source({"0": "-"}, None)


def test_nothing_is_carried_over_from_a_checkpoint_that_is_not_whole() -> None:
    with pytest.raises(OffsetError, match="no committed micro-batch"):
        last_batches({0}, set())
    with pytest.raises(OffsetError, match="it has the file commits/7, but not offsets/7"):
        last_batches({5, 6}, {5, 6, 7})


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("s3://key:secret@bucket/x", "s3://***@bucket/x"),
        ("'s3://key:sec/r@et@bucket/x' at (position 13)", "'s3://***@bucket/x' at (position 13)"),
        ("s3://AKIA:123/abcsecret@bucket/x cannot be read", "s3://***@bucket/x cannot be read"),
        ("s3a://A:b secret@x/y cannot be read", "s3a://***@x/y cannot be read"),
        ("s3a:/A:secret@h/x cannot be read", "s3a:/***@h/x cannot be read"),
        ("abfss://c@a.example/x?sig=secret cannot be read", "abfss://c@a.example/x?*** cannot be read"),
        ("s3a://A%3Asecret@b/x", "s3a://***@b/x"),
        ("hdfs://u:123/secret@host/x cannot be read", "hdfs://***@host/x cannot be read"),
        ("hdfs://u:123/sec@ret@host/x", "hdfs://***@host/x"),
        ("hdfs://me@corp:secret@host:8020/x", "hdfs://***@host:8020/x"),
        ("hdfs://u%3asecret@host/x", "hdfs://***@host/x"),
        ("hdfs://u:secret%40host/x", "hdfs://***@host/x"),
        ("hdfs://u:my secret@host/x", "hdfs://***@host/x"),
        ("hdfs:/u:secret@host/x", "hdfs:/***@host/x"),
        ("hdfs://:secret@host/x", "hdfs://***@host/x"),
        ("abfss://c@a.example/x y?sig=secret cannot be read", "abfss://c@a.example/x y?*** cannot be read"),
        # This may be a port and a path, or a password with a slash.
        ("hdfs://host:8020/checkpoints/a@b", "hdfs://***@b"),
        ("hdfs://host:8020/x cannot be read: alice@REALM may not", "hdfs://host:8020/x cannot be read: alice@REALM may not"),
        ("hdfs://alice@host/x", "hdfs://alice@host/x"),
        ("file:/data/a:b@c", "file:/data/a:b@c"),
        ("s3://bucket/at:noon@home", "s3://bucket/at:noon@home"),
        ("abfss://data@account.dfs.core.windows.net/x", "abfss://data@account.dfs.core.windows.net/x"),
        ("/data/checkpoints/billing", "/data/checkpoints/billing"),
    ],
)
def test_no_secret_of_a_uri_is_shown(location: str, expected: str) -> None:
    assert without_password(location) == expected
