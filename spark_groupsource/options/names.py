"""Finds options that are missing, refused or misspelled."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping

from spark_groupsource.kafka_settings.secrets import shown_name
from spark_groupsource.kafka_settings.tables import KNOWN_NAMES, PRODUCER_ONLY

REFUSED_OPTIONS: Mapping[str, str] = {
    "assign": (
        "a consumer group assigns the partitions. Write subscribe with the names of the topics, or read fixed partitions with "
        'Spark\'s own source, format("kafka")'
    ),
}
"""Known options that are refused, each with the reason."""

OTHERWISE_NAMED: Mapping[str, tuple[str, ...]] = {
    "topic": ("subscribe",),
    "topics": ("subscribe", "topic"),
    "subscribe": ("topic",),
}
"""The options that a user probably means by a name from another connector, or by the sink's `topic`."""

IGNORED = frozenset({"groupidprefix", "fetchoffset.numretries", "fetchoffset.retryintervalms"})
"""Options of Spark's own source that have no effect here, in lower case. With kafka.group.id, Spark also ignores the first
one."""

SERVERS_MISSING = "kafka.bootstrap.servers is missing: set it to one or more brokers, such as host:port,host:port."

REQUIRED: Mapping[str, str] = {
    "bootstrap.servers": SERVERS_MISSING,
    "group.id": (
        "kafka.group.id is missing: groupkafka reads as a member of a consumer group. Set it to the group's name. All queries "
        "and consumers with this name share the topics' partitions."
    ),
}


def is_kafka(name: str) -> bool:
    """Return whether an option is a Kafka client setting."""
    return name.startswith("kafka.")


def missing_options(options: set[str], kafka: set[str], given: set[str]) -> Iterator[str]:
    """Yield a problem for each required option that is missing, and one if there are two subscriptions."""
    if {"subscribe", "subscribePattern"} <= options:
        yield "subscribe and subscribePattern cannot be combined: remove one of them."
    elif not options & {"subscribe", "subscribePattern"} and not given & {"assign", "topic", "topics"}:
        yield "subscribe or subscribePattern is missing: set the topics to read, or a regular expression for them."
    aliases = {"bootstrap.servers": "metadata.broker.list"}
    for name, message in REQUIRED.items():
        if name not in kafka and aliases.get(name) not in kafka:
            yield message


def unusable_names(names: Iterable[str], options: Collection[str]) -> Iterator[str]:
    """Yield a problem for each name that is not an option, without its value, which may be a secret if the name is misspelled.

    Args:
        names: The names that the user set. Spark passes them on in lower case.
        options: The names of all options.
    """
    refused = {name.lower(): name for name in REFUSED_OPTIONS}
    known = {name.lower(): name for name in options}
    for name in sorted(names):
        lower = name.lower()
        if lower in refused:
            yield f"{refused[lower]}: {REFUSED_OPTIONS[refused[lower]]}."
        elif lower in KNOWN_NAMES or lower in PRODUCER_ONLY:
            yield f"{name}: there is no option with this name. Did you mean kafka.{lower}?"
        else:
            nearest = _meant(name, known)
            shown = shown_name(_with_capitals_of(nearest[0], name) if nearest else name)
            hint = f"Did you mean {' or '.join(nearest)}?" if nearest else _list_of_options(known)
            yield f"{shown}: there is no option with this name. {hint}"


def _meant(name: str, known: Mapping[str, str]) -> list[str]:
    """Return the options that the user probably meant, most likely first."""
    if shown_name(name) != name:
        return []
    lower = name.lower()
    otherwise = [option for option in OTHERWISE_NAMED.get(lower, ()) if option in known.values()]
    return otherwise or [known[near] for near in difflib.get_close_matches(lower, known, n=3, cutoff=0.6)]


def _with_capitals_of(option: str, name: str) -> str:
    """Return a name with the capitals that the user probably wrote, because Spark passes on only its lower-case form."""
    if name != name.lower() or "_" in name:
        return name
    letters = list(name)
    for in_name, in_option, length in difflib.SequenceMatcher(None, name, option.lower(), autojunk=False).get_matching_blocks():
        letters[in_name : in_name + length] = option[in_option : in_option + length]
    return "".join(letters)


def _list_of_options(known: Mapping[str, str]) -> str:
    names = sorted(name for name in known.values() if not is_kafka(name))
    return f"The options are {', '.join(names)} and kafka.* for the settings of the Kafka client."
