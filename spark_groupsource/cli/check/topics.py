"""The subscribed topics: whether they are there, and may be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from confluent_kafka import KafkaError

from spark_groupsource.brokers.login_trouble import MISSING_ACL
from spark_groupsource.brokers.topics import TopicDescription
from spark_groupsource.cli.check.connection import lacks
from spark_groupsource.cli.check.findings import Finding, error, ok, warning
from spark_groupsource.cli.check.known import Source
from spark_groupsource.errors import GroupKafkaError
from spark_groupsource.partition import listed

_NO_ACL = MISSING_ACL[KafkaError.TOPIC_AUTHORIZATION_FAILED]


def describe_topics(source: Source) -> Iterator[Finding]:
    """Look up the topics. Add the partitions of those that may be read."""
    options, topics = source.options, source.topics
    try:
        names = options.subscribe or sorted({partition.topic for partition in topics.partitions()})
    except GroupKafkaError as refused:
        yield error("topics", str(refused))
        return
    if not names:
        yield warning(
            "topics",
            f"subscribePattern={options.subscribe_pattern} matches no topic that this user may describe (ACL DESCRIBE). The "
            "query would read nothing and wait for one. Check the pattern, which must match the whole name, and the ACLs.",
        )
        return
    readable: dict[str, TopicDescription] = {}
    for name, found in topics.describe(names).items():
        if isinstance(found, GroupKafkaError):
            yield error("topics", str(found))
        elif lacks("READ", found.operations):
            yield error("topics", f"{name}: this user may describe it, but not read it. {_NO_ACL}")
        else:
            readable[name] = found
            source.partitions += found.partitions
    if readable:
        yield ok("topics", _readable_text(readable))


def _readable_text(readable: Mapping[str, TopicDescription]) -> str:
    counts = listed(f"{name} ({len(topic.partitions)} partitions)" for name, topic in readable.items())
    known = all(topic.operations is not None for topic in readable.values())
    may = "may be read" if known else "may be described; the broker does not say whether they may be read"
    return f"{counts}: found, and {may}"
