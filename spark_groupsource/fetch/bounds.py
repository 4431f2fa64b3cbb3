"""Asking a partition's leader where its log starts and ends."""

from __future__ import annotations

import time

from confluent_kafka import KafkaError, KafkaException

from spark_groupsource.errors import BrokerError
from spark_groupsource.fetch.intake import FetchConsumer
from spark_groupsource.fetch.lost_ranges import LogBounds
from spark_groupsource.fetch.refusals import NO_SUCH_PARTITION, most_specific, refusal, timed_out
from spark_groupsource.partition import TopicPartition
from spark_groupsource.patience import Deadline

# A bad answer may come from a broker that has just started or lost the leadership, and librdkafka remembers for some
# 300 ms that a topic does not exist: such an answer is believed when it stays.
_TRIES = 5
_BETWEEN_TRIES_S = 0.25
_SHORTEST_WAIT_S = 0.05
_FIRST_WAIT_S = 1.0


class NoAnswer(Exception):
    """No answer in time, and no reason to give up; `error` is what librdkafka said."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(error.str())
        self.error = error


def ask_bounds(consumer: FetchConsumer, partition: TopicPartition, end: int, timeout_s: float, doing: str) -> LogBounds | None:
    """Return the partition's bounds, or None if there is no such topic or partition.

    An answer by which the log ends before `end` (exclusive) is asked for again before it is believed. `timeout_s` is for
    each request. Raises NoAnswer, or the BrokerError that says why nobody can be asked; its text begins with `doing`.
    """
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(_BETWEEN_TRIES_S)
        bounds = _ask_once(consumer, partition, timeout_s, doing)
        if bounds is not None and bounds.high >= end:
            break
    if bounds is None:
        _raise_unless_gone(consumer, partition, timeout_s, doing)
    return bounds


def wait_for_bounds(
    consumer: FetchConsumer, partition: TopicPartition, end: int, timeout_ms: int, doing: str
) -> LogBounds | None:
    """As `ask_bounds`, but ask for up to `timeout_ms`, then raise the BrokerError of a wait without progress.

    Only for a consumer with nothing assigned: it is polled, so that it tells of refused credentials.
    """
    deadline = Deadline(timeout_ms / 1000)
    wait = _FIRST_WAIT_S
    earlier: dict[int, KafkaError] = {}
    while True:
        earlier.update(consumer.errors)
        consumer.errors.clear()
        try:
            return ask_bounds(consumer, partition, end, max(_SHORTEST_WAIT_S, min(wait, deadline.left)), doing)
        except NoAnswer as silence:
            consumer.serve()
            overdue = deadline.over
            if overdue and not consumer.errors:
                # Some troubles are told every 10 s only: that no token is to be had.
                consumer.errors.update(earlier)
            # A broker that goes down may break off a handshake, which looks like a refusal: one that stays is believed.
            if overdue or wait > _FIRST_WAIT_S:
                raise_if_refused(consumer, doing)
            if overdue:
                raise timed_out(doing, timeout_ms, most_specific(consumer.errors) or silence.error, answers=False) from None
        # A request that is given up has to be sent anew: the next one gets more time, for a broker that is slow.
        wait *= 2
        time.sleep(_SHORTEST_WAIT_S)


def raise_if_refused(consumer: FetchConsumer, doing: str) -> None:
    """Raise what the consumer has told by callback, if waiting cannot mend it (refused credentials above all)."""
    for error in list(consumer.errors.values()):
        refused = refusal(error, doing)
        if refused is not None:
            raise refused


def _raise_unless_gone(consumer: FetchConsumer, partition: TopicPartition, timeout_s: float, doing: str) -> None:
    """librdkafka says that there is no such partition without the ACL DESCRIBE too, and of a broker that comes back: no records
    are gone then."""
    try:
        error = consumer.partition_error(partition, timeout_s)
    except KafkaException as failure:
        raise NoAnswer(failure.args[0]) from None
    if error is None or error.code() not in NO_SUCH_PARTITION:
        error = error or KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
        raise refusal(error, doing) or NoAnswer(error)


def _ask_once(consumer: FetchConsumer, partition: TopicPartition, timeout_s: float, doing: str) -> LogBounds | None:
    try:
        return LogBounds(*consumer.bounds(partition, timeout_s))
    except KafkaException as failure:
        error: KafkaError = failure.args[0]
        if error.code() in NO_SUCH_PARTITION:
            return None
        refused: BrokerError | None = refusal(error, doing)
        if refused is not None:
            raise refused from None
        raise NoAnswer(error) from None
