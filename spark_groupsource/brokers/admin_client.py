"""How an AdminClient is made from the settings that every client needs."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka.admin import AdminClient

from spark_groupsource.brokers.client import LastError, librdkafka_log, make_client


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
    settings = {name: value for name, value in client_settings.items() if name != "isolation.level"}
    return make_client(AdminClient, settings, last_error.record, librdkafka_log)
