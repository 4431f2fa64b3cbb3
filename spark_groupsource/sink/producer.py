"""The producers that the sink uses: their interface, the choice between the two, and the retries of a transaction's steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from spark_groupsource.brokers.login_trouble import is_refused
from spark_groupsource.fetch.choice import warn_of_pure_python
from spark_groupsource.native.libraries import why_unavailable
from spark_groupsource.patience import Deadline
from spark_groupsource.sink.native_producer import NativeProducer
from spark_groupsource.sink.pure_producer import PureProducer
from spark_groupsource.sink.token import Token, Written
from spark_groupsource.timeouts import TRANSACTION_S


class Producer(Protocol):
    """A librdkafka producer, used by one task at a time. Times are in seconds."""

    errors: dict[int, KafkaError]
    """The latest error for each code, except for errors that belong to a request."""
    last: Token | None
    """The last token that the producer has committed under its transactional id."""

    def start_over(self) -> None:
        """Reset counts and reports for the next task. The previous task's rows must all have been delivered."""

    def connect(self, timeout_s: float) -> bool:
        """Wait for a broker connection, and return whether there is one. Without this wait, later calls would take longer."""

    def note_errors(self) -> None:
        """Add the errors that librdkafka has reported so far to `errors`."""

    def init_transactions(self, timeout_s: float) -> None:
        """Take the transactional id, which aborts its open transaction and fences all earlier producers with this id.

        Raises:
            KafkaException: The id was not taken. If the error is retriable, call this again.
        """

    def begin_transaction(self) -> None:
        """Begin a transaction."""

    def count(self, rows: pa.RecordBatch) -> None:
        """Count rows without writing them."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Count rows and enqueue them.

        Args:
            rows: Columns from `rows_of` (columns.py).

        Raises:
            NotDelivered: A row was refused, or was not delivered.
        """

    @property
    def written(self) -> Written:
        """The number and the checksum of the rows that have been counted."""

    @property
    def topics(self) -> frozenset[str]:
        """The topics of the rows that have been counted."""

    def refuse_undelivered(self) -> None:
        """Raise an error if a row has been refused so far.

        Raises:
            NotDelivered: A row was refused, or was not delivered.
        """

    def flush(self) -> None:
        """Wait until every row has been delivered.

        Raises:
            NotDelivered: A row was not delivered.
        """

    def send_offset(self, group: str, topic: str, offset: int, metadata: str, timeout_s: float) -> None:
        """Commit an offset for the group and the topic's partition 0, as part of the transaction.

        Raises:
            KafkaException: See `init_transactions`.
        """

    def commit_transaction(self, timeout_s: float) -> None:
        """Commit the transaction.

        Raises:
            KafkaException: See `init_transactions`.
        """

    def abort_transaction(self, timeout_s: float) -> None:
        """Abort the transaction.

        Raises:
            KafkaException: See `init_transactions`.
        """

    def close(self) -> None:
        """Close the producer, and drop rows that have not been delivered yet."""

    def abandon(self) -> None:
        """Leak the producer in a forked child, where it must be neither used nor freed."""


def make_producer(client: Mapping[str, str], topic: str | None) -> Producer:
    """Create a native producer or, if this process has no native library, log a warning and create a pure Python one.

    Args:
        client: The finished settings.
        topic: The topic for rows that do not name one.

    Raises:
        OptionError: librdkafka refuses the settings.
        AuthenticationFailed: `kafka.oauth_cb` returns no token.
    """
    unavailable = why_unavailable()
    if unavailable is None:
        return NativeProducer(client, topic)
    warn_of_pure_python(unavailable)
    return PureProducer(client, topic)


def is_retriable(error: Exception) -> bool:
    """Return whether the same step of a transaction may succeed later."""
    return isinstance(error, KafkaException) and bool(error.args[0].retriable())


def retried(producer: Producer, step: Callable[[float], None], patience_s: float, try_s: float = TRANSACTION_S) -> None:
    """Retry a step of a transaction while its outcome is unknown, as when coordinators move or brokers restart.

    Args:
        producer: The producer.
        step: One of its methods, which takes the time limit for one attempt.
        patience_s: How long to try, in seconds.
        try_s: The time limit for one attempt, in seconds.

    Raises:
        KafkaException: The step was refused, or there was no answer in time.
    """
    deadline = Deadline(patience_s)
    refusals = 0

    def passes(error: Exception) -> bool:
        nonlocal refusals
        if not is_retriable(error):
            return False
        producer.note_errors()
        if any(map(is_refused, producer.errors.values())):
            refusals += 1
            if refusals > 1:
                return False
            # A broker that is shutting down may interrupt a handshake, which looks like a refused login. So wait for a second
            # refusal.
            producer.errors.clear()
        return True

    deadline.retry(lambda: step(min(try_s, max(deadline.left, 1.0))), passes)
