"""Whether positions are validated. tests/kafka/query/losses/test_fallen_logs.py has logs that were cut off."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from devtools.broker import Cluster
from spark_groupsource.brokers import truncations as module
from spark_groupsource.brokers.truncations import Truncations, Validated
from spark_groupsource.errors import BrokerUnavailable
from spark_groupsource.partition import TopicPartition
from spark_groupsource.timeouts import REQUEST_TIMEOUT_S
from tests.kafka.conftest import Filled
from tests.support.fetching import delete_before


@pytest.fixture
def truncations(cluster: Cluster) -> Truncations:
    return Truncations({"bootstrap.servers": cluster.bootstrap_servers}, "validates", patience_s=5.0)


def test_each_position_is_validated_by_its_leader(truncations: Truncations, filled: Filled, admin: AdminClient) -> None:
    name = filled(partitions=5, count=10)
    at_the_end, below, expired, beyond, of_no_epoch = (TopicPartition(name, number) for number in range(5))
    delete_before(admin, name, 5, expired.partition)
    ends = dict.fromkeys((at_the_end, below, expired, beyond, of_no_epoch), 10)
    positions = {at_the_end: (10, 0), below: (4, 0), expired: (3, 0), beyond: (30, 0), of_no_epoch: (7, 5)}
    assert truncations.below(positions, ends, dict.fromkeys(ends, 1)) == Validated({beyond: 10, of_no_epoch: None})
    # A leader that has later epochs, and does not know this one, keeps none for old records.
    assert truncations.below({of_no_epoch: (7, 5)}, ends, {of_no_epoch: 6}) == Validated()


def test_many_partitions_with_a_backlog_are_validated_at_once(
    truncations: Truncations, topic: Callable[..., str], cluster: Cluster
) -> None:
    """A broker gives the first batch of one partition only, where batches are larger than a Fetch may take of each."""
    name = topic(partitions=40)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 100})
    for partition in range(40):
        for _ in range(3):
            producer.produce(name, b"x" * 30_000, partition=partition)
    producer.flush()
    every = [TopicPartition(name, number) for number in range(40)]
    began = time.monotonic()
    assert truncations.below(dict.fromkeys(every, (0, 0)), dict.fromkeys(every, 3), dict.fromkeys(every, 1)) == Validated()
    assert time.monotonic() - began < REQUEST_TIMEOUT_S


def test_what_is_valid_is_not_asked_for_again_until_the_leader_changes(
    truncations: Truncations, filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    ask: Callable[..., dict[TopicPartition, int]] = Truncations._ask

    def counted(
        self: Truncations, positions: Mapping[TopicPartition, tuple[int, int]], *ends: object
    ) -> dict[TopicPartition, int]:
        asked.append(len(positions))
        return ask(self, positions, *ends)

    monkeypatch.setattr(Truncations, "_ask", counted)
    monkeypatch.setattr(module, "ASK_AGAIN_S", 0.0)
    name = filled(partitions=2, count=10)
    first, second = (TopicPartition(name, number) for number in range(2))
    ends = {first: 10, second: 10}
    positions = {first: (10, 0), second: (30, 0)}
    for _ in range(2):
        assert truncations.below(positions, ends, {first: 1, second: 1}) == Validated({second: 10})
    assert asked == [2, 1], "the one that was cut off is asked for until that is believed"
    assert truncations.below({first: (10, 0)}, ends, {first: 2}) == Validated()
    assert asked == [2, 1, 1]
    assert truncations.below({}, {}, {}) == Validated()


def test_a_partition_that_does_not_answer_is_unknown(
    truncations: Truncations, filled: Filled, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "REQUEST_TIMEOUT_S", 3.0)
    name = filled(count=10)
    known, missing = TopicPartition(name, 0), TopicPartition(name, 7)
    monkeypatch.setattr(module, "ASK_AGAIN_S", 0.0)
    asked = {known: (10, 0), missing: (10, 0)}, {known: 10, missing: 10}, {known: 1, missing: 1}
    assert truncations.below(*asked) == Validated({}, frozenset({missing}))
    with pytest.raises(BrokerUnavailable, match=f"The leader of {missing} has not answered for [5-9] s, so it is not known"):
        truncations.below(*asked)
    silent = f"the leaders of {missing} have not confirmed that their logs still contain the records that the query has read"
    assert silent in caplog.text
