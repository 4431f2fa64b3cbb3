"""Sets the `client.id` under which brokers and tools show a query's clients.

Tasks import this module, so it is separate from the modules that translate settings on the driver.
"""

from __future__ import annotations

from collections.abc import Mapping

CLIENT_ID = "groupkafka"
"""The `client.id` of a client that does not belong to a query, or whose query is not known yet."""


def named(settings: Mapping[str, str], query: str) -> dict[str, str]:
    """Return a client's settings with `client.id` set to `groupkafka-<query>`, unless the user has set another one.

    The `client.id` does not include the host, because brokers show the host anyway, and because a quota for the `client.id` would
    then apply to each host separately.

    Args:
        settings: The client's finished settings.
        query: A unique name for the stream or query that survives restarts, with letters, digits and `-`.
    """
    return {**settings, "client.id": f"{CLIENT_ID}-{query}"} if settings.get("client.id") == CLIENT_ID else dict(settings)
