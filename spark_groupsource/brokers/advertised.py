"""Checks whether the brokers can be reached at their advertised addresses.

A client first connects to one of the `kafka.bootstrap.servers`, which returns each broker's address (`advertised.listeners`).
From then on, it connects only to these addresses. If they cannot be reached, its requests time out with errors that do not name
them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, as_completed

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]

from spark_groupsource.brokers.broker_errors import LEARNED
from spark_groupsource.brokers.client import make_client
from spark_groupsource.brokers.login_trouble import is_refused
from spark_groupsource.errors import BrokerUnavailable

CONNECT_S = 3.0
"""How long a connection to an address may take, including TLS and login. librdkafka's default is 30 s."""

RECONNECT_S = 1.0
"""How much longer to wait for a broker that has not answered. Meanwhile librdkafka reconnects to it, trying the next address if
its name resolves to several."""

_MOST = 50
"""The maximum number of brokers to ask. One answer is enough."""

BOOTSTRAP = re.compile(r"(\S+)/bootstrap\b")
"""Matches librdkafka's name for a bootstrap server. librdkafka's name for a broker ends with the broker's id instead."""


def refuse_unreachable(client_settings: Mapping[str, str]) -> None:
    """Raise an error if a bootstrap server answers but no broker answers at its advertised address.

    This takes a few milliseconds if a broker answers, and up to 14 s if none does.

    Args:
        client_settings: librdkafka settings that every client needs.

    Raises:
        BrokerUnavailable: No broker answers at its address. The message lists the addresses.
        OptionError: See `make_client`.
        AuthenticationFailed: See `make_client`.
    """
    errors: dict[int, tuple[str, str]] = {}
    refused: list[KafkaError] = []

    def note(error: KafkaError) -> None:
        if is_refused(error):
            refused.append(error)

    def take(line: logging.LogRecord) -> bool:
        # librdkafka reports a connection time-out only in its log. A line with a broker's id proves that a bootstrap server has
        # answered, because the client got the id from it.
        if line.args and line.args[0] == "FAIL" and (learned := LEARNED.search(line.getMessage())) is not None:  # type: ignore[index]
            errors[int(learned[2])] = learned[1], learned.string[learned.end() :]
        return False

    lines = logging.Logger(__name__)  # noqa: LOG001 -- its lines are for this function only
    lines.addFilter(take)
    quick = {
        "socket.connection.setup.timeout.ms": f"{CONNECT_S * 1000:.0f}",
        "reconnect.backoff.ms": "100",
        "reconnect.backoff.max.ms": f"{RECONNECT_S * 1000:.0f}",
        "log_level": "6",
    }
    admin = make_client(AdminClient, {**client_settings, **quick}, note, lines)
    answer = admin.describe_cluster(request_timeout=2 * CONNECT_S)
    while not (answer.done() or errors or refused):
        admin.poll(0.05)
    answered = answer.done() and answer.exception() is None
    if answered or refused or not errors or _any_answers(admin, errors):
        return
    found = sorted(errors.items())
    addresses = ", ".join(f"{address} (broker {broker})" for broker, (address, _) in found)
    reasons = "; ".join(reason for _, (_, reason) in found if reason)
    raise BrokerUnavailable(
        f"This machine cannot reach the brokers at the addresses that they advertise: {addresses}. A bootstrap server of "
        f"{client_settings['bootstrap.servers']} returned these addresses, but no broker answers at them: {reasons}. Nothing "
        "was read or written. Check the brokers' advertised.listeners, which this machine must be able to resolve and reach, "
        "and the network between this machine and these addresses."
    )


def _any_answers(admin: AdminClient, errors: dict[int, tuple[str, str]]) -> bool:
    """Return whether any broker answers at its address, even with a refusal. Add brokers that do not answer to `errors`.

    Args:
        admin: The client.
        errors: The address of each broker that has not answered and the reason, by broker id.
    """
    timeout_s = CONNECT_S + RECONNECT_S

    def ask(brokers: Iterable[int]) -> list[Future[object]]:
        resources = [ConfigResource(ResourceType.BROKER, str(broker)) for broker in brokers]
        return [future for broker in resources for future in admin.describe_configs([broker], request_timeout=timeout_s).values()]

    # Also ask brokers that have already failed. They may be restarting, or their host name may have another address.
    asked = ask(sorted(errors)[:_MOST])
    try:
        found = admin.list_topics(timeout=timeout_s)
    except KafkaException:
        pass  # the client has tried all brokers, one after the other
    else:
        if found.orig_broker_id >= 0:
            return True
        untried = [broker for broker in sorted(found.brokers.values(), key=lambda broker: broker.id) if broker.id not in errors]
        asked += ask(broker.id for broker in untried[:_MOST])
        errors.update({broker.id: (f"{broker.host}:{broker.port}", "") for broker in untried})
    return any((failed := answer.exception()) is None or failed.args[0].code() >= 0 for answer in as_completed(asked))
