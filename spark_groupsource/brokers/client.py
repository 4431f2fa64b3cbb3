"""Creates confluent-kafka clients, and records the errors that they report in the background."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from spark_groupsource.brokers.droppable import droppable
from spark_groupsource.brokers.login_trouble import token_refused
from spark_groupsource.brokers.oauth_callback import token_callback
from spark_groupsource.brokers.process_limits import limit_reached, save_address_space, says_limit
from spark_groupsource.brokers.repeated_lines import RepeatFilter
from spark_groupsource.brokers.shared_token import SharedToken
from spark_groupsource.errors import GroupKafkaError, OptionError
from spark_groupsource.kafka_settings.environment import EnvironmentFilter, resolved, without_environment
from spark_groupsource.kafka_settings.secrets import without_secrets
from spark_groupsource.kafka_settings.tables import OAUTH_CALLBACK
from spark_groupsource.partition import TopicPartition
from spark_groupsource.timeouts import REQUEST_TIMEOUT_S

if TYPE_CHECKING:
    from confluent_kafka import Consumer, ThrottleEvent
    from confluent_kafka.admin import AdminClient

    _LoggerAdapter = logging.LoggerAdapter[logging.Logger]
else:
    _LoggerAdapter = logging.LoggerAdapter  # Python 3.10 takes no parameter here

CONNECT_EARLY_S = 0.5
"""How long a new Consumer waits to connect to a partition's leader, so that its first real request does not have to wait."""

LAST_ERROR_KEPT_S = 180.0
"""How long an error that a client reported in the background can explain unanswered requests. librdkafka repeats a persistent
error after half a minute or more, so an older error may come from a broker that was restarting."""


def _logger(name: str) -> logging.Logger:
    logger = logging.getLogger(name)
    logger.addFilter(RepeatFilter(has_kinds=True))
    logger.addFilter(EnvironmentFilter())
    return logger


librdkafka_log = _logger("spark_groupsource.librdkafka")
"""Receives librdkafka's log lines from every client in the driver and the command line."""

librdkafka_log_of_tasks = _logger("spark_groupsource.fetch.librdkafka")
"""Receives librdkafka's log lines from the tasks' consumers and producers."""


def _lowered_if_fenced(record: logging.LogRecord) -> bool:
    """Demote to DEBUG any log line about a producer that has lost its transactional id.

    librdkafka calls the loss fatal, but a pooled producer always loses its id when another worker runs the task, and is then
    replaced. If the loss matters, the task raises WriterFenced.
    """
    if "fenced by a newer instance" not in record.getMessage():
        return True
    record.levelno, record.levelname = logging.DEBUG, logging.getLevelName(logging.DEBUG)
    return librdkafka_log_of_tasks.isEnabledFor(logging.DEBUG)


# This filter must run before the one that counts repeated warnings.
librdkafka_log_of_tasks.filters.insert(0, _lowered_if_fenced)

Client = TypeVar("Client")

UNANSWERED = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._NOENT,
    }
)
"""Error codes for a request that no broker answered. `_NOENT` means that a partition's leader is unknown."""

_ENDS_AT = re.compile(r"broker end offset is (-?\d+)")
"""Matches the end of a leader epoch in librdkafka's message for a position beyond that end."""


def make_client(
    kind: type[Client],
    settings: Mapping[str, Any],
    on_error: Callable[[KafkaError], None],
    logger: logging.Logger | logging.LoggerAdapter[logging.Logger],
    *,
    on_throttle: Callable[[ThrottleEvent], None] | None = None,
) -> Client:
    """Make a `Consumer`, a `Producer` or an `AdminClient`.

    Args:
        kind: The class.
        settings: librdkafka settings, including the token callback's name if there is one.
        on_error: Called with each error that does not belong to a request.
        logger: Receives librdkafka's log lines.
        on_throttle: Called when a broker throttles a client that fetches records. `None` for other clients.

    Returns:
        The client.

    Raises:
        OptionError: librdkafka refuses a setting, the token callback does not exist, or a file setting's variable is not set.
            The message contains no secrets.
        AuthenticationFailed: The token callback returns no token.
        ProcessLimitReached: The process cannot get more memory or threads.
    """
    given = resolved(settings, reads=on_throttle is not None)
    if on_throttle is not None:
        given["throttle_cb"] = on_throttle
    tokens, given["error_cb"] = tokens_of(given, on_error)
    if tokens is not None:
        given[OAUTH_CALLBACK] = tokens
    save_address_space()
    try:
        client: Client = droppable(kind)(given, logger=logger)  # type: ignore[arg-type] # mypy: type[Client] is not hashable
    except (KafkaException, ValueError, TypeError) as refused:
        cause = refused.args[0] if refused.args else refused
        raise why_not_made(cause.str() if isinstance(cause, KafkaError) else str(cause), settings) from None
    connect_early(client)
    return client


def tokens_of(
    settings: Mapping[str, Any], on_error: Callable[[KafkaError], None]
) -> tuple[SharedToken | None, Callable[[KafkaError], None]]:
    """Return a client's token callback, and an error callback that makes the next client get a new token after a refusal.

    Args:
        settings: The client's settings. Without `kafka.oauth_cb`, there is no token callback.
        on_error: The error callback.

    Raises:
        OptionError, AuthenticationFailed: See `token_callback`.
    """
    if OAUTH_CALLBACK not in settings:
        return None, on_error
    tokens = token_callback(settings[OAUTH_CALLBACK], settings.get("sasl.oauthbearer.config"))

    def note(error: KafkaError) -> None:
        if token_refused(error):
            tokens.refused()
        on_error(error)

    return tokens, note


