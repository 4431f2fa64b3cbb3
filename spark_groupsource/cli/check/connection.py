"""Files, brokers, TLS and login: the same steps for the source and for the sink."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Protocol

from spark_groupsource.brokers.topics import Topics
from spark_groupsource.cli.check.findings import Finding, error, ok, warning
from spark_groupsource.errors import AuthenticationFailed, BrokerError, OptionError


class Connected(Protocol):
    """What is known of a query that reads or writes."""

    @property
    def kafka(self) -> Mapping[str, str]:
        """The options `kafka.*`, translated for librdkafka."""

    @property
    def topics(self) -> Topics:
        """The brokers. To make their client may raise OptionError or AuthenticationFailed."""


def find_unreadable_files(known: Connected) -> Iterator[Finding]:
    """Find the files of settings that cannot be read. If one is missing, librdkafka reports only that TLS failed."""
    for name, value in sorted(known.kafka.items()):
        if name.endswith(".location") and value != "probe" and not os.access(value, os.R_OK):
            text = f"{value}: there is no such file, or this user may not read it (librdkafka's setting {name})."
            yield error("options", f"{text} The file must exist on the driver's machine and on each executor's.")


def reach_brokers(known: Connected) -> Iterator[Finding]:
    """Find whether the brokers answer, and what was needed for that."""
    try:
        cluster = known.topics.cluster_id()
    except OptionError as wrong:
        yield error("options", str(wrong))
    except AuthenticationFailed as refused:
        yield error("security", str(refused))
    except BrokerError as unreached:
        yield error("brokers", str(unreached))
    else:
        yield ok("brokers", f"{known.kafka['bootstrap.servers']} answers; the cluster is {cluster}")
        yield judge_security(known.kafka)


def judge_security(kafka: Mapping[str, str]) -> Finding:
    """Return what was needed to get an answer from the brokers."""
    protocol = kafka.get("security.protocol", "plaintext").upper()
    parts = [protocol]
    if "SASL" in protocol:
        parts.append(f"{kafka['sasl.mechanism']}: the login is accepted")
    if protocol == "PLAINTEXT":
        parts.append("no encryption and no login")
    trusts_all = "SSL" in protocol and kafka.get("enable.ssl.certificate.verification") == "false"
    if trusts_all:
        parts.append("any certificate is accepted, so anybody can impersonate a broker")
    elif "SSL" in protocol:
        parts.append("the brokers' certificate is trusted")
        if kafka.get("ssl.endpoint.identification.algorithm") == "none":
            parts.append("but its host name is not checked (kafka.ssl.endpoint.identification.algorithm)")
    text = ", ".join(parts)
    if trusts_all:
        return warning("security", f"{text}. Remove kafka.enable.ssl.certificate.verification=false.")
    return ok("security", text)


def lacks(operation: str, allowed: frozenset[str] | None) -> bool:
    """Return whether an operation is not allowed (KIP-430). `None` is a broker that does not say what is."""
    return allowed is not None and operation not in allowed
