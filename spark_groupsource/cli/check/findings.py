"""Defines `groupkafka check` findings, and the steps that the source and the sink share: files, brokers, TLS and login.

A finding describes what a step found. If something is wrong, it also explains what this means for the query or its data, and what
to do. An `ok` finding has no advice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from spark_groupsource.brokers.topics import Topics
from spark_groupsource.cli.open_transactions import Visibility
from spark_groupsource.errors import AuthenticationFailed, BrokerError, GroupKafkaError, OptionError
from spark_groupsource.partition import listed

Subject = TypeVar("Subject")
"""A source or a sink."""


class Level(Enum):
    """A finding's severity. If there is an error, the query cannot run with these options."""

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
    """Return a finding that does not prevent the query from running."""
    return Finding(Level.WARNING, check, text)


def error(check: str, text: str) -> Finding:
    """Return a finding that prevents the query from running."""
    return Finding(Level.ERROR, check, text)


def _unreadable_files(kafka: Mapping[str, str]) -> Iterator[Finding]:
    """Report files in the settings that cannot be read. librdkafka would report a missing file only as a TLS failure."""
    for name, value in sorted(kafka.items()):
        if name.endswith(".location") and value != "probe" and not os.access(value, os.R_OK):
            text = f"{value}: there is no such file, or this user is not allowed to read it (librdkafka setting {name})."
            yield error("options", f"{text} The driver and each executor need the file at this path.")


def reach_brokers(kafka: Mapping[str, str], topics: Callable[[], Topics]) -> Generator[Finding, None, bool]:
    """Report whether the brokers answer, and how the connection is secured. Return whether the other steps can go ahead.

    Args:
        kafka: the `kafka.*` options, translated for librdkafka.
        topics: returns the brokers' topics. The first call creates a client.
    """
    unreadable = list(_unreadable_files(kafka))
    yield from unreadable
    if unreadable:
        return False
    try:
        cluster = topics().cluster_id()
    except OptionError as wrong:
        yield error("options", str(wrong))
    except AuthenticationFailed as refused:
        yield error("security", str(refused))
    except BrokerError as unreached:
        yield error("brokers", str(unreached))
    else:
        yield ok("brokers", f"{kafka['bootstrap.servers']} answers; the cluster is {cluster}")
        yield judge_security(kafka)
        return True
    return False


def judge_security(kafka: Mapping[str, str]) -> Finding:
    """Return a finding about the security of a connection on which the brokers have answered."""
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


def run(steps: Mapping[str, Callable[[Subject], Iterator[Finding]]], subject: Subject) -> Iterator[Finding]:
    """Run each step, and report an error for each step that the brokers refuse."""
    for check, step in steps.items():
        try:
            yield from step(subject)
        except GroupKafkaError as refused:
            yield error(check, str(refused))


def lacks(operation: str, allowed: frozenset[str] | None) -> bool:
    """Return whether this user lacks permission for an operation (KIP-430), or `False` if the broker does not report rights."""
    return allowed is not None and operation not in allowed


def judge_visibility(read: str, visibilities: Sequence[Visibility], topic: str) -> Finding:
    """Return a finding about whether open transactions hide records.

    Args:
        read: what is read. The text begins with it.
        visibilities: how much of each partition is visible.
        topic: the topic for the command that shows more.
    """
    hidden = {visible.partition: visible.hidden for visible in visibilities if visible.hidden}
    if hidden:
        return warning(
            "isolation",
            f"{read}: open transactions block {sum(hidden.values())} offsets, in {listed(hidden)}. read_committed consumers "
            "cannot read these offsets until the transactions commit or abort. To see which tasks may have these transactions "
            f"open, and how to close them, run: groupkafka transactions --topic {topic}.",
        )
    if silent := [visible.partition for visible in visibilities if visible.hidden is None]:
        text = (
            f"{read}: the leaders of {listed(silent)} did not answer, so it is not known whether open transactions block reading"
        )
        return warning("isolation", text)
    return ok("isolation", f"{read}: no open transaction blocks reading")
