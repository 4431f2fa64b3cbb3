"""Whether the brokers can be reached at the addresses that they advertise.

A client connects to a server of `kafka.bootstrap.servers`, whose answer has the address of each broker (`advertised.listeners`).
From then on the client connects to these addresses only. If it cannot, its requests time out, and their errors name no address.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, as_completed

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]

from spark_groupsource.brokers.broker_errors import LEARNED
from spark_groupsource.brokers.client import LastError, make_client
from spark_groupsource.brokers.login_trouble import is_refused
from spark_groupsource.errors import BrokerUnavailable

FIRST_ANSWER_S = 3.0
"""How long the first answer of a broker may take before the addresses are tried."""

CONNECT_S = 3.0
"""How long one connection may take, with TLS and login, when the addresses are tried. librdkafka's default is 30 s."""

RECONNECT_S = 1.0
"""How much longer the brokers may take to answer when one has not answered. librdkafka connects to that one again meanwhile, at
the next address if its name has several."""

_MOST = 50
"""So many brokers are asked. One that answers is enough."""

_BOOTSTRAP = re.compile(r"(\S+)/bootstrap\b")
"""librdkafka's name of a server whose address comes from `bootstrap.servers`. That of a broker ends with the broker's id."""


def await_first_answer(admin: AdminClient, last_error: LastError, client_settings: Mapping[str, str]) -> None:
    """Wait until a broker has answered a new client, and return at once if one has. If none does, try the addresses.

    Args:
        admin: The client.
        last_error: Its errors. It also notes that the client has had its first answer.
        client_settings: The client's settings.

    Raises:
        BrokerUnavailable: As `refuse_unreachable` does. The next call waits again.
    """
    if last_error.is_answered:
        return
    try:
        admin.describe_cluster(request_timeout=FIRST_ANSWER_S).result()
    except KafkaException:
        reported = last_error.newest(admin)
        # Whoever asks next learns that the login is refused, or that no bootstrap server answers.
        if reported is None or not (is_refused(reported) or _BOOTSTRAP.search(reported.str())):
            refuse_unreachable(client_settings)
    last_error.is_answered = True


def refuse_unreachable(client_settings: Mapping[str, str]) -> None:
    """Refuse brokers of which none answers at the address that it advertises, although a bootstrap server does.

    Takes up to 14 s, and some milliseconds if a broker answers.

    Args:
        client_settings: librdkafka settings that every client needs.

    Raises:
        BrokerUnavailable: No broker answers at its address. The text has the addresses.
        OptionError: As `make_client` does.
        AuthenticationFailed: As `make_client` does.
    """
    errors: dict[int, tuple[str, str]] = {}
    refused: list[KafkaError] = []

    def note(error: KafkaError) -> None:
        if is_refused(error):
            refused.append(error)

    def take(line: logging.LogRecord) -> bool:
        # Only the log tells of a connection that was given up because nobody answered. A client has the name of a broker, with
        # its id, from a bootstrap server: so one has answered.
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
    asked = admin.describe_cluster(request_timeout=2 * CONNECT_S)
    while not (asked.done() or errors or refused):
        admin.poll(0.05)
    answered = asked.done() and asked.exception() is None
    if answered or refused or not errors or _any_answers(admin, errors):
        return
    found = sorted(errors.items())
    addresses = ", ".join(f"{address} (broker {broker})" for broker, (address, _) in found)
    reasons = "; ".join(reason for _, (_, reason) in found if reason)
    raise BrokerUnavailable(
        f"The brokers advertise an address at which this machine does not reach them: {addresses}. A bootstrap server of "
        f"{client_settings['bootstrap.servers']} answered with it, and no broker answers there: {reasons}. Nothing was read or "
        "written. Check advertised.listeners of the brokers: this machine has to resolve and to reach what they advertise. Or "
        "check the network between this machine and that address."
    )


def _any_answers(admin: AdminClient, errors: dict[int, tuple[str, str]]) -> bool:
    """Return whether a broker answers at its address, if only with a refusal. Add those that do not.

    Args:
        admin: The client.
        errors: The address of each broker that has not answered, and why, by its id.
    """
    timeout_s = CONNECT_S + RECONNECT_S

    def ask(brokers: Iterable[int]) -> list[Future[object]]:
        resources = [ConfigResource(ResourceType.BROKER, str(broker)) for broker in brokers]
        return [future for broker in resources for future in admin.describe_configs([broker], request_timeout=timeout_s).values()]

    # Those that have failed once may be reached at another address of the same name, or may be restarting.
    asked = ask(sorted(errors)[:_MOST])
    try:
        found = admin.list_topics(timeout=timeout_s)
    except KafkaException:
        pass  # the client has tried all brokers in turn
    else:
        if found.orig_broker_id >= 0:
            return True
        others = [broker for broker in sorted(found.brokers.values(), key=lambda broker: broker.id) if broker.id not in errors]
        asked += ask(broker.id for broker in others[:_MOST])
        errors.update({broker.id: (f"{broker.host}:{broker.port}", "") for broker in others})
    return any((failed := answer.exception()) is None or failed.args[0].code() >= 0 for answer in as_completed(asked))
