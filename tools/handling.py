"""How a query and a task of the sink bear each error of the brokers, as the tables of docs/broker-codes.md say it."""

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
    """What a query or a task does about an error."""

    doing: str
    for_how_long: str
    """With `option`, its default."""
    option: str | None
    said: str | None = None
    """What brokers say, or do not say, besides the codes of the tables."""


def names_of_codes(codes: Iterable[int]) -> list[str]:
    """Return the names of codes of Kafka and librdkafka, sorted."""
    return sorted(KafkaError(code).name() for code in set(codes))


class Case(NamedTuple):
    """One line of a table: an error of this package, what brokers or librdkafka say when it is raised, and what is done."""

    error: str
    said: str
    done: Handling


ENDS, AT_ONCE = "ends", "immediately"
REFUSED_LOGIN = "a refused login or certificate"

OF_QUERIES: Mapping[type[GroupKafkaError], Sequence[Handling]] = {
    BrokerUnavailable: (
        Handling(ENDS, "9 to 15 s", None, "no answer to the first requests of a start"),
        Handling(
            "asks again", "2 min, each of Spark's calls", "assignmentTimeout", "no answer to a later request, or any other error"
        ),
        Handling(
            "warns once, and reads the other partitions; if the last request was about that long ago, or longer, the trigger "
            "waits for the answer",
            "2 min, each partition",
            "kafkaConsumer.pollTimeoutMs",
            "the leader of an owned partition is silent",
        ),
        Handling(
            "reads the other partitions, and also asks again between triggers",
            "2 min, each partition",
            "assignmentTimeout",
            "the same, and the group has no commit there yet",
        ),
        Handling(
            "the task asks again; then Spark retries the task",
            "2 min, each attempt",
            "kafkaConsumer.pollTimeoutMs",
            "the leader is silent to a task",
        ),
        Handling("asks again", "2 min", "kafkaConsumer.pollTimeoutMs", "a leader is silent to a batch read"),
    ),
    AssignmentTimeout: (Handling("waits", "2 min", "assignmentTimeout", "the group gives no assignment"),),
    ClaimTimeout: (Handling("waits", "2 min", "assignmentTimeout", "no member takes over a partition that must be read"),),
    GenerationChanged: (
        Handling("takes part in the rebalance, commits again", "2 min, each of Spark's calls", "assignmentTimeout"),
    ),
    CoordinatorUnavailable: (Handling("commits again", "2 min, each of Spark's calls", "assignmentTimeout"),),
    MemberUnknown: (Handling("rejoins, claims again", "2 min, each of Spark's calls", "assignmentTimeout"),),
    CommitOutcomeUnknown: (
        Handling(
            "leaves the group, joins it as a new member, continues from what the group holds",
            "2 min, each of Spark's calls",
            "assignmentTimeout",
            "no answer to a commit: librdkafka sends it up to three times, and each time waits for `kafka.request.timeout.ms` "
            "(60 s), or until the connection breaks, for example because a KIP-848 heartbeat gets no answer within the brokers' "
            "interval (5 s)",
        ),
    ),
    CommitRefused: (Handling(ENDS, AT_ONCE, None, "any other answer to a commit"),),
    NotAuthorized: (Handling(ENDS, AT_ONCE, None),),
    AuthenticationFailed: (Handling(ENDS, AT_ONCE, None, REFUSED_LOGIN),),
    NotAConsumerGroup: (Handling(ENDS, AT_ONCE, None, "a share group, a streams group, or a group of Kafka Connect"),),
    TopicNotFound: (
        Handling("at the start: ends. Later: gives up the partitions, or ends with `DataLossError`", AT_ONCE, "failOnDataLoss"),
    ),
    MemberFenced: (
        Handling("at the start with `kafka.group.protocol=consumer`: joins again. Otherwise: ends", "2 min", "assignmentTimeout"),
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
"""How a query bears each of these errors, in one or more cases. An error that passes ends the query when its option's time is
over. The first requests of a start have `FIRST_TIMEOUTS_S` for named topics, or else `REQUEST_TIMEOUT_S`."""

OF_TASKS: Mapping[type[GroupKafkaError], Sequence[Handling]] = {
    BrokerUnavailable: (
        Handling("sends its rows again", "2 min, each row", "kafka.delivery.timeout.ms"),
        Handling("retries the step", f"{TRANSACTION_S / 60:.0f} min", None, "the same, in answer to a step of its transaction"),
        Handling(
            "repeats the request",
            f"{GROUP_OFFSETS_S:.0f} s; without the option `topic` a read is one request of {REQUEST_TIMEOUT_S:.0f} s",
            None,
            "the same, in answer to a request for what the task has already written",
        ),
    ),
    SinkError: (
        Handling(ENDS, "after librdkafka's own attempts", "kafka.delivery.timeout.ms", "any other"),
        Handling(
            "ends with the error that made its transaction fail",
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
"""How a task of the sink bears each of these errors. Spark then retries the task, `spark.task.maxFailures` attempts in all."""


def cases_of_queries() -> Iterator[Case]:
    """Yield each case of an error of a query."""
    return _cases(OF_QUERIES, (COMMIT_ERRORS, REQUEST_ERRORS, MEMBER_ERRORS))


def cases_of_tasks() -> Iterator[Case]:
    """Yield each case of an error of a task of the sink."""
    return _cases(OF_TASKS, (TASK_ERRORS, dict.fromkeys(UNREACHED, BrokerUnavailable)))


def _cases(
    handling: Mapping[type[GroupKafkaError], Sequence[Handling]], tables: Sequence[Mapping[int, type[GroupKafkaError]]]
) -> Iterator[Case]:
    """Yield the cases of each error, in their order. The codes of an error are in its first case."""
    for error, ways in handling.items():
        said = names_of_codes(code for table in tables for code in table if table[code] is error)
        for done in ways:
            yield Case(error.__name__, ", ".join([*said, *([done.said] if done.said else [])]), done)
            said = []
