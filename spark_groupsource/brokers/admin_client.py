"""Makes AdminClients, for a single request or for the whole run of a query, and reads the settings of a broker."""

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
    """Make an AdminClient. No request is sent yet.

    Args:
        client_settings: librdkafka settings that every client needs.
        last_error: Remembers the errors that belong to no request.

    Raises:
        OptionError: As `make_client` does.
        AuthenticationFailed: As `make_client` does.
    """
    # isolation.level is a setting of consumers. librdkafka would log a warning for an AdminClient.
    of_any_client = {name: value for name, value in client_settings.items() if name != "isolation.level"}
    # Close a connection when its request has timed out. By default librdkafka keeps it for a minute.
    settings = {"socket.timeout.ms": str(int(REQUEST_TIMEOUT_S * 1000)), **of_any_client}
    return make_client(AdminClient, settings, last_error.record, librdkafka_log)


class LastingAdmin:
    """An AdminClient for the whole run of a query, with long pauses between its requests. Any thread may use it.

    A network may drop an idle connection without telling librdkafka, which then loses its requests for a minute. So a caller that
    gets no answer after a pause renews the client and asks again.
    """

    def __init__(
        self, client_settings: Mapping[str, str], last_error: LastError, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Make the client. No request is sent yet.

        Args:
            client_settings: librdkafka settings that every client needs.
            last_error: Remembers the errors that belong to no request.
            clock: Returns seconds, monotonic.

        Raises:
            OptionError, AuthenticationFailed: As `make_admin_client` does.
        """
        self._settings = client_settings
        self._last_error = last_error
        self._clock = clock
        self.client = make_admin_client(client_settings, last_error)
        """The client. Callers keep a reference until they have their answer, because another thread may renew the client."""
        self._answered_at = clock()

    @property
    def idle(self) -> bool:
        """Whether the last answer is so old that the network may have dropped the connections."""
        return self._clock() - self._answered_at >= IDLE_S

    def answered(self) -> None:
        """Note that a broker has answered."""
        self._answered_at = self._clock()

    def renew(self) -> None:
        """Replace the client with one that has new connections."""
        # Reset the time although no broker has answered. Otherwise each request to brokers that are down would make a new client.
        self.answered()
        try:
            self.client = make_admin_client(self._settings, self._last_error)
        except GroupKafkaError as failed:
            log.info("a new client cannot be made, so the old one is still used: %s", failed)


def settings_of_a_broker(client_settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of one broker. Use only settings that are the same on every broker of a well-run cluster.

    Args:
        client_settings: librdkafka settings that every client needs.

    Returns:
        The values of the settings, including defaults, by name. Secrets are not included.

    Raises:
        NotAuthorized: The user may not read them (ACL DESCRIBE_CONFIGS on the cluster).
        BrokerUnavailable: No broker answers, or the brokers refuse the request, as those of some hosted clusters do.
        AuthenticationFailed: The brokers refuse the login.
    """
    last_error = LastError()
    admin = make_admin_client(client_settings, last_error)
    try:
        brokers = admin.list_topics(timeout=REQUEST_TIMEOUT_S).brokers
        if not brokers:
            raise BrokerUnavailable(
                "The cluster lists no broker, perhaps because its only broker has just started. Nothing was changed. Try again."
            )
        resource = ConfigResource(ResourceType.BROKER, str(min(brokers)))
        (answer,) = admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S).values()
        entries = answer.result()
    except KafkaException as failed:
        raise explain(last_error.reason(failed.args[0], admin), "reading a broker's settings") from None
    return {name: entry.value for name, entry in entries.items() if entry.value is not None}
