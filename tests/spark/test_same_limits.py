"""How much a micro-batch reads, and when, compared with Spark's own Kafka source."""

from __future__ import annotations

from collections import Counter
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import DataFrame

from devtools.broker import Cluster
from tests.conftest import MakeTopic, Produce
from tests.support.pairs import MakePair, numbers, sizes
from tests.support.queries import needs_admission_control


@needs_admission_control
def test_the_limit_is_shared_out_by_lag_and_survives_a_restart(pair: MakePair, topic: MakeTopic, produce: Produce) -> None:
    name = topic(partitions=3)
    for partition, count in enumerate((1, 10, 60)):
        produce(name, numbers(count), partition)
    both = pair(name, subscribe=name, maxOffsetsPerTrigger="10")
    theirs: dict[int, list[tuple[int, int]]] = {}
    ours: dict[int, list[tuple[int, int]]] = {}

    def start(**trigger: Any) -> None:
        for one, taken in ((both.theirs, theirs), (both.ours, ours)):

            def take(frame: DataFrame, batch: int, taken: dict[int, list[tuple[int, int]]] = taken) -> None:
                taken[batch] = sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())

            one.start(foreach_batch=take, **trigger)

    start(processingTime="100 milliseconds")
    both.until_reported(25)
    both.stop()
    start(availableNow=True)
    both.finish()
    # An expelled member, on a busy machine, has a micro-batch without rows.
    assert [rows for rows in ours.values() if rows] == list(theirs.values())
    assert sum(map(len, ours.values())) == 71
    assert Counter(partition for partition, _ in ours[0]) == {0: 1, 1: 1, 2: 8}


@needs_admission_control
def test_trigger_once_ignores_the_limit(pair: MakePair, topic: MakeTopic, produce: Produce) -> None:
    name = topic()
    produce(name, numbers(15))
    both = pair(name, subscribe=name, maxOffsetsPerTrigger="5", minOffsetsPerTrigger="5")
    both.run(once=True)
    assert both.sizes() == [15]


def test_a_micro_batch_waits_for_enough_offsets(pair: MakePair, topic: MakeTopic, produce: Produce) -> None:
    name = topic()
    produce(name, numbers(4))
    both = pair(name, subscribe=name, minOffsetsPerTrigger="10", maxTriggerDelay="1h")
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


def test_a_micro_batch_comes_when_the_delay_is_over(pair: MakePair, topic: MakeTopic, produce: Produce, cluster: Cluster) -> None:
    name = topic()
    produce(name, numbers(4))
    both = pair(name, subscribe=name, minOffsetsPerTrigger="1000", maxTriggerDelay="3s")
    both.start()
    both.until_rows(4)
    # In one request: the delay may be over between two. A flush does not linger.
    at_once = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 60_000})
    for _, value in numbers(5, 4):
        at_once.produce(name, value)
    assert at_once.flush(60) == 0
    both.until_reported(9)
    assert both.sizes() == [4, 5]
    both.stop()
