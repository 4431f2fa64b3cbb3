"""Makes AdminClients for a single request or a whole query run, and reads a broker's settings."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]

from spark_groupsource.brokers.advertised import BOOTSTRAP, refuse_unreachable
from spark_groupsource.brokers.broker_errors import explain
from spark_groupsource.brokers.client import LastError, librdkafka_log, make_client
from spark_groupsource.brokers.login_trouble import is_refused
from spark_groupsource.errors import BrokerUnavailable, GroupKafkaError
from spark_groupsource.timeouts import IDLE_S, REQUEST_TIMEOUT_S, SHORT_TIMEOUT_S

log = logging.getLogger(__name__)


def make_admin_client(client_settings: Mapping[str, str], last_error: LastError) -> AdminClient:
    """Make an AdminClient without sending a request.

    Args:
        client_settings: librdkafka settings that every client needs.
        last_error: Receives errors that do not belong to a request.

    Raises:
        OptionError: See `make_client`.
        AuthenticationFailed: See `make_client`.
    """
    # isolation.level is a consumer setting. With an AdminClient, librdkafka would log a warning.
    of_any_client = {name: value for name, value in client_settings.items() if name != "isolation.level"}
    # Close a connection when a request on it times out. By default, librdkafka keeps it for a minute.
    settings = {"socket.timeout.ms": str(int(REQUEST_TIMEOUT_S * 1000)), **of_any_client}
    return make_client(AdminClient, settings, last_error.record, librdkafka_log)


class LastingAdmin:
    """An AdminClient that may stay idle for a long time, and the last error that it reported. Any thread may use it.

    A network may drop an idle connection without notifying librdkafka, which then loses requests for a minute. So after a pause,
    a caller renews the client, either before its first request or once this request has gone unanswered.
    """

    def __init__(self, client_settings: Mapping[str, str], *, clock: Callable[[], float] = time.monotonic) -> None:
        """Make the client without sending a request.

        Args:
            client_settings: librdkafka settings that every client needs.
            clock: Returns monotonic time in seconds.

        Raises:
            OptionError, AuthenticationFailed: See `make_admin_client`.
        """
        self._settings = client_settings
        self._clock = clock
        self.last_error = LastError()
        self.client = make_admin_client(client_settings, self.last_error)
        """The client. Hold a reference to it until its answer arrives, because another thread may replace the client."""
        self._has_first_answer = False
        self._answered_at = clock()

    def await_first_answer(self) -> None:
        """Wait until a broker has answered this client once. If none answers, try the brokers' advertised addresses.

        Raises:
            BrokerUnavailable: See `refuse_unreachable`. The next call waits again.
        """
        if self._has_first_answer:
            return
        try:
            self.client.describe_cluster(request_timeout=SHORT_TIMEOUT_S).result()
        except KafkaException:
            reported = self.last_error.newest(self.client)
            # If the login is refused or the bootstrap servers do not answer, the caller's own request reports it.
            if reported is None or not (is_refused(reported) or BOOTSTRAP.search(reported.str())):
                refuse_unreachable(self._settings)
        self._has_first_answer = True

    def reason(self, error: KafkaError) -> KafkaError:
        """Return why a request failed (`LastError.reason`)."""
        return self.last_error.reason(error, self.client)

    @property
    def idle(self) -> bool:
        """Whether the last answer is so old that the network may have dropped the connections."""
        return self._clock() - self._answered_at >= IDLE_S

    def answered(self) -> None:
        """Record that a broker has just answered."""
        self._answered_at = self._clock()

    def renew(self) -> None:
        """Replace the client with a new one that opens new connections."""
        # Count this as an answer. Otherwise, while the brokers are down, each request would make another client.
        self.answered()
        try:
            self.client = make_admin_client(self._settings, self.last_error)
        except GroupKafkaError as failed:
            log.info("a new client could not be created, so the old one remains in use: %s", failed)


def settings_of_a_broker(client_settings: Mapping[str, str]) -> dict[str, str]:
    """Return one broker's settings. Use only settings that are the same on every broker in a well-run cluster.

    Args:
        client_settings: librdkafka settings that every client needs.

    Returns:
        The settings' values by name, including defaults but not secrets.

    Raises:
        NotAuthorized: The user may not read them (DESCRIBE_CONFIGS ACL on the cluster).
        BrokerUnavailable: No broker answers, or the brokers refuse the request, as some hosted clusters do.
        AuthenticationFailed: The brokers refuse the login.
    """
    admin = LastingAdmin(client_settings)
    try:
        brokers = admin.client.list_topics(timeout=REQUEST_TIMEOUT_S).brokers
        if not brokers:
            raise BrokerUnavailable(
                "The cluster lists no brokers, perhaps because its only broker has just started. Nothing was changed. Try again."
            )
        resource = ConfigResource(ResourceType.BROKER, str(min(brokers)))
        (answer,) = admin.client.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S).values()
        entries = answer.result()
    except KafkaException as failed:
        raise explain(admin.reason(failed.args[0]), "reading a broker's settings") from None
    return {name: entry.value for name, entry in entries.items() if entry.value is not None}
