"""The names of the options that were given: missing, refused, misspelt, or for the other kind of read."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping

from spark_groupsource.kafka_settings.secrets import shown_name
from spark_groupsource.kafka_settings.tables import KNOWN_NAMES, PRODUCER_ONLY

REFUSED_OPTIONS: Mapping[str, str] = {
    "assign": (
        "a consumer group assigns the partitions itself. Write subscribe with the names of the topics, or read fixed "
        'partitions with Spark\'s own source, format("kafka")'
    ),
}
"""Options that are known and refused, and why."""

IGNORED = frozenset({"groupidprefix"})
"""Options without effect, in lower case. Spark ignores them, too, once kafka.group.id is set."""

SERVERS_MISSING = "kafka.bootstrap.servers is missing: set it to one or more brokers, such as host:port,host:port."

REQUIRED: Mapping[str, str] = {
    "bootstrap.servers": SERVERS_MISSING,
    "group.id": (
        "kafka.group.id is missing: groupkafka reads as a member of a consumer group. Set it to the name of the group. Queries "
        "and other consumers with the same name share the partitions of the topics."
    ),
}


def is_kafka(name: str) -> bool:
    """Return whether an option is a setting of the Kafka client."""
    return name.startswith("kafka.")


def missing_options(options: set[str], kafka: set[str], given: set[str]) -> Iterator[str]:
    """Yield the mistakes of options that are required and missing, or exclude each other."""
    if {"subscribe", "subscribePattern"} <= options:
        yield "subscribe and subscribePattern exclude each other: remove one of them."
    elif not options & {"subscribe", "subscribePattern"} and "assign" not in given:
        yield "subscribe or subscribePattern is missing: name the topics to read, or set a regular expression for them."
    aliases = {"bootstrap.servers": "metadata.broker.list"}
    for name, message in REQUIRED.items():
        if name not in kafka and aliases.get(name) not in kafka:
            yield message


def unusable_names(names: Iterator[str], options: Collection[str]) -> Iterator[str]:
    """Yield the mistakes of names that are no options here. Values are not shown: the option of a secret may be misspelt."""
    refused = {name.lower(): name for name in REFUSED_OPTIONS}
    known = {name.lower(): name for name in options}
    for name in sorted(names):
        if name in refused:
            yield f"{refused[name]}: {REFUSED_OPTIONS[refused[name]]}."
        elif name in KNOWN_NAMES or name in PRODUCER_ONLY:
            yield f"{name}: there is no option of this name. Did you mean kafka.{name}?"
        else:
            nearest = () if shown_name(name) != name else difflib.get_close_matches(name, known, n=3, cutoff=0.6)
            hint = f"Did you mean {' or '.join(known[near] for near in nearest)}?" if nearest else _list_of_options(known)
            yield f"{shown_name(name)}: there is no option of this name. {hint}"


def _list_of_options(known: Mapping[str, str]) -> str:
    names = sorted(name for name in known.values() if not is_kafka(name))
    return f"The options are {', '.join(names)} and kafka.*, the settings of Kafka's client."
