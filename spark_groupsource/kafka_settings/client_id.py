"""The default `client.id`: what brokers, and every tool that lists the members of a group, call a client of a query."""

from __future__ import annotations

from collections.abc import Mapping

CLIENT_ID = "groupkafka"
"""The `client.id` of a client that works for no query, or for one that is not known yet."""


def named(settings: Mapping[str, str], query: str) -> dict[str, str]:
    """Return the settings of a client with `groupkafka-<query>` as its `client.id`, unless the user has set another one.

    The host is left out: brokers see and show it by themselves, and a quota for a `client.id` would be one for each host.

    Args:
        settings: Finished settings.
        query: A name that tells queries apart and stays over restarts: of a stream or of a query, from letters, digits and `-`.
    """
    return {**settings, "client.id": f"{CLIENT_ID}-{query}"} if settings.get("client.id") == CLIENT_ID else {**settings}
