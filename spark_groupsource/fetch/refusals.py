"""What an error of librdkafka means for a reading task: wait, look at the log's bounds again, or give up, and how to say it."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError

from spark_groupsource.brokers.login_trouble import MISSING_ACL, login_trouble
from spark_groupsource.errors import AuthenticationFailed, BrokerError, BrokerUnavailable, NotAuthorized

# The partition is unknown to the cluster, or the offset to the log: the bounds of the log tell what is lost.
BOUNDS_IN_DOUBT = frozenset(
    {
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)
NO_SUCH_PARTITION = BOUNDS_IN_DOUBT - {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}

_NO_BROKER = frozenset({KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE})
# Waiting can mend these. Every other error of a reading consumer ends the task: some (a wrong checksum, a codec that is
# not understood) make librdkafka pass over records.
_PASSING = _NO_BROKER | {
    KafkaError._DESTROY_BROKER,  # a request that waited for a broker which librdkafka has replaced meanwhile
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._WAIT_CACHE,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.NOT_COORDINATOR,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.THROTTLING_QUOTA_EXCEEDED,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}


def refusal(error: KafkaError, doing: str) -> BrokerError | None:
    """Return the error to raise for `error`, or None when waiting can mend it; `doing` begins its text."""
    code = error.code()
    text = f"{doing}: {error.name()}: {error.str()}"
    trouble = login_trouble(error)
    if trouble is not None and trouble.final:
        return AuthenticationFailed(f"{text}. {trouble.check} The driver uses the same, from files of its own machine.")
    if code in MISSING_ACL:
        return NotAuthorized(f"{text}. {MISSING_ACL[code]}")
    if code in _PASSING and not error.fatal():
        return None
    return BrokerError(f"{text}.")


def timed_out(doing: str, timeout_ms: int, last: KafkaError | None, answers: bool) -> BrokerError:
    """Return the error for a wait of `timeout_ms` without progress.

    `last` is the last error that librdkafka told; `answers`: whether a broker has answered in this time.
    """
    reason = f" The last error: {last.name()}: {last.str()}." if last is not None else ""
    if answers:
        return BrokerError(
            f"{doing}: no record and no progress for {timeout_ms} ms, though the partition's leader answers.{reason} "
            "Check the broker's load and log, quotas, and kafkaConsumer.pollTimeoutMs."
        )
    trouble = login_trouble(last) if last is not None else None
    check = f"{trouble.check} " if trouble is not None else ""
    return BrokerUnavailable(
        f"{doing}: no answer for {timeout_ms} ms.{reason} {check}Check that this executor reaches kafka.bootstrap.servers and "
        "the brokers' advertised.listeners, that the partition has a leader, and kafkaConsumer.pollTimeoutMs."
    )


def most_specific(errors: Mapping[int, KafkaError]) -> KafkaError | None:
    """Return the error that says most, None if there is none: `all brokers down` only repeats the others."""
    found = sorted(errors.values(), key=lambda error: error.code() == KafkaError._ALL_BROKERS_DOWN)
    return found[0] if found else None
