"""What `groupkafka check` finds of files, login and ACLs: the same for the source and for the sink."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from spark_groupsource.brokers.topics import Topics
from spark_groupsource.cli.findings import Finding, Level
from spark_groupsource.errors import AuthenticationFailed, BrokerError, OptionError


@dataclass(frozen=True)
class _NoSubscription:
    """Topics are looked up by name."""

    subscribe: tuple[str, ...] = ()

    def matches(self, topic: str) -> bool:  # noqa: ARG002 -- no topic does
        return False


NO_SUBSCRIPTION = _NoSubscription()
"""Of a command that reads no topic."""


def unreadable_files(kafka: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the files of settings that cannot be read. If one is missing, librdkafka reports only that TLS failed."""
    for name, value in sorted(kafka.items()):
        if name.endswith(".location") and value != "probe" and not os.access(value, os.R_OK):
            text = f"{value}: there is no such file, or this user may not read it (librdkafka's setting {name})."
            yield Finding(Level.ERROR, "options", f"{text} The file must exist on the driver's machine and on each executor's.")


def reach(kafka: Mapping[str, str], make: Callable[[], Topics]) -> tuple[Topics | None, list[Finding]]:
    """Return the topics' client once the brokers have answered it, `None` if they have not, and what was found.

    Args:
        kafka: the options `kafka.*`, translated for librdkafka.
        make: makes the client.
    """
    try:
        topics = make()
        cluster = topics.cluster_id()
    except OptionError as wrong:
        return None, [Finding(Level.ERROR, "options", str(wrong))]
    except AuthenticationFailed as refused:
        return None, [Finding(Level.ERROR, "security", str(refused))]
    except BrokerError as unreached:
        return None, [Finding(Level.ERROR, "brokers", str(unreached))]
    answers = Finding(Level.OK, "brokers", f"{kafka['bootstrap.servers']} answers; the cluster is {cluster}")
    return topics, [answers, of_security(kafka)]


def of_security(kafka: Mapping[str, str]) -> Finding:
    """Return what was needed to get an answer from the brokers."""
    protocol = kafka.get("security.protocol", "plaintext").upper()
    said = [protocol]
    if "SASL" in protocol:
        said.append(f"{kafka['sasl.mechanism']}: the login is accepted")
    if protocol == "PLAINTEXT":
        said.append("no encryption and no login")
    if "SSL" not in protocol:
        return Finding(Level.OK, "security", ", ".join(said))
    if kafka.get("enable.ssl.certificate.verification") == "false":
        said.append("any certificate is accepted, so anybody can impersonate a broker")
        return Finding(Level.WARNING, "security", ", ".join(said) + ". Remove kafka.enable.ssl.certificate.verification=false.")
    said.append("the brokers' certificate is trusted")
    if kafka.get("ssl.endpoint.identification.algorithm") == "none":
        said.append("but its host name is not checked (kafka.ssl.endpoint.identification.algorithm)")
    return Finding(Level.OK, "security", ", ".join(said))


def lacks(operation: str, allowed: frozenset[str] | None) -> bool:
    """Return whether an operation is not allowed (KIP-430). `None` is a broker that does not say what is."""
    return allowed is not None and operation not in allowed
