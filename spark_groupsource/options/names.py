"""Finds options that are missing, refused or misspelled."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

from spark_groupsource.kafka_settings.secrets import shown_name
from spark_groupsource.kafka_settings.tables import KNOWN_NAMES, PRODUCER_ONLY

ASSIGN_REFUSED = (
    "assign: a consumer group assigns the partitions. Use subscribe with the topics' names, or read fixed partitions "
    'with Spark\'s own source, format("kafka").'
)

OTHERWISE_NAMED: Mapping[str, tuple[str, ...]] = {
    "topic": ("subscribe",),
    "topics": ("subscribe", "topic"),
    "subscribe": ("topic",),
}
"""The options that a user probably means by a name from another connector, or by the sink's `topic`."""

IGNORED = frozenset({"groupidprefix", "fetchoffset.numretries", "fetchoffset.retryintervalms"})
"""Options of Spark's own source that have no effect in this source, in lower case. With kafka.group.id, Spark also ignores the
first one."""

SERVERS_MISSING = "kafka.bootstrap.servers is missing: set it to one or more brokers, such as host:port,host:port."

GROUP_MISSING = (
    "kafka.group.id is missing: groupkafka reads as a member of a consumer group. Set it to the group's name. All queries and "
    "consumers that use this name share the topics' partitions."
)


def is_kafka(name: str) -> bool:
    """Return whether an option is a Kafka client setting."""
    return name.startswith("kafka.")


def missing_options(given: AbstractSet[str], *, writes: bool) -> Iterator[str]:
    """Yield a problem for each required option that is missing, and one if there are two subscriptions.

    Args:
        given: The names that the user set, in lower case.
        writes: Whether these are a sink's options.
    """
    if not writes and {"subscribe", "subscribepattern"} <= given:
        yield "subscribe and subscribePattern cannot be combined: remove one of them."
    elif not writes and not {"subscribe", "subscribepattern", "assign", "topic", "topics"} & given:
        yield "subscribe or subscribePattern is missing: set the topics to read, or a regular expression for them."
    if not {"kafka.bootstrap.servers", "kafka.metadata.broker.list"} & given:
        yield SERVERS_MISSING
    if not writes and "kafka.group.id" not in given:
        yield GROUP_MISSING


def unusable_names(names: Iterable[str], options: Collection[str]) -> Iterator[str]:
    """Yield a problem for each name that is not an option, without its value, which may be a secret if the name is misspelled.

    Args:
        names: The names that the user set. Spark passes them on in lower case.
        options: The names of all options.
    """
    known = {name.lower(): name for name in options}
    for name in sorted(names):
        lower = name.lower()
        if lower == "assign":
            yield ASSIGN_REFUSED
        elif lower in KNOWN_NAMES or lower in PRODUCER_ONLY:
            yield f"{name}: there is no option with this name. Did you mean kafka.{lower}?"
        else:
            nearest = _meant(name, known)
            hint = f"Did you mean {' or '.join(nearest)}?" if nearest else _list_of_options(known)
            yield f"{shown_name(name)}: there is no option with this name. {hint}"


def _meant(name: str, known: Mapping[str, str]) -> list[str]:
    """Return the options that the user probably meant, most likely first."""
    if shown_name(name) != name:
        return []
    lower = name.lower()
    otherwise = [option for option in OTHERWISE_NAMED.get(lower, ()) if option in known.values()]
    return otherwise or [known[near] for near in difflib.get_close_matches(lower, known, n=3, cutoff=0.6)]


def _list_of_options(known: Mapping[str, str]) -> str:
    names = sorted(name for name in known.values() if not is_kafka(name))
    return f"The options are {', '.join(names)} and kafka.* for the settings of the Kafka client."
