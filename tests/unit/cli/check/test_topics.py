"""Topics that may be read, may only be described, or are not there. tests/kafka/check/test_topics.py asks real brokers."""

from __future__ import annotations

from typing import Any, cast

from spark_groupsource.brokers.topics import TopicDescription, Topics
from spark_groupsource.cli.check.findings import Finding, Level
from spark_groupsource.cli.check.known import Source
from spark_groupsource.cli.check.topics import describe_topics
from spark_groupsource.errors import GroupKafkaError, TopicNotFound
from spark_groupsource.partition import TopicPartition
from tests.support.check_sources import ONE, OTHER, ZERO, only, source


class Found:
    """The brokers' answer."""

    def __init__(self, answer: dict[str, TopicDescription | GroupKafkaError]) -> None:
        self.answer = answer

    def describe(self, names: list[str]) -> dict[str, TopicDescription | GroupKafkaError]:
        return {name: self.answer[name] for name in names}

    def partitions(self) -> list[TopicPartition]:
        return [
            partition for found in self.answer.values() if isinstance(found, TopicDescription) for partition in found.partitions
        ]


def described(known: Source, **answer: TopicDescription | GroupKafkaError) -> list[Finding]:
    known.topics = cast("Topics", cast("Any", Found(answer)))
    return list(describe_topics(known))


def topic(*partitions: TopicPartition, allowed: frozenset[str] | None = frozenset({"READ"})) -> TopicDescription:
    return TopicDescription(frozenset(partitions), allowed)


def test_the_partitions_of_a_topic_that_may_be_read_are_known_to_later_steps() -> None:
    known = source()
    found = only(iter(described(known, orders=topic(ZERO, ONE))))
    assert (found.level, found.text) == (Level.OK, "orders (2 partitions): found, and may be read")
    assert sorted(known.partitions) == [ZERO, ONE]


def test_a_topic_that_is_missing_or_may_not_be_read_hides_no_other() -> None:
    known = source(subscribe="orders,others,missing")
    others = topic(OTHER, allowed=frozenset({"DESCRIBE"}))
    found = described(known, orders=topic(ZERO), others=others, missing=TopicNotFound("no such topic"))
    assert [finding.level for finding in found] == [Level.ERROR, Level.ERROR, Level.OK]
    assert any(finding.text == "no such topic" for finding in found)
    assert any(finding.text.startswith("others: this user may describe it, but not read it. ") for finding in found)
    assert known.partitions == [ZERO]


def test_brokers_that_do_not_say_what_is_allowed_are_believed() -> None:
    (found,) = described(source(), orders=topic(ZERO, allowed=None))
    assert found.level is Level.OK
    assert "the broker does not say whether they may be read" in found.text
