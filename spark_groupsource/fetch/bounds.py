"""Asks a partition's leader for the log's bounds: the offsets where the log starts and ends."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException

from spark_groupsource.fetch.contract import FetchConsumer
from spark_groupsource.fetch.lost_ranges import LogBounds
from spark_groupsource.fetch.refusals import NO_SUCH_PARTITION, most_specific, refusal, throttled, timed_out
from spark_groupsource.partition import TopicPartition
from spark_groupsource.patience import Deadline
from spark_groupsource.timeouts import ADDRESSES_TRIED_AFTER_S, cut_believed_after_s

ASK_BOUNDS_S = 1.0
"""The timeout for a request for a log's bounds. Before anything has been read, a request that times out is repeated with twice
the timeout, because the broker may be slow."""

BOUNDS_SHORTEST_WAIT_S = 0.05
"""The shortest timeout for a request for a log's bounds, used when the task is almost out of time."""

BOUNDS_PAUSE_S = 0.25
"""The pause between two requests for a log's bounds, and before the request when a partition ends before the range does: the
leader may just have moved."""

_TRIES = 5
"""How many times brokers must answer that a topic or partition does not exist before the task accepts this.

A broker that has just started may give the same answer, and librdkafka caches answers for about 300 ms.
"""


class NoAnswer(Exception):
    """No broker answered in time, but the task may ask again. `error` is librdkafka's error."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(error.str())
        self.error = error


def ask_bounds(
    consumer: FetchConsumer, partition: TopicPartition, end: int, timeout_s: float, doing: str, believe_after_s: float
) -> LogBounds | None:
    """Return the bounds of a partition's log, or None if the topic or the partition does not exist.

    Args:
        consumer: Sends the requests.
        partition: The partition.
        end: Where the log should end, exclusive. While the log ends below it, the leader is looked up and asked again.
        timeout_s: The timeout for each request, in s.
        doing: What the task is doing. Error messages begin with it.
        believe_after_s: How long the log must have ended below `end` before these bounds are returned, in s.

    Raises:
        NoAnswer: No broker answered, or no broker confirmed the leader that returned an end below `end`.
        BrokerError: The brokers refuse the request, and would refuse it again.
    """
    missing = 0
    cut_since: float | None = None
    doubt: KafkaError | None = None
    while True:
        bounds = _ask_once(consumer, partition, timeout_s, doing)
        if bounds is None:
            missing += 1
            if missing == _TRIES:
                _raise_unless_deleted(consumer, partition, timeout_s, doing)
                return None
        elif bounds.high >= end:
            return bounds
        else:
            now = time.monotonic()
            if cut_since is None:
                cut_since = now
            elif now - cut_since >= believe_after_s:
                # If the leader is not confirmed, the answer may come from one that was replaced. Accepting it would mean giving
                # up records that still exist.
                if doubt is not None:
                    raise NoAnswer(doubt)
                return bounds
            doubt = _look_up_leader(consumer, partition, timeout_s)
        time.sleep(BOUNDS_PAUSE_S)


def wait_for_bounds(
    consumer: FetchConsumer, partition: TopicPartition, end: int, timeout_ms: int, doing: str, client: Mapping[str, str]
) -> LogBounds | None:
    """Ask for the bounds of a partition's log, as `ask_bounds` does, but retry for up to `timeout_ms`.

    Use this only for a consumer without an assignment: polling, which reports refused credentials, would drop its records.

    Args:
        consumer: Sends the requests.
        partition: The partition.
        end: Where the log should end, exclusive.
        timeout_ms: How long to keep asking, in ms.
        doing: What the task is doing. Error messages begin with it.
        client: The consumer's settings.

    Raises:
        BrokerError: The brokers refuse the request, do not answer in time, or cannot be reached at their advertised addresses.
    """
    deadline, unanswered = Deadline(timeout_ms / 1000), Deadline(ADDRESSES_TRIED_AFTER_S)
    believe_after_s = cut_believed_after_s(timeout_ms)
    wait_s = ASK_BOUNDS_S
    is_first = True
    earlier: dict[int, KafkaError] = {}
    consumer.serve()
    while True:
        earlier.update(consumer.errors)
        consumer.errors.clear()
        # An earlier task with this consumer may have exceeded a quota. The brokers do not answer until the throttling ends.
        timeout_s = max(BOUNDS_SHORTEST_WAIT_S, min(consumer.throttling.left_s + wait_s, deadline.left))
        began = time.monotonic()
        try:
            return ask_bounds(consumer, partition, end, timeout_s, doing, believe_after_s)
        except NoAnswer as silence:
            consumer.serve()
            overdue = deadline.over
            if overdue and not consumer.errors:
                # librdkafka reports some errors, such as a token that cannot be fetched, only every 10 s.
                consumer.errors.update(earlier)
            # A broker that is shutting down may interrupt a handshake, which looks like a refusal, so only a second refusal
            # counts.
            if overdue or not is_first:
                raise_if_refused(consumer, doing)
            if overdue and consumer.throttling.left_s:
                raise throttled(doing, timeout_ms) from None
            if overdue:
                raise timed_out(doing, timeout_ms, most_specific(consumer.errors) or silence.error, answers=False) from None
            if unanswered.over and not consumer.answered:
                # Import this only if no broker answers, because the import takes each new worker some time.
                from spark_groupsource.brokers.advertised import refuse_unreachable

                refuse_unreachable(client)
        is_first = False
        # An immediate error, such as a refused connection, does not show that answers are slow.
        if time.monotonic() - began >= 0.9 * timeout_s:
            wait_s *= 2
        time.sleep(BOUNDS_SHORTEST_WAIT_S)


def raise_if_refused(consumer: FetchConsumer, doing: str) -> None:
    """Raise an error that the consumer has reported by callback, such as refused credentials, unless it is retriable."""
    for error in list(consumer.errors.values()):
        refused = refusal(error, doing)
        if refused is not None:
            raise refused


def _look_up_leader(consumer: FetchConsumer, partition: TopicPartition, timeout_s: float) -> KafkaError | None:
    """Refresh librdkafka's cache of the partition's leader, and return the error, or None if this worked."""
    try:
        return consumer.partition_error(partition, timeout_s)
    except KafkaException as failure:
        error: KafkaError = failure.args[0]
        return error


def _raise_unless_deleted(consumer: FetchConsumer, partition: TopicPartition, timeout_s: float, doing: str) -> None:
    """Raise an error unless a broker confirms that the partition does not exist.

    librdkafka also reports an unknown partition if the DESCRIBE ACL is missing, or while a broker is starting. In these cases,
    nothing is lost.
    """
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
        refused = refusal(error, doing)
        if refused is not None:
            raise refused from None
        raise NoAnswer(error) from None