def connect_early(client: object) -> None:
    """Make an AdminClient start connecting to the controller, without waiting for the connection.

    Once librdkafka has the list of brokers, it drops the connection to the bootstrap server. A request that any broker may answer
    then waits for half of `reconnect.backoff.ms`. But for a request to a particular broker, librdkafka connects immediately, and
    other requests use that connection.
    """
    describe_cluster = getattr(client, "describe_cluster", None)
    if describe_cluster is not None:
        describe_cluster(request_timeout=REQUEST_TIMEOUT_S)


def connect_to_leader(consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
    """Make a new Consumer connect to the first partition's leader (best effort), for the same reason as `connect_early`.

    Args:
        consumer: A consumer that no other code is using yet.
        partitions: Existing partitions.
    """
    for partition in partitions[:1]:
        with suppress(KafkaException):
            consumer.get_watermark_offsets(KafkaTopicPartition(*partition), timeout=CONNECT_EARLY_S, cached=False)


class TimeoutsNoticed(_LoggerAdapter):
    """Forwards one client's log lines, and detects request time-outs, which librdkafka reports only in its log."""

    def __init__(self, logger: logging.Logger, notice: Callable[[], None]) -> None:
        """Forward every line to `logger`.

        Args:
            logger: Receives the lines.
            notice: Called for each line about a time-out, while the client is polled.
        """
        super().__init__(logger, {})
        self._notice = notice

    def log(self, level: int, msg: object, *args: object, **more: Any) -> None:
        """Forward a log line from confluent-kafka, which passes librdkafka's name for the kind of line as its first argument."""
        if args[:1] == ("REQTMOUT",):
            self._notice()
        super().log(level, msg, *args, **more)


class LastError:
    """Stores the last error that an AdminClient reported in the background.

    For example, librdkafka reports a refused login only in the background, while the requests themselves time out.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._newest: KafkaError | None = None
        self._at = 0.0
        self._polled_at = clock()

    def record(self, error: KafkaError) -> None:
        """Remember an error. This is librdkafka's error callback.

        `_ALL_BROKERS_DOWN` does not replace an earlier error, which is more specific.
        """
        if error.code() != KafkaError._ALL_BROKERS_DOWN or self._kept() is None:
            self._newest, self._at = error, self._clock()

    def newest(self, client: AdminClient | Consumer) -> KafkaError | None:
        """Return the last reported error, or `None` if there is none or if it has not been repeated for a long time."""
        self._poll(client)
        return self._kept()

    def reason(self, error: KafkaError, client: AdminClient) -> KafkaError:
        """Return why a request failed: the last reported error if no broker answered the request, or else `error` itself."""
        return (self.newest(client) if error.code() in UNANSWERED else None) or error

    def clear(self, client: AdminClient) -> None:
        """Forget the last error. Call this only when every broker has answered.

        librdkafka repeats a persistent error only after half a minute or more, so an error that is forgotten too early is lost.
        """
        self._poll(client)
        self._newest = None

    def _poll(self, client: AdminClient | Consumer) -> None:
        """Make the client report its errors. Ignore them if the last poll was long ago, because they may be old."""
        unpolled_s = self._clock() - self._polled_at
        client.poll(0)
        self._polled_at = self._clock()
        if unpolled_s >= LAST_ERROR_KEPT_S:
            self._newest = None

    def _kept(self) -> KafkaError | None:
        return self._newest if self._clock() - self._at < LAST_ERROR_KEPT_S else None


_OLD_KEY_STORE = (
    "An old keytool encrypted the key store with RC2, which OpenSSL no longer supports. Convert it with the keytool of Java 17 "
    "or newer: `keytool -importkeystore -srckeystore keystore.p12 -destkeystore new.p12 -deststoretype PKCS12`. Copy new.p12 "
    "to every node, and set kafka.ssl.keystore.location to its path."
)


def why_not_made(text: str, settings: Mapping[str, Any]) -> GroupKafkaError:
    """Return the exception for a client that could not be created, usually because librdkafka refuses a setting.

    Raise it `from None`, because the original error may quote a secret.

    Args:
        text: librdkafka's message, in which this function masks secrets and values from the environment.
        settings: The refused settings, including the secrets.
    """
    text = without_environment(without_secrets(text, settings))
    if says_limit(text):
        return limit_reached(f"A Kafka client cannot be created: {text}")
    advice = f". {_OLD_KEY_STORE}" if "PKCS#12" in text and "unsupported" in text else ""
    return OptionError(f"The Kafka client rejects a setting: {text}{advice}")


def diverging_offset(error: KafkaError) -> int | None:
    """Return the offset at which a log was truncated, or `None` if this error does not report a truncation.

    -1 means that the leader has no epoch as old as the position's.
    """
    found = _ENDS_AT.search(error.str()) if error.code() == KafkaError._AUTO_OFFSET_RESET else None
    return None if found is None else int(found[1])
