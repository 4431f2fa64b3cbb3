"""The default `client.id`: what brokers, and every tool that lists the members of a group, call a client of a query.

Tasks import it, so it stands apart from what translates settings on the driver.
"""

from __future__ import annotations

from collections.abc import Mapping

CLIENT_ID = "groupkafka"
"""The `client.id` of a client that works for no query, or for one that is not known yet."""


def named(settings: Mapping[str, str], query: str) -> dict[str, str]:
    """Return the settings of a client that brokers know by the query; see `name_clients`."""
    settings_of_query = dict(settings)
    name_clients(query, settings_of_query)
    return settings_of_query


def name_clients(query: str, *clients: dict[str, str]) -> None:
    """Set `groupkafka-<query>` as the `client.id` of these settings, unless the user has set another one.

    The host is left out: brokers see and show it by themselves, and a quota for a `client.id` would be one for each host.

    Args:
        query: A name that tells queries apart and stays over restarts: of a stream or of a query, from letters, digits and `-`.
        clients: Finished settings.
    """
    for settings in clients:
        if settings.get("client.id") == CLIENT_ID:
            settings["client.id"] = f"{CLIENT_ID}-{query}"
