"""How an AdminClient is made from the settings that every client needs, and how one that lasts gets new connections."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]

from spark_groupsource.brokers.broker_errors import explain
from spark_groupsource.brokers.client import LastError, librdkafka_log, make_client
from spark_groupsource.errors import BrokerUnavailable, GroupKafkaError
from spark_groupsource.timeouts import IDLE_S, REQUEST_TIMEOUT_S

log = logging.getLogger(__name__)


def make_admin_client(client_settings: Mapping[str, str], last_error: LastError) -> AdminClient:
    """Make an AdminClient. Nothing is asked yet.

    Args:
        client_settings: librdkafka settings that every client needs.
        last_error: Keeps what belongs to no request.

    Raises:
        OptionError: As `make_client` does.
        AuthenticationFailed: As `make_client` does.
    """
    # That one is a consumer's setting: librdkafka would log a warning for an AdminClient.
    theirs = {name: value for name, value in client_settings.items() if name != "isolation.level"}
    # A connection on which nobody waits for an answer any more is closed. By default librdkafka keeps it for a minute.
    settings = {"socket.timeout.ms": str(int(REQUEST_TIMEOUT_S * 1000)), **theirs}
    return make_client(AdminClient, settings, last_error.record, librdkafka_log)


class LastingAdmin:
    """An AdminClient that is used for as long as a query runs, with long pauses. Any thread may use it.

    A network may forget a connection that is idle. librdkafka is not told: requests on it disappear for a minute. So the caller
    that gets no answer after a pause renews the client, and asks again.
    """

    def __init__(
        self, client_settings: Mapping[str, str], last_error: LastError, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Make the client. Nothing is asked yet.

        Args:
            client_settings: librdkafka settings that every client needs.
            last_error: Keeps what belongs to no request.
            clock: Returns seconds, monotonic.

        Raises:
            OptionError, AuthenticationFailed: As `make_admin_client` does.
        """
        self._settings = client_settings
        self._last_error = last_error
        self._clock = clock
        self.client = make_admin_client(client_settings, last_error)
        """Keep a reference until the answer has come: another thread may renew the client."""
        self._answered_at = clock()

    @property
    def idle(self) -> bool:
        """Whether no broker has answered for so long that the network may have forgotten the connections."""
        return self._clock() - self._answered_at >= IDLE_S

    def answered(self) -> None:
        """Note that a broker has answered."""
        self._answered_at = self._clock()

    def renew(self) -> None:
        """Replace the client by one with new connections."""
        # Not only when a broker answers: brokers that are down must not cost a new client with each question.
        self.answered()
        try:
            self.client = make_admin_client(self._settings, self._last_error)
        except GroupKafkaError as failed:
            log.info("no new client, so the old one is asked again: %s", failed)


def settings_of_a_broker(client_settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of one broker. What is asked for here is the same on every broker of a well-kept cluster.

    Args:
        client_settings: librdkafka settings that every client needs.

    Returns:
        The settings that have a value, defaults included, by their names. Secrets have none.

    Raises:
        NotAuthorized: The user may not read them (ACL DESCRIBE_CONFIGS on the cluster).
        BrokerUnavailable: No broker answers, or they refuse the request as some hosted clusters do.
        AuthenticationFailed: The brokers refuse the login.
    """
    last_error = LastError()
    admin = make_admin_client(client_settings, last_error)
    try:
        brokers = admin.list_topics(timeout=REQUEST_TIMEOUT_S).brokers
        if not brokers:
            raise BrokerUnavailable("The cluster names no broker, as when its only one has just started. Try again.")
        resource = ConfigResource(ResourceType.BROKER, str(min(brokers)))
        (answer,) = admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S).values()
        entries = answer.result()
    except KafkaException as failed:
        raise explain(last_error.reason(failed.args[0], admin), "reading a broker's settings") from None
    return {name: entry.value for name, entry in entries.items() if entry.value is not None}
