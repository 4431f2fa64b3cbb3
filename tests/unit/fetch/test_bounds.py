"""When a task believes that a log ends below its range: not from a leader that was looked up long ago, and not at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from spark_groupsource.fetch.bounds import ASK_BOUNDS_S, NoAnswer, ask_bounds, wait_for_bounds
from spark_groupsource.fetch.contract import FetchConsumer, Throttling
from spark_groupsource.fetch.lost_ranges import LogBounds
from spark_groupsource.partition import TopicPartition
from spark_groupsource.timeouts import CUT_BELIEVED_AFTER_S

ORDERS = TopicPartition("orders", 0)


@dataclass
class Leaders:
    """The leader in librdkafka's cache answers; a look-up replaces it by the leader of that moment."""

    end_after_look_up: int = 10
    reachable: bool = True
    end: int = 10
    look_ups: int = 0

    def bounds(self, _partition: TopicPartition, _timeout_s: float) -> tuple[int, int]:
        return 0, self.end

    def partition_error(self, _partition: TopicPartition, _timeout_s: float) -> None:
        self.look_ups += 1
        if not self.reachable:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        self.end = self.end_after_look_up


def ask(leaders: Leaders, end: int) -> LogBounds | None:
    return ask_bounds(cast(FetchConsumer, leaders), ORDERS, end, 1.0, "Reading", CUT_BELIEVED_AFTER_S)


def test_a_low_end_of_a_cached_leader_is_asked_of_the_leader_of_now(clock: SimpleNamespace) -> None:
    leaders = Leaders(end_after_look_up=20)
    assert ask(leaders, 20) == LogBounds(0, 20)
    assert leaders.look_ups == 1


def test_a_low_end_is_believed_after_the_session_of_a_broker(clock: SimpleNamespace) -> None:
    leaders = Leaders()
    assert ask(leaders, 20) == LogBounds(0, 10)
    assert clock.s >= 12.0
    assert leaders.look_ups > 10


def test_a_low_end_is_not_believed_while_no_broker_names_the_leader(clock: SimpleNamespace) -> None:
    with pytest.raises(NoAnswer):
        ask(Leaders(reachable=False), 20)
    assert clock.s >= 12.0


def test_an_end_that_is_high_enough_is_not_looked_up(clock: SimpleNamespace) -> None:
    leaders = Leaders()
    assert ask(leaders, 10) == LogBounds(0, 10)
    assert (clock.s, leaders.look_ups) == (0.0, 0)


@dataclass
class Refusing:
    """A leader that is asked some times before it answers. Each request takes a part of the time that it may take."""

    clock: SimpleNamespace
    takes: float
    fails: int = 8
    limits_s: list[float] = field(default_factory=list)
    errors: dict[int, KafkaError] = field(default_factory=dict)
    answered: set[TopicPartition] = field(default_factory=set)
    throttling: Throttling = field(default_factory=Throttling)

    def serve(self) -> None:
        """Report nothing."""

    def bounds(self, _partition: TopicPartition, timeout_s: float) -> tuple[int, int]:
        self.limits_s.append(timeout_s)
        self.clock.s += self.takes * timeout_s
        if len(self.limits_s) > self.fails:
            return 0, 10
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))


def limits(clock: SimpleNamespace, takes: float) -> list[float]:
    leader = Refusing(clock, takes)
    assert wait_for_bounds(cast(FetchConsumer, leader), ORDERS, 10, 3_600_000, "Reading", {}) == LogBounds(0, 10)
    return leader.limits_s


def test_requests_that_time_out_are_repeated_with_more_time(clock: SimpleNamespace) -> None:
    assert limits(clock, takes=1.0) == [ASK_BOUNDS_S * 2**sent for sent in range(9)]


def test_requests_that_fail_at_once_are_repeated_with_the_same_time(clock: SimpleNamespace) -> None:
    """Otherwise a request that waits after some refused connections would take the whole time of the task."""
    assert limits(clock, takes=0.1) == [ASK_BOUNDS_S] * 9
