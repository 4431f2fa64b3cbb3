"""Defines the findings of `groupkafka check`, and the steps that source and sink share: files, brokers, TLS and login.

A finding tells what a step found. If something is wrong, it also tells what this means for the query or its data, and what to do.
A finding that is `ok` has no advice.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from spark_groupsource.brokers.topics import Topics
from spark_groupsource.errors import AuthenticationFailed, BrokerError, OptionError


class Level(Enum):
    """The severity of a finding. With an error the query cannot run with these options."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """One line of the output. `check` names the step in one or two words. The text may contain names that clients chose."""

    level: Level
    check: str
    text: str


def ok(check: str, text: str) -> Finding:
    """Return a finding that needs no action."""
    return Finding(Level.OK, check, text)


def warning(check: str, text: str) -> Finding:
    """Return a finding with which the query can still run."""
    return Finding(Level.WARNING, check, text)


def error(check: str, text: str) -> Finding:
    """Return a finding with which the query cannot run."""
    return Finding(Level.ERROR, check, text)


class Connected(Protocol):
    """The options and brokers of a source or a sink."""

    @property
    def kafka(self) -> Mapping[str, str]:
        """The options `kafka.*`, translated for librdkafka."""

    @property
    def topics(self) -> Topics:
        """The topics at the brokers. The first use makes a client, and may raise OptionError or AuthenticationFailed."""


def _unreadable_files(kafka: Mapping[str, str]) -> Iterator[Finding]:
    """Report files in the settings that cannot be read. librdkafka would report a missing file only as a failure of TLS."""
    for name, value in sorted(kafka.items()):
        if name.endswith(".location") and value != "probe" and not os.access(value, os.R_OK):
            text = f"{value}: there is no such file, or this user may not read it (librdkafka's setting {name})."
            yield error("options", f"{text} The driver and each executor need the file at this path.")


def reach_brokers(known: Connected) -> Generator[Finding, None, bool]:
    """Report whether the brokers answer, and with which security. Return whether they answer: all other steps need them."""
    unreadable = list(_unreadable_files(known.kafka))
    yield from unreadable
    if unreadable:
        return False
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
        return True
    return False


def judge_security(kafka: Mapping[str, str]) -> Finding:
    """Return a finding about the security of the connection on which the brokers have answered."""
    protocol = kafka.get("security.protocol", "plaintext").upper()
    parts = [protocol]
    if "SASL" in protocol:
        parts.append(f"{kafka['sasl.mechanism']}: the login is accepted")
    if protocol == "PLAINTEXT":
        parts.append("no encryption and no login")
    trusts_all = "SSL" in protocol and kafka.get("enable.ssl.certificate.verification") == "false"
    if trusts_all:
        parts.append("any certificate is accepted, so anyone can impersonate a broker")
    elif "SSL" in protocol:
        parts.append("the brokers' certificate is trusted")
        if kafka.get("ssl.endpoint.identification.algorithm") == "none":
            parts.append("but its host name is not checked (kafka.ssl.endpoint.identification.algorithm)")
    text = ", ".join(parts)
    if trusts_all:
        return warning("security", f"{text}. Remove kafka.enable.ssl.certificate.verification=false.")
    return ok("security", text)


def lacks(operation: str, allowed: frozenset[str] | None) -> bool:
    """Return whether this user lacks the right to an operation (KIP-430). `None` means that the broker does not report rights."""
    return allowed is not None and operation not in allowed
