"""What `spark.read` gives, compared with Spark's own Kafka source."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from pyspark.sql import DataFrame

from devtools.broker import Cluster
from tests.conftest import MakeTopic, Produce
from tests.support.pairs import Timed, by_partition, numbers
from tests.support.queries import Read, assert_same_rows, plans_a_batch_read_once

Reads = Callable[..., tuple[DataFrame, DataFrame]]


@pytest.fixture
def reads(read: Read) -> Reads:
    """A batch read by Spark's source, and the same by this one."""

    def make(topic: str, **options: str) -> tuple[DataFrame, DataFrame]:
        return read(topic, source="kafka", **options), read(topic, **options)

    return make


@pytest.fixture(scope="module")
def hours(cluster: Cluster, timed: Timed) -> str:
    name = "batch-compared"
    cluster.create_topic(name, 3)
    timed(name, {0: range(1000, 7000, 1000), 1: range(1000, 4000, 1000), 2: (5000,)})
    return name


@pytest.mark.parametrize(
    ("small", "spark_cuts"),
    # Spark's source cuts by maxRecordsPerPartition in streams only.
    [({"minPartitions": "6"}, 6), ({"maxRecordsPerPartition": "5"}, 3)],
    ids=["minPartitions", "maxRecordsPerPartition"],
)
def test_ranges_that_are_cut_into_more_tasks(
    reads: Reads, topic: MakeTopic, produce: Produce, small: dict[str, str], spark_cuts: int
) -> None:
    name = topic(partitions=3)
    for partition in range(3):
        produce(name, numbers(10), partition)
    theirs, ours = reads(name, **small)
    assert len(assert_same_rows(theirs, ours)) == 30
    assert (theirs.rdd.getNumPartitions(), ours.rdd.getNumPartitions()) == (spark_cuts, 6)


RANGES: Mapping[str, Callable[[str], dict[str, str]]] = {
    "offsets": lambda t: {"startingOffsets": by_partition(t, -2, 1, 1), "endingOffsets": by_partition(t, 3, -1, 1)},
    "times": lambda t: {
        "startingOffsetsByTimestamp": by_partition(t, 1, 2000, 5000),
        "endingOffsetsByTimestamp": by_partition(t, 3000, 9000, 9000),
    },
    "one time": lambda _: {
        "startingTimestamp": "3500",
        "endingTimestamp": "6000",
        "startingOffsetsByTimestampStrategy": "latest",
    },
}


@pytest.mark.parametrize("ranges", RANGES)
def test_ranges(reads: Reads, hours: str, ranges: str) -> None:
    rows = assert_same_rows(*reads(hours, **RANGES[ranges](hours)))
    assert rows


REFUSED: Mapping[str, tuple[Callable[[str], dict[str, str]], str, str]] = {
    "a start at the latest": (lambda _: {"startingOffsets": "latest"}, "can't be latest", "cannot start at latest"),
    "a partition that is left out": (
        lambda t: {"startingOffsets": by_partition(t, 0, 0)},
        "Partitions specified for Kafka start offsets don't match",
        "it must name every partition",
    ),
    "a start above its end": (
        lambda t: {"startingOffsets": by_partition(t, 3, 0, 0), "endingOffsets": by_partition(t, 2, 1, 1)},
        "",
        "startingOffsets (3) is above endingOffsets (2)",
    ),
    "no record at the starting time": (lambda _: {"startingTimestamp": "5500"}, "No offset matched", "there is no record in"),
}


@pytest.mark.parametrize(("wrong", "theirs", "ours"), REFUSED.values(), ids=REFUSED)
def test_refusals(read: Read, hours: str, wrong: Callable[[str], dict[str, str]], theirs: str, ours: str) -> None:
    for source, text in (("kafka", theirs), ("groupkafka", ours)):
        with pytest.raises(Exception, match=r"(?s).") as caught:
            read(hours, source=source, **wrong(hours)).collect()
        assert text in str(caught.value)


@plans_a_batch_read_once
def test_a_frame_that_is_read_twice_reads_the_same_here_and_what_is_new_there(
    reads: Reads, topic: MakeTopic, produce: Produce
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
