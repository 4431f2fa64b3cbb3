"""Sets the `client.id` by which brokers, and tools that list the members of a group, show a client of a query.

Tasks import this module, so it is separate from the modules that translate settings on the driver.
"""

from __future__ import annotations

from collections.abc import Mapping

CLIENT_ID = "groupkafka"
"""The `client.id` of a client that works for no query, or for a query that is not known yet."""


def named(settings: Mapping[str, str], query: str) -> dict[str, str]:
    """Return a client's settings with the query in the `client.id`; see `name_clients`."""
    settings_of_query = dict(settings)
    name_clients(query, settings_of_query)
    return settings_of_query


def name_clients(query: str, *clients: dict[str, str]) -> None:
    """Set `groupkafka-<query>` as the `client.id` of these settings, unless the user has set another one.

    The host is left out, because brokers show it anyway, and a quota for a `client.id` would otherwise apply to each host.

    Args:
        query: A unique name of a stream or a query that survives restarts, with letters, digits and `-`.
        clients: Finished settings.
    """
    for settings in clients:
        if settings.get("client.id") == CLIENT_ID:
            settings["client.id"] = f"{CLIENT_ID}-{query}"
