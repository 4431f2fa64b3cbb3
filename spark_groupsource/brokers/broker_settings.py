"""Which settings of the brokers decide about a member's session and about a group's commits?"""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

from spark_groupsource.brokers.admin_client import make_admin_client
from spark_groupsource.brokers.broker_errors import explain
from spark_groupsource.brokers.client import LastError
from spark_groupsource.errors import BrokerUnavailable
from spark_groupsource.timeouts import REQUEST_TIMEOUT_S


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
