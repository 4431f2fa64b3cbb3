"""Decides whether a task waits, asks for the log's bounds, or fails after a librdkafka error, and creates the task's error."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError

from spark_groupsource.brokers.login_trouble import MISSING_ACL, OUT_OF_DESCRIPTORS, lacks_token, login_trouble
from spark_groupsource.brokers.process_limits import is_limit, limit_reached
from spark_groupsource.errors import AuthenticationFailed, BrokerError, BrokerUnavailable, GroupKafkaError, NotAuthorized

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
"""Errors for an unknown partition or an offset outside the log. The log's bounds then show what is lost."""

NO_SUCH_PARTITION = BOUNDS_IN_DOUBT - {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}
"""Errors for a partition that does not exist in the cluster."""

UNREADABLE_HEADERS = "headers cannot be read"
"""Part of native/_intake.c's message for a record whose headers librdkafka refuses because there are more than 100,000."""

_RESPONSE_LIMIT = "receive.message.max.bytes"
"""Part of librdkafka's message for a response that is too large."""

_LARGEST_RESPONSE = "..2147483647)"
"""Part of librdkafka's message for a response above the highest possible limit, which cannot have been a real response."""

_OF_ZSTD = "(codec 0x4)"
"""Part of librdkafka's message for a zstd batch that it cannot decompress."""

_WRONG_CHECKSUM = "failed CRC32"
"""Part of librdkafka's message for a batch with a wrong checksum. librdkafka returns none of the batch's records and then
continues at a wrong offset, so nothing after this error may be read."""

_RUNBOOK = "skip the batch (docs/operations.md, One record fails each time)"
"""What to do about a batch that no client can read, as a clause."""

_NO_BROKER = frozenset({KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE})
_PASSING = _NO_BROKER | {
    # The request was waiting for a broker that librdkafka has since replaced.
    KafkaError._DESTROY_BROKER,
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
"""Retriable errors. Any other error makes the task fail, because librdkafka skips records after some errors, such as a wrong
checksum."""


def refusal(error: KafkaError, doing: str) -> GroupKafkaError | None:
    """Return the error to raise for `error`, or None if it is retriable.

    Args:
        error: The librdkafka error.
        doing: What the task was doing. The message begins with it.
    """
    code = error.code()
    text = f"{doing}: {error.name()}: {error.str()}"
    if is_limit(error):
        return limit_reached(text)
    trouble = login_trouble(error)
    if trouble is not None and trouble.final:
        return AuthenticationFailed(
            f"{text}. {trouble.check} The driver uses the same settings, but reads the files on its own machine."
        )
    if code in MISSING_ACL:
        return NotAuthorized(f"{text}. {MISSING_ACL[code]}")
    if (code in _PASSING or lacks_token(error)) and not error.fatal() and trouble is not OUT_OF_DESCRIPTORS:
        return None
    advice = trouble.check if trouble is not None else _how_to_read_it(error)
    return BrokerError(f"{text}. {advice}".rstrip())


def response_too_large(errors: Mapping[int, KafkaError], doing: str) -> GroupKafkaError | None:
    """Return the error to raise if a response was too large for the consumer's settings, or None.

    In this case, librdkafka closes the connection and repeats the same request, so waiting does not help.

    Args:
        errors: The errors that the consumer has reported by callback.
        doing: See `refusal`.
    """
    large = (error for error in errors.values() if _RESPONSE_LIMIT in error.str() and login_trouble(error) is None)
    return next((refusal(error, doing) for error in large), None)


def _how_to_read_it(error: KafkaError) -> str:
    """Return advice about the setting that lets librdkafka read the records, or an empty string if there is none."""
    if error.code() == KafkaError._BAD_COMPRESSION and _OF_ZSTD in error.str():
        return (
            "kafka.receive.message.max.bytes limits the decompressed size of a zstd batch: remove this option, or raise it. If "
            "it is not set, the batch is damaged, or too large for librdkafka, whose limit is between 0.7 and 2.1 GB."
        )
    if _RESPONSE_LIMIT in error.str() and _LARGEST_RESPONSE not in error.str():
        return "Remove kafka.receive.message.max.bytes, or raise it. Without this option, responses can have any size."
    if error.code() == KafkaError._BAD_MSG and _WRONG_CHECKSUM in error.str():
        return (
            "The batch is damaged, so none of its records was read. Restart the query. If it fails at this offset again, the "
            "batch is damaged on the leader's disk. If another replica has an intact copy, make that broker the leader. If no "
            f"replica has one, {_RUNBOOK}. kafka.check.crcs=false would return the damaged records as they are."
        )
    if error.code() == KafkaError._BAD_MSG and UNREADABLE_HEADERS in error.str():
        return "Read without headers: remove includeHeaders, or headers from the schema."
    return ""


def timed_out(doing: str, timeout_ms: int, last: KafkaError | None, answers: bool) -> BrokerError:
    """Return the error for a task that has waited `timeout_ms` without progress.

    Args:
        doing: What the task was doing. The message begins with it.
        timeout_ms: How long the task waited, in ms.
        last: The last error that librdkafka reported, if any.
        answers: Whether a broker answered during this time.
    """
    reason = f" The last error: {last.name()}: {last.str()}." if last is not None else ""
    if answers:
        return BrokerError(
            f"{doing}: no record and no progress for {timeout_ms} ms, although the partition's leader answers.{reason} Check "
            "the broker's load, log and quotas, or raise kafkaConsumer.pollTimeoutMs. If the query fails at this offset after "
            f"every restart, the batch there may be malformed, although its checksum is correct: {_RUNBOOK}."
        )
    trouble = login_trouble(last) if last is not None else None
    check = f"{trouble.check} " if trouble is not None else ""
    return BrokerUnavailable(
        f"{doing}: no answer for {timeout_ms} ms.{reason} {check}Check that this executor can connect to "
        "kafka.bootstrap.servers and the brokers' advertised.listeners, and that the partition has a leader. If a host name has "
        "an IPv6 address that does not work, set kafka.broker.address.family=v4. Or raise kafkaConsumer.pollTimeoutMs."
    )


def throttled(doing: str, timeout_ms: int) -> BrokerError:
    """Return the error for a task that has waited `timeout_ms` without progress because of a quota.

    Args:
        doing: See `timed_out`.
        timeout_ms: See `timed_out`.
    """
    return BrokerError(
        f"{doing}: no progress for {timeout_ms} ms, because the brokers are throttling this client, which has exceeded its "
        "quota. Nothing is lost. Raise consumer_byte_rate for its kafka.client.id or user, or kafkaConsumer.pollTimeoutMs. "
        "Brokers never deliver a batch that is larger than the quota allows for ten seconds (the default window)."
    )


def most_specific(errors: Mapping[int, KafkaError]) -> KafkaError | None:
    """Return the most specific error, or None if there is no error. `All brokers down` only repeats the others."""
    found = sorted(errors.values(), key=lambda error: error.code() == KafkaError._ALL_BROKERS_DOWN)
    return found[0] if found else None
