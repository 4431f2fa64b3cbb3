"""Sets the `client.id`, under which brokers and tools show the clients of a query.

Tasks import this module, so it is separate from the modules that translate settings on the driver.
"""

from __future__ import annotations

from collections.abc import Mapping

CLIENT_ID = "groupkafka"
"""The `client.id` of a client that belongs to no query, or whose query is not known yet."""


def named(settings: Mapping[str, str], query: str) -> dict[str, str]:
    """Return a client's settings with the query in the `client.id` (see `name_clients`)."""
    settings_of_query = dict(settings)
    name_clients(query, settings_of_query)
    return settings_of_query


def name_clients(query: str, *clients: dict[str, str]) -> None:
    """Set `groupkafka-<query>` as the `client.id` of these settings, unless the user has set another one.

    The host is not part of it, because brokers show the host anyway, and a quota for the `client.id` would then apply to each
    host separately.

    Args:
        query: A unique name of a stream or a query that survives restarts, with letters, digits and `-`.
        clients: Finished settings.
    """
    for settings in clients:
        if settings.get("client.id") == CLIENT_ID:
            settings["client.id"] = f"{CLIENT_ID}-{query}"
