"""Sets the `client.id` under which brokers and tools show a query's clients.

Tasks import this module, so it is separate from the modules that translate settings on the driver.
"""

from __future__ import annotations

from collections.abc import Mapping

CLIENT_ID = "groupkafka"
"""The `client.id` of a client that does not belong to a query, or whose query is not known yet."""


def named(settings: Mapping[str, str], query: str) -> dict[str, str]:
    """Return a client's settings with the query in its `client.id` (see `name_clients`)."""
    settings_of_query = dict(settings)
    name_clients(query, settings_of_query)
    return settings_of_query


def name_clients(query: str, *clients: dict[str, str]) -> None:
    """Set the `client.id` in these settings to `groupkafka-<query>`, unless the user has set another one.

    The `client.id` does not include the host, because brokers show the host anyway, and because a quota for the `client.id` would
    then apply to each host separately.

    Args:
        query: A unique name for the stream or query that survives restarts, with letters, digits and `-`.
        clients: The clients' finished settings.
    """
    for settings in clients:
        if settings.get("client.id") == CLIENT_ID:
            settings["client.id"] = f"{CLIENT_ID}-{query}"
