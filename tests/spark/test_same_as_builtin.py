"""What this source shares with Spark's own Kafka source: each scenario runs on both, on the same topics, and is compared.

The scenarios are those of Spark's KafkaMicroBatchSourceSuite, KafkaRelationSuite and KafkaDontFailOnDataLossSuite that a Python
source can express. Where the two differ on purpose, the test says so by name; docs/compatibility.md lists it.
"""

from __future__ import annotations

import functools
import itertools
import json
import random
from collections.abc import Callable, Mapping, Sequence

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from spark_groupsource.dev_broker import Cluster
from tests.conftest import MakeTopic, Produce
from tests.support.group_offsets import committed_offsets
from tests.support.pairs import Pair, make_pair, ordered, sizes
from tests.support.producing import send
from tests.support.queries import Queries, needs_admission_control, plans_a_batch_read_once
from tests.support.waiting import until

MakePair = Callable[..., Pair]
Timed = Callable[[str, Mapping[int, Sequence[int]]], None]
Read = Callable[..., DataFrame]
Reads = Callable[..., tuple[DataFrame, DataFrame]]


@pytest.fixture
def pair(queries: Queries) -> MakePair:
    """Makes a query over Spark's source, and the same over this one."""
    return functools.partial(make_pair, queries)


@pytest.fixture
def read(spark: SparkSession, cluster: Cluster) -> Read:
    """A batch read by one of the two sources."""

    def make(source: str, topic: str, **options: str) -> DataFrame:
        group = {"kafka.group.id": f"group-of-{topic}"} if source == "groupkafka" else {}
        given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic, **group, **options}
        return spark.read.format(source).options(**given).load()

    return make


@pytest.fixture
def reads(read: Read) -> Reads:
    """A batch read by Spark's source, and the same by this one."""

    def make(topic: str, **options: str) -> tuple[DataFrame, DataFrame]:
        return read("kafka", topic, **options), read("groupkafka", topic, **options)

    return make


