"""Defines how queries and sink tasks handle each broker error, for the tables in docs/broker-codes.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import KafkaError

from spark_groupsource.brokers.broker_errors import COMMIT_ERRORS, MEMBER_ERRORS, REQUEST_ERRORS
from spark_groupsource.errors import (
    AssignmentTimeout,
    AuthenticationFailed,
    BrokerUnavailable,
    ClaimTimeout,
    CommitOutcomeUnknown,
    CommitRefused,
    CoordinatorUnavailable,
    GenerationChanged,
    GroupKafkaError,
    MemberFenced,
    MembershipError,
    MemberUnknown,
    NotAConsumerGroup,
    NotAuthorized,
    OptionError,
    RecordRefused,
    RecordTooLarge,
    SinkError,
    TopicNotFound,
    WriterFenced,
)
from spark_groupsource.sink.failures import PURGED, TASK_ERRORS, UNREACHED
from spark_groupsource.sink.writing import PARTITIONS_KNOWN_S
from spark_groupsource.timeouts import GROUP_OFFSETS_S, REQUEST_TIMEOUT_S, TRANSACTION_S


class Handling(NamedTuple):
    """How a query or a task handles an error, and for how long."""

    doing: str
    for_how_long: str
    """If `option` is set, the default of that option."""
    option: str | None
    said: str | None = None
    """What happens at the brokers, besides the codes of the tables."""


def names_of_codes(codes: Iterable[int]) -> list[str]:
    """Return the names of Kafka and librdkafka error codes, sorted."""
    return sorted(KafkaError(code).name() for code in set(codes))


class Case(NamedTuple):
    """A table row: one of this package's errors, what brokers or librdkafka report when it is raised, and how it is handled."""

    error: str
    said: str
    done: Handling


ENDS, AT_ONCE = "fails", "immediately"
REFUSED_LOGIN = "a refused login or certificate"

OF_QUERIES: Mapping[type[GroupKafkaError], Sequence[Handling]] = {
    BrokerUnavailable: (
        Handling(ENDS, "9 to 15 s", None, "no answer to the first requests after a start"),
        Handling(
            "asks again", "2 min, each of Spark's calls", "assignmentTimeout", "no answer to a later request, or any other error"
        ),
        Handling(
            "warns once, and reads the other partitions; if the last request was about that long ago, or longer, the trigger "
            "waits for the answer",
            "2 min, each partition",
            "kafkaConsumer.pollTimeoutMs",
            "the leader of an owned partition does not answer",
        ),
        Handling(
            "reads the other partitions, and also asks again between triggers",
            "2 min, each partition",
            "assignmentTimeout",
            "the same, and the group has no commit for the partition yet",
        ),
        Handling(
            "the task retries; then Spark retries the task",
            "2 min, each attempt",
            "kafkaConsumer.pollTimeoutMs",
            "the leader does not answer a task",
        ),
        Handling("retries", "2 min", "kafkaConsumer.pollTimeoutMs", "a leader does not answer a batch read"),
    ),
    AssignmentTimeout: (Handling("waits", "2 min", "assignmentTimeout", "the group assigns nothing"),),
    ClaimTimeout: (Handling("waits", "2 min", "assignmentTimeout", "no member takes over a partition that must be read"),),
    GenerationChanged: (
        Handling("takes part in the rebalance and commits again", "2 min, each of Spark's calls", "assignmentTimeout"),
    ),
    CoordinatorUnavailable: (Handling("commits again", "2 min, each of Spark's calls", "assignmentTimeout"),),
    MemberUnknown: (Handling("rejoins and claims again", "2 min, each of Spark's calls", "assignmentTimeout"),),
    CommitOutcomeUnknown: (
        Handling(
            "leaves the group, joins it as a new member, and continues from the group's commits",
            "2 min, each of Spark's calls",
            "assignmentTimeout",
            "no answer to a commit: librdkafka sends it up to three times, and each time waits for `kafka.request.timeout.ms` "
            "(60 s), or until the connection breaks, for example because a KIP-848 heartbeat gets no answer within the brokers' "
            "interval (5 s)",
        ),
    ),
    CommitRefused: (Handling(ENDS, AT_ONCE, None, "any other response to a commit"),),
    NotAuthorized: (Handling(ENDS, AT_ONCE, None),),
    AuthenticationFailed: (Handling(ENDS, AT_ONCE, None, REFUSED_LOGIN),),
    NotAConsumerGroup: (Handling(ENDS, AT_ONCE, None, "a share group, a streams group, or a Kafka Connect group"),),
    TopicNotFound: (
        Handling("at the start: fails. Later: gives up the partitions, or fails with `DataLossError`", AT_ONCE, "failOnDataLoss"),
    ),
    MemberFenced: (
        Handling(
            "at the start with `kafka.group.protocol=consumer`: joins again. Otherwise: fails", "2 min", "assignmentTimeout"
        ),
    ),
    MembershipError: (
        Handling(ENDS, AT_ONCE, None),
        Handling(
            "joins again",
            "2 min, each of Spark's calls",
            "assignmentTimeout",
            "GROUP_MAX_SIZE_REACHED, for a run that was a member before and has left: the group may still count its earlier "
            "member",
        ),
    ),
}
"""What a query does about each of these errors, in one or more cases. A retriable error makes the query fail once the
option's time is over. The first requests of a start have `FIRST_TIMEOUTS_S` for named topics, or else `REQUEST_TIMEOUT_S`."""

