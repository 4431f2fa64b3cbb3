"""How much a micro-batch reads, and when, compared with Spark's own Kafka source."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.conftest import MakeTopic, Produce
from tests.support.pairs import MakePair, numbers, sizes
from tests.support.queries import needs_admission_control


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
