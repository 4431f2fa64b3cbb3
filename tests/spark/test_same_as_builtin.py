"""What this source shares with Spark's own Kafka source: each scenario runs on both, on the same topics, and is compared.

The scenarios are those of Spark's KafkaMicroBatchSourceSuite, KafkaRelationSuite and KafkaDontFailOnDataLossSuite that a Python
source can express. Where the two differ on purpose, the test says so by name; docs/compatibility.md lists it. Limits of a
micro-batch are in test_same_limits.py, batch reads in test_same_batch_reads.py.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from devtools.broker import Cluster
from spark_groupsource.options.model import Options
from tests.conftest import MakeTopic, Produce
from tests.support.fetching import delete_before
from tests.support.options import NEEDED
from tests.support.pairs import MakePair, Timed, by_partition, numbers
from tests.support.queries import needs_admission_control
from tests.support.waiting import until
from tests.unit.options.test_topic_pattern import READ_ALIKE


def add_partitions(admin: AdminClient, topic: str, count: int) -> None:
    admin.create_partitions([NewPartitions(topic, count)])[topic].result(30)
    until(lambda: len(admin.list_topics(topic, timeout=30).topics[topic].partitions) == count, f"{count} partitions")


STARTS: dict[str, Callable[[str], dict[str, str]]] = {
    "latest": lambda topic: {"subscribePattern": f"{topic}.*", "startingOffsets": "latest"},
    "offsets": lambda topic: {"subscribePattern": f"{topic}.*", "startingOffsets": by_partition(topic, -2, -1, 0, 1, 2)},
    "times": lambda topic: {"subscribe": topic, "startingOffsetsByTimestamp": by_partition(topic, 1000, 2000, 3000, 1, 2001)},
}


@pytest.mark.parametrize("start", [pytest.param("latest", marks=pytest.mark.long), "offsets", "times"])
def test_where_a_stream_starts(pair: MakePair, topic: MakeTopic, admin: AdminClient, timed: Timed, start: str) -> None:
    name = topic(partitions=5)
    timed(name, dict.fromkeys(range(5), (1000, 2000, 3000)))
    both = pair(name, **STARTS[start](name))
    first = both.run()
    assert bool(first) == (start != "latest")
    # While they are stopped, there are more records, and partitions.
    add_partitions(admin, name, 10)
    timed(name, dict.fromkeys(range(10), (4000,)))
    assert len(both.run()) == len(first) + 10


def test_a_time_at_which_there_is_no_record(pair: MakePair, topic: MakeTopic, timed: Timed) -> None:
    name = topic(partitions=2)
    timed(name, {0: (1000, 2000), 1: (1000,)})
    theirs, ours = pair(name, subscribe=name, startingTimestamp="1500").failures()
    assert f"No offset matched from request of topic-partition {name}-1 and timestamp 1500" in theirs
    assert f"startingTimestamp: there is no record in {name}-1 at or after 1500" in ours
    both = pair(f"{name}-latest", subscribe=name, startingTimestamp="1500", startingOffsetsByTimestampStrategy="latest")
    assert [row.value for row in both.run()] == [b"2000"]
    timed(name, {1: (1001,)})
    assert len(both.run()) == 2


@needs_admission_control
@pytest.mark.parametrize("isolation", ["read_committed", pytest.param("read_uncommitted", marks=pytest.mark.long)])
def test_transactions(pair: MakePair, topic: MakeTopic, cluster: Cluster, isolation: str) -> None:
    name = topic()
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(60)
    # Two of them, with their markers, are a micro-batch: gaps and micro-batches of nothing first, in the middle and last.
    for number, commits in enumerate((False, False, True, False, False, False, True, True, False)):
        producer.begin_transaction()
        for each in range(4):
            producer.produce(name, b"%d" % (10 * number + each))
        producer.flush(60)
        if commits:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)
    both = pair(name, subscribe=name, maxOffsetsPerTrigger="10", **{"kafka.isolation.level": isolation})
    assert len(both.run()) == (12 if isolation == "read_committed" else 36)


def test_all_columns_nulls_and_headers(pair: MakePair, topic: MakeTopic, cluster: Cluster) -> None:
    name = topic()
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    headers: list[list[tuple[str, bytes | None]]] = [
        [],
        [("a", b"1"), ("a", b"2"), ("b", None)],
        [("", b""), ("\u00e9\U0001f600", b"\x00\xff")],
    ]
    for number, (key, value) in enumerate(itertools.product((None, b"", b"k"), (None, b"", b"v"))):
        producer.produce(name, value, key, timestamp=1_700_000_000_000 + number, headers=headers[number % 3])  # type: ignore[arg-type]
    assert producer.flush(60) == 0
    # The largest limit does not overflow (SPARK-26718).
    rows = pair(name, subscribe=name, includeHeaders="true", maxOffsetsPerTrigger=str(2**63 - 1)).run()
    read = {tuple(None if one is None else bytes(one) for one in (row.key, row.value)) for row in rows}
    assert read == set(itertools.product((None, b"", b"k"), (None, b"", b"v")))
    assert [row.headers for row in rows].count(None) == 3


def test_columns_that_are_asked_for(pair: MakePair, topic: MakeTopic, cluster: Cluster) -> None:
    """Also of keys and values that are no UTF-8, as `CAST(value AS STRING)` reads them, and with append times."""
    schema = (
        "headers ARRAY<STRUCT<key: STRING, value: BINARY>>, Key STRING, timestampType INT, VALUE BINARY, topic STRING, "
        "timestamp TIMESTAMP, partition INT, offset BIGINT"
    )
    same = "headers", "CAST(key AS STRING) AS Key", "timestampType", "value AS VALUE", "topic", "timestamp", "partition", "offset"

    def with_texts_as_bytes(frame: DataFrame) -> DataFrame:
        return frame.select(*(sf.hex(name).alias(name) if kind == "string" else sf.col(name) for name, kind in frame.dtypes))

    name = topic(partitions=2, config={"message.timestamp.type": "LogAppendTime"})
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    parts = (None, b"", b"text", "\u00e9\U0001f600".encode(), b"\xff\xfe\x80abc", b"\xed\xa0\x80", b"half \xc3")
    for number, (key, value) in enumerate(itertools.product(parts, parts)):
        headers: list[tuple[str, bytes | None]] = [("a", value)] if number % 2 else []
        producer.produce(name, value, key, number % 2, headers=headers)  # type: ignore[arg-type]
    assert producer.flush(60) == 0
    rows = pair(name, with_texts_as_bytes, schema, same, subscribe=name, includeHeaders="true").run()
    assert len(rows) == len(parts) ** 2
    assert {row.timestampType for row in rows} == {1}


@pytest.mark.parametrize("fails", [True, False], ids=["failOnDataLoss", "without"])
def test_records_that_are_deleted_while_the_query_is_stopped(
    pair: MakePair, topic: MakeTopic, produce: Produce, admin: AdminClient, fails: bool
) -> None:
    name = topic()
    produce(name, numbers(10))
    both = pair(name, subscribe=name, failOnDataLoss=str(fails).lower())
    both.run()
    produce(name, numbers(10, 10))
    delete_before(admin, name, 15)
    if fails:
        theirs, ours = both.failures()
        assert "Some data may have been lost" in theirs
        assert "[10, 15)" in ours
        assert "failOnDataLoss" in ours
    else:
        assert sorted(row.offset for row in both.run()) == [*range(10), *range(15, 20)]


def test_topics_that_come_and_go_under_a_pattern(
    pair: MakePair, topic: MakeTopic, produce: Produce, cluster: Cluster, admin: AdminClient
) -> None:
    first = topic()
    both = pair(first, subscribePattern=f"{first}.*", failOnDataLoss="false", **{"kafka.metadata.max.age.ms": "1000"})
    produce(first, numbers(5))
    both.start()
    both.until_rows(5)
    cluster.create_topic(f"{first}-more", 2)
    produce(f"{first}-more", numbers(5, 5))
    both.until_rows(10)
    admin.delete_topics([first])[first].result(30)
    cluster.create_topic(f"{first}-third", 1)
    produce(f"{first}-third", numbers(5, 10))
    both.until_rows(15)
    both.stop()
    assert len(both.same()) == 15


def test_fifty_random_steps_of_topics_partitions_and_records(
    pair: MakePair, topic: MakeTopic, produce: Produce, cluster: Cluster, admin: AdminClient
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    name = topic()
    partitions = {name: 1}
    both = pair(name, subscribePattern=f"{name}.*", **{"kafka.metadata.max.age.ms": "1000"})
    both.start()
    written = 0
    for step in range(50):
        kind = draw.choices(("records", "partitions", "topic"), (8, 1, 1))[0]
        chosen = draw.choice(sorted(partitions))
        if kind == "records":
            count = draw.randrange(1, 20)
            produce(chosen, numbers(count, written))
            written += count
        elif kind == "partitions":
            partitions[chosen] += draw.randrange(1, 3)
            add_partitions(admin, chosen, partitions[chosen])
        else:
            fresh = f"{name}-{step}"
            partitions[fresh] = draw.randrange(1, 4)
            cluster.create_topic(fresh, partitions[fresh])
    both.until_rows(written)
    both.stop()
    assert sorted(int(row.value) for row in both.same()) == list(range(written))


WRONG: dict[str, tuple[dict[str, str], str, str]] = {
    "auto.offset.reset": ({"kafka.auto.offset.reset": "latest"}, "auto.offset.reset", "kafka.auto.offset.reset"),
    "enable.auto.commit": ({"kafka.enable.auto.commit": "true"}, "enable.auto.commit", "kafka.enable.auto.commit"),
    "interceptors": ({"kafka.interceptor.classes": "X"}, "interceptor.classes", "kafka.interceptor.classes"),
    "deserializers": ({"kafka.value.deserializer": "X"}, "value.deserializer", "kafka.value.deserializer"),
    "an end of a stream": ({"endingOffsets": "latest"}, "ending offset not valid", "endingOffsets is for spark.read only"),
}


@pytest.mark.parametrize(("wrong", "theirs", "ours"), WRONG.values(), ids=WRONG)
def test_wrong_options_of_a_stream(pair: MakePair, wrong: dict[str, str], theirs: str, ours: str) -> None:
    both = pair("wrong", **{"subscribe": "any", **wrong})
    for one, text in ((both.theirs, theirs), (both.ours, ours)):
        with pytest.raises(Exception, match=r"(?s).") as caught:
            one.start(availableNow=True).running.awaitTermination()
        assert text in str(caught.value)


def test_a_pattern_matches_the_topics_that_it_matches_in_java(spark: SparkSession) -> None:
    names = {name for _, *both in READ_ALIKE for name in both} | {"a", "-", ".", "_", "^", "d", "ab", "orders", "orders-42a"}
    java = spark._jvm.java.util.regex.Pattern  # type: ignore[union-attr]
    for pattern, *_ in READ_ALIKE:
        options = Options.parse({**NEEDED, "subscribePattern": pattern})
        assert {name for name in names if options.matches(name)} == {name for name in names if java.matches(pattern, name)}