@pytest.fixture(scope="module")
def timed(cluster: Cluster) -> Timed:
    """Writes records at given times (ms since 1970) into given partitions; a record's value is its time."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})

    def produce(topic: str, times: Mapping[int, Sequence[int]]) -> None:
        for partition, each in times.items():
            for time in each:
                send(producer, topic, str(time), partition=partition, timestamp=time)
        assert producer.flush(60) == 0

    return produce


def add_partitions(admin: AdminClient, topic: str, count: int) -> None:
    admin.create_partitions([NewPartitions(topic, count)])[topic].result(30)
    until(lambda: len(admin.list_topics(topic, timeout=30).topics[topic].partitions) == count, f"{count} partitions")


def by_partition(topic: str, *values: int) -> str:
    return json.dumps({topic: {str(number): value for number, value in enumerate(values)}})


def numbers(count: int, start: int = 0) -> list[tuple[None, bytes]]:
    return [(None, b"%d" % number) for number in range(start, start + count)]


STARTS: dict[str, Callable[[str], dict[str, str]]] = {
    "latest": lambda _: {"startingOffsets": "latest"},
    "earliest": lambda _: {"startingOffsets": "earliest"},
    "offsets": lambda topic: {"startingOffsets": by_partition(topic, -2, -1, 0, 1, 2)},
    "times of partitions": lambda topic: {"startingOffsetsByTimestamp": by_partition(topic, 1000, 2000, 3000, 1, 2001)},
    "one time": lambda _: {"startingTimestamp": "2000", "startingOffsets": "latest"},
}


@pytest.mark.parametrize(
    ("start", "by_name"),
    list(itertools.product(STARTS, [True, False])),
    ids=lambda value: {True: "name", False: "pattern"}.get(value, value),
)
def test_where_a_stream_starts(
    pair: MakePair,
    topic: MakeTopic,
    admin: AdminClient,
    timed: Timed,
    start: str,
    by_name: bool,
) -> None:
    name = topic(partitions=5)
    timed(name, dict.fromkeys(range(5), (1000, 2000, 3000)))
    subscription = {"subscribe": name} if by_name else {"subscribePattern": f"{name}.*"}
    both = pair(name, **subscription, **STARTS[start](name), failOnDataLoss=str(by_name).lower())
    first = both.run()
    assert bool(first) == (start != "latest")
    # While they are stopped, there are more records, and partitions.
    add_partitions(admin, name, 10)
    timed(name, dict.fromkeys(range(10), (4000,)))
    assert len(both.run()) == len(first) + 10


def test_partitions_that_are_added_while_the_query_runs(
    pair: MakePair, topic: MakeTopic, produce: Produce, admin: AdminClient, cluster: Cluster
) -> None:
    name = topic(partitions=5)
    both = pair(name, subscribe=name, startingOffsets="latest")
    both.start()
    first_offset = both.theirs.folder / "checkpoint" / "sources" / "0" / "0"
    until(lambda: first_offset.exists() and len(committed_offsets(cluster, name, name)) == 5, "both know where they start")
    produce(name, numbers(10))
    both.until_rows(10)
    add_partitions(admin, name, 10)
    for partition in range(10):
        produce(name, numbers(2, 100), partition)
    both.until_rows(30)
    both.stop()
    assert len(both.same()) == 30


def test_a_time_at_which_there_is_no_record(pair: MakePair, topic: MakeTopic, timed: Timed) -> None:
    name = topic(partitions=2)
    timed(name, {0: (1000, 2000), 1: (1000,)})
    theirs, ours = pair(name, subscribe=name, startingTimestamp="1500").failures()
    assert f"No offset matched from request of topic-partition {name}-1 and timestamp 1500" in theirs
    assert f"startingTimestamp: there is no record in {name}-1 from 1500 on" in ours
    both = pair(f"{name}-latest", subscribe=name, startingTimestamp="1500", startingOffsetsByTimestampStrategy="latest")
    assert [row.value for row in both.run()] == [b"2000"]
    timed(name, {1: (1001,)})
    assert len(both.run()) == 2


@needs_admission_control
def test_available_now_reads_in_micro_batches(pair: MakePair, topic: MakeTopic, produce: Produce) -> None:
    name = topic()
    produce(name, numbers(15))
    both = pair(name, subscribe=name, maxOffsetsPerTrigger="5")
    assert len(both.run()) == 15
    assert both.sizes() == [5, 5, 5]


@needs_admission_control
def test_the_limit_is_shared_out_by_lag_and_survives_a_restart(pair: MakePair, topic: MakeTopic, produce: Produce) -> None:
    name = topic(partitions=3)
    for partition, count in enumerate((100, 10, 1)):
        produce(name, numbers(count), partition)
    both = pair(name, subscribe=name, maxOffsetsPerTrigger="10")
    both.start(processingTime="100 milliseconds")
    both.until_batches(3)
    both.stop()
    both.start(availableNow=True)
    both.finish()
    assert len(both.same()) == 111


@needs_admission_control
def test_the_shares_of_partitions_are_the_same_in_each_micro_batch(
    spark: SparkSession, pair: MakePair, topic: MakeTopic, produce: Produce
) -> None:
    name = topic(partitions=3)
    for partition, count in enumerate((1, 10, 100)):
        produce(name, numbers(count), partition)
    shares: dict[str, list[dict[int, int]]] = {}
    both = pair(name, subscribe=name, maxOffsetsPerTrigger="10")
    for one in (both.theirs, both.ours):
        taken = shares.setdefault(one.format, [])

        def take(frame: DataFrame, _batch: int, taken: list[dict[int, int]] = taken) -> None:
            taken.append({row["partition"]: row["count"] for row in frame.groupBy("partition").count().collect()})

        one.start(foreach_batch=take, availableNow=True).running.awaitTermination()
    assert shares["groupkafka"] == shares["kafka"]
    assert shares["kafka"][0] == {0: 1, 1: 1, 2: 9}


@needs_admission_control
def test_trigger_once_ignores_the_limit(pair: MakePair, topic: MakeTopic, produce: Produce) -> None:
    name = topic()
    produce(name, numbers(15))
    both = pair(name, subscribe=name, maxOffsetsPerTrigger="5", minOffsetsPerTrigger="5")
    both.run(once=True)
    assert both.sizes() == [15]


def test_the_largest_limit_does_not_overflow(pair: MakePair, topic: MakeTopic, produce: Produce) -> None:
    name = topic()
    produce(name, numbers(15))
    assert len(pair(name, subscribe=name, maxOffsetsPerTrigger=str(2**63 - 1)).run()) == 15  # SPARK-26718


@pytest.mark.parametrize("most", [None, "12"], ids=["alone", "with a limit"])
def test_a_micro_batch_waits_for_enough_offsets(pair: MakePair, topic: MakeTopic, produce: Produce, most: str | None) -> None:
    name = topic()
    produce(name, numbers(4))
    limit = {} if most is None else {"maxOffsetsPerTrigger": most}
    both = pair(name, subscribe=name, minOffsetsPerTrigger="10", maxTriggerDelay="1h", **limit)
    both.start()
    both.until_rows(4)
    for start in (4, 9, 14):
        produce(name, numbers(5, start))
    both.until_reported(14)
    for one in (both.theirs, both.ours):
        first, *later = sizes(one)
        assert first == 4
        assert min(later) >= 10
    both.stop()


def test_a_micro_batch_comes_when_the_delay_is_over(pair: MakePair, topic: MakeTopic, produce: Produce) -> None:
    name = topic()
    produce(name, numbers(4))
    both = pair(name, subscribe=name, minOffsetsPerTrigger="1000", maxTriggerDelay="3s")
    both.start()
    both.until_rows(4)
    produce(name, numbers(5, 4))
    both.until_reported(9)
    assert both.sizes() == [4, 5]
    both.stop()


@needs_admission_control
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_transactions(pair: MakePair, topic: MakeTopic, cluster: Cluster, isolation: str) -> None:
    name = topic()
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(60)
    # Gaps first, in the middle and last, and micro-batches of nothing.
    for number, commits in enumerate((False, False, True, False, True, True, False, False, False)):
        producer.begin_transaction()
        for each in range(4):
            producer.produce(name, b"%d" % (10 * number + each))
        producer.flush(60)
        if commits:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)
    both = pair(name, subscribe=name, maxOffsetsPerTrigger="5", **{"kafka.isolation.level": isolation})
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
    rows = pair(name, subscribe=name, includeHeaders="true").run()
    read = {tuple(None if one is None else bytes(one) for one in (row.key, row.value)) for row in rows}
    assert read == set(itertools.product((None, b"", b"k"), (None, b"", b"v")))
    assert [row.headers for row in rows].count(None) == 3


def test_log_append_time(pair: MakePair, topic: MakeTopic, produce: Produce) -> None:
    name = topic(config={"message.timestamp.type": "LogAppendTime"})
    produce(name, numbers(3))
    assert {row.timestampType for row in pair(name, subscribe=name).run()} == {1}


@pytest.mark.parametrize(
    ("small", "spark_cuts"),
    # Spark's source cuts by maxRecordsPerPartition in streams only.
    [({"minPartitions": "6"}, 6), ({"maxRecordsPerPartition": "5"}, 3)],
    ids=["minPartitions", "maxRecordsPerPartition"],
)
def test_ranges_that_are_cut_into_more_tasks(
    reads: Reads, pair: MakePair, topic: MakeTopic, produce: Produce, small: dict[str, str], spark_cuts: int
) -> None:
    name = topic(partitions=3)
    for partition in range(3):
        produce(name, numbers(10), partition)
    theirs, ours = reads(name, **small)
    assert ordered(ours.collect()) == ordered(theirs.collect())
    assert (theirs.rdd.getNumPartitions(), ours.rdd.getNumPartitions()) == (spark_cuts, 6)
    assert len(pair(name, subscribe=name, **small).run()) == 30


@pytest.mark.parametrize("fails", [True, False], ids=["failOnDataLoss", "without"])
def test_records_that_are_deleted_while_the_query_is_stopped(
    pair: MakePair, topic: MakeTopic, produce: Produce, admin: AdminClient, fails: bool
) -> None:
    name = topic()
    produce(name, numbers(10))
    both = pair(name, subscribe=name, failOnDataLoss=str(fails).lower())
    both.run()
    produce(name, numbers(10, 10))
    admin.delete_records([TopicPartition(name, 0, 15)])[TopicPartition(name, 0)].result(30)
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


@needs_admission_control
def test_a_windowed_count_with_a_watermark(pair: MakePair, topic: MakeTopic, timed: Timed) -> None:
    def windows(frame: DataFrame) -> DataFrame:
        counted = frame.withWatermark("timestamp", "10 seconds").groupBy(sf.window("timestamp", "5 seconds")).count()
        return counted.selectExpr("window.start AS start", "count")

    name = topic()
    both = pair(name, subscribe=name, transform=windows)
    timed(name, {0: (10_000, 11_000, 12_000, 16_000)})
    both.run()
    timed(name, {0: (31_000,)})
    both.run()
    timed(name, {0: (11_500, 32_000)})
    assert [row["count"] for row in both.run()] == [3, 1]


def test_a_self_join_of_one_frame(pair: MakePair, topic: MakeTopic, produce: Produce) -> None:
    def joined(frame: DataFrame) -> DataFrame:
        one = frame.selectExpr("CAST(CAST(value AS STRING) AS INT) AS number")
        return one.join(one.selectExpr("number * 2 AS number"), "number")

    name = topic(partitions=2)
    produce(name, numbers(10))
    assert [row.number for row in pair(name, subscribe=name, transform=joined).run()] == [0, 2, 4, 6, 8]


@needs_admission_control
def test_options_in_any_case(pair: MakePair, topic: MakeTopic, produce: Produce) -> None:
    name = topic()
    produce(name, numbers(3))
    both = pair(name, SUBSCRIBE=name, STARTINGOFFSETS="EARLIEST", maxoffsetspertrigger="2")
    assert len(both.run()) == 3


WRONG: dict[str, tuple[dict[str, str], str, str]] = {
    "assign and subscribe": ({"subscribePattern": "x"}, "Only one of", "exclude each other"),
    "no topics": ({"subscribe": ","}, "No topics to subscribe to", "names of topics are expected"),
    "auto.offset.reset": ({"kafka.auto.offset.reset": "latest"}, "auto.offset.reset", "kafka.auto.offset.reset"),
    "enable.auto.commit": ({"kafka.enable.auto.commit": "true"}, "enable.auto.commit", "kafka.enable.auto.commit"),
    "interceptors": ({"kafka.interceptor.classes": "X"}, "interceptor.classes", "kafka.interceptor.classes"),
    "deserializers": ({"kafka.value.deserializer": "X"}, "value.deserializer", "kafka.value.deserializer"),
    "minPartitions": ({"minPartitions": "0"}, "minPartitions must be positive", "minPartitions = '0'"),
    "maxRecordsPerPartition": ({"maxRecordsPerPartition": "0"}, "maxrecordsperpartition must be positive", "= '0'"),
    "min above max": (
        {"minOffsetsPerTrigger": "2", "maxOffsetsPerTrigger": "1"},
        "higher than the maxOffsetsPerTrigger",
        "is higher than maxOffsetsPerTrigger",
    ),
    "a time that is none": ({"startingTimestamp": "noon"}, "", "startingTimestamp = 'noon'"),
    "an end of a stream": ({"endingOffsets": "latest"}, "ending offset not valid", "endingOffsets is for spark.read only"),
}


@pytest.mark.parametrize(("wrong", "theirs", "ours"), WRONG.values(), ids=WRONG)
def test_wrong_options_of_a_stream(pair: MakePair, cluster: Cluster, wrong: dict[str, str], theirs: str, ours: str) -> None:
    both = pair("wrong", **{"subscribe": "any", **wrong})
    for one, told in ((both.theirs, theirs), (both.ours, ours)):
        with pytest.raises(Exception, match=r"(?s).") as caught:
            one.start(availableNow=True).running.awaitTermination()
        assert told in str(caught.value)


class TestBatch:
    @pytest.fixture(scope="class")
    @staticmethod
    def hours(cluster: Cluster, timed: Timed) -> str:
        name = "batch-compared"
        cluster.create_topic(name, 3)
        timed(name, {0: range(1000, 7000, 1000), 1: range(1000, 4000, 1000), 2: (5000,)})
        return name

    RANGES: Mapping[str, Callable[[str], dict[str, str]]] = {
        "all": lambda _: {},
        "offsets": lambda t: {"startingOffsets": by_partition(t, -2, 1, 1), "endingOffsets": by_partition(t, 3, -1, 1)},
        "times": lambda t: {
            "startingOffsetsByTimestamp": by_partition(t, 1, 2000, 5000),
            "endingOffsetsByTimestamp": by_partition(t, 3000, 9000, 9000),
        },
        "one time": lambda _: {
            "startingTimestamp": "2000",
            "endingTimestamp": "6000",
            "startingOffsetsByTimestampStrategy": "latest",
        },
        "a time before times": lambda t: {
            "startingTimestamp": "3000",
            "startingOffsetsByTimestamp": by_partition(t, 1, 1, 1),
            "startingOffsets": "earliest",
            "endingTimestamp": "9000",
            "endingOffsets": by_partition(t, 1, 1, 1),
        },
        "no record at the starting time": lambda _: {"startingTimestamp": "3500", "startingOffsetsByTimestampStrategy": "latest"},
    }

    @pytest.mark.parametrize("ranges", RANGES)
    def test_ranges(self, reads: Reads, hours: str, ranges: str) -> None:
        theirs, ours = (ordered(frame.collect()) for frame in reads(hours, **self.RANGES[ranges](hours)))
        assert ours == theirs
        assert ours

    REFUSED: Mapping[str, tuple[Callable[[str], dict[str, str]], str, str]] = {
        "a start at the latest": (lambda _: {"startingOffsets": "latest"}, "can't be latest", "cannot start at the latest"),
        "a partition's start at the latest": (
            lambda t: {"startingOffsets": by_partition(t, -1, 0, 0)},
            "can't be latest",
            "cannot start at the latest",
        ),
        "an end at the earliest": (lambda _: {"endingOffsets": "earliest"}, "can't be earliest", "latest or JSON such as"),
        "a partition's end at the earliest": (
            lambda t: {"endingOffsets": by_partition(t, -2, 0, 0)},
            "can't be earliest",
            "cannot end at the earliest",
        ),
        "a partition that is left out": (
            lambda t: {"startingOffsets": by_partition(t, 0, 0)},
            "Partitions specified for Kafka start offsets don't match",
            "it has to name every partition",
        ),
        "a start above its end": (
            lambda t: {"startingOffsets": by_partition(t, 3, 0, 0), "endingOffsets": by_partition(t, 2, 1, 1)},
            "",
            "startingOffsets (3) is above endingOffsets (2)",
        ),
        "no record at the starting time": (
            lambda _: {"startingTimestamp": "5500"},
            "No offset matched",
            "there is no record in",
        ),
    }

    @pytest.mark.parametrize(("wrong", "theirs", "ours"), REFUSED.values(), ids=REFUSED)
    def test_refusals(self, read: Read, hours: str, wrong: Callable[[str], dict[str, str]], theirs: str, ours: str) -> None:
        for source, told in (("kafka", theirs), ("groupkafka", ours)):
            with pytest.raises(Exception, match=r"(?s).") as caught:
                read(source, hours, **wrong(hours)).collect()
            assert told in str(caught.value)

    @plans_a_batch_read_once
    def test_a_frame_that_is_read_twice_reads_the_same_here_and_what_is_new_there(
        self, reads: Reads, topic: MakeTopic, produce: Produce
    ) -> None:
        name = topic()
        produce(name, numbers(3))
        theirs, ours = reads(name)
        produce(name, numbers(3, 3))
        assert (theirs.count(), ours.count()) == (6, 6), "the end is not fixed before the first action"
        produce(name, numbers(3, 6))
        assert (theirs.count(), ours.count()) == (9, 6)


def test_the_rows_have_the_same_schema(reads: Reads) -> None:
    for headers in ("true", "false"):
        theirs, ours = reads("any", includeHeaders=headers)
        assert ours.schema == theirs.schema
