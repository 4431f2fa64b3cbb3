"""Making a client of confluent-kafka, the driver's and the pure reader's; and what troubles the driver's."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from spark_groupsource.brokers.oauth_callback import TokenCallback
from spark_groupsource.errors import OptionError
from spark_groupsource.kafka_settings.secrets import without_secrets
from spark_groupsource.kafka_settings.tables import OAUTH_CALLBACK

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

librdkafka_log = logging.getLogger("spark_groupsource.librdkafka")
"""Receives librdkafka's own log lines from every client of the driver and of the command line."""

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
"""Codes of a request that nobody has answered. The last says that nobody has told who leads a partition."""


def make_client(
    kind: Callable[..., Client], settings: Mapping[str, Any], on_error: Callable[[KafkaError], None], logger: logging.Logger
) -> Client:
    """Make a `Consumer` or an `AdminClient`.

    Args:
        kind: the class.
        settings: librdkafka's, with the name of the token callback if there is one.
        on_error: told of trouble that belongs to no request.
        logger: where librdkafka's log goes.

    Raises:
        OptionError: librdkafka refuses a setting, or there is no such token callback. The text holds no secret.
        AuthenticationFailed: the token callback gives no token.
    """
    given: dict[str, Any] = {**settings, "error_cb": on_error}
    if OAUTH_CALLBACK in given:
        given[OAUTH_CALLBACK] = TokenCallback(given[OAUTH_CALLBACK], given.get("sasl.oauthbearer.config"))
    try:
        return kind(given, logger=logger)
    except (KafkaException, ValueError, TypeError) as refused:
        cause = refused.args[0] if refused.args else refused
        raise refused_settings(cause.str() if isinstance(cause, KafkaError) else str(cause), settings) from None


class Trouble:
    """What an AdminClient tells in the background, such as a login that is refused: its requests only say that nobody answers."""

    def __init__(self) -> None:
        self._newest: KafkaError | None = None

    def note(self, error: KafkaError) -> None:
        """librdkafka's error callback. That all brokers are down says less than the error that came before."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN or self._newest is None:
            self._newest = error

    def told(self, client: AdminClient) -> KafkaError | None:
        """What the client has told, if anything."""
        client.poll(0)
        return self._newest

    def behind(self, error: KafkaError, client: AdminClient) -> KafkaError:
        """What says most of why a request has failed: of one that nobody has answered, what the client told."""
        return (self.told(client) if error.code() in UNANSWERED else None) or error

    def end(self, client: AdminClient) -> None:
        """Forget what the client told before, or has still to tell: all whom it is for have answered.

        To be called only then: librdkafka tells the same trouble again after half a minute at the earliest.
        """
        client.poll(0)
        self._newest = None


def refused_settings(text: str, settings: Mapping[str, Any]) -> OptionError:
    """The error for settings that librdkafka refuses, in its own words but for the secrets that it quotes.

    To be raised `from None`: the original's text may quote a secret.
    """
    return OptionError(f"The Kafka client refuses a setting: {without_secrets(text, settings)}")