OF_TASKS: Mapping[type[GroupKafkaError], Sequence[Handling]] = {
    BrokerUnavailable: (
        Handling("sends its rows again", "2 min, each row", "kafka.delivery.timeout.ms"),
        Handling("retries the step", f"{TRANSACTION_S / 60:.0f} min", None, "the same, in response to a step of its transaction"),
        Handling(
            "repeats the request",
            f"{GROUP_OFFSETS_S:.0f} s; without the `topic` option a read is one request of {REQUEST_TIMEOUT_S:.0f} s",
            None,
            "the same, in response to a request for what the task has already written",
        ),
    ),
    SinkError: (
        Handling(ENDS, "after librdkafka's own attempts", "kafka.delivery.timeout.ms", "any other error"),
        Handling(
            "fails with the error that made its transaction fail",
            AT_ONCE,
            None,
            ", ".join([*names_of_codes(PURGED), "purged rows"]),
        ),
    ),
    WriterFenced: (Handling(ENDS, AT_ONCE, None),),
    NotAuthorized: (Handling(ENDS, AT_ONCE, None),),
    AuthenticationFailed: (Handling("retries the step once", "about 15 s", None, REFUSED_LOGIN),),
    TopicNotFound: (
        Handling(ENDS, AT_ONCE, None),
        Handling(
            "writes its rows again, unless they already take more than half of `kafka.buffer.memory`",
            f"{PARTITIONS_KNOWN_S:.0f} s",
            None,
            "UNKNOWN_TOPIC_OR_PART in a transaction: partitions were added, and not all brokers know about them yet",
        ),
    ),
    RecordTooLarge: (Handling(ENDS, AT_ONCE, None),),
    RecordRefused: (Handling(ENDS, AT_ONCE, None),),
    OptionError: (Handling(ENDS, AT_ONCE, None),),
}
"""How a sink task handles each of these errors. Spark then retries the task, up to `spark.task.maxFailures` times."""


def cases_of_queries() -> Iterator[Case]:
    """Yield the rows for queries."""
    return _cases(OF_QUERIES, (COMMIT_ERRORS, REQUEST_ERRORS, MEMBER_ERRORS))


def cases_of_tasks() -> Iterator[Case]:
    """Yield the rows for sink tasks."""
    return _cases(OF_TASKS, (TASK_ERRORS, dict.fromkeys(UNREACHED, BrokerUnavailable)))


def _cases(
    handling: Mapping[type[GroupKafkaError], Sequence[Handling]], tables: Sequence[Mapping[int, type[GroupKafkaError]]]
) -> Iterator[Case]:
    """Yield the rows of each error, in order. The first row of an error has its codes."""
    for error, ways in handling.items():
        said = names_of_codes(code for table in tables for code in table if table[code] is error)
        for done in ways:
            yield Case(error.__name__, ", ".join([*said, *([done.said] if done.said else [])]), done)
            said = []
