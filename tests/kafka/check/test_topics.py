"""`groupkafka check`: topics that are not there, or may not be read."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.conftest import MakeTopic
from tests.kafka.check.conftest import Check, query
from tests.support.secured import Secured


def test_topics_without_acls_are_named_and_the_others_are_tried(
    secured: Secured, secured_topic: Callable[[str], str], check: Check
) -> None:
    readable, seen, closed = secured_topic("open-"), secured_topic("seen-"), secured_topic("closed-")
    checked = check(query("open-group", secured.login("SCRAM-SHA-256"), subscribe=f"{readable},{seen},{closed}"))
    assert checked.failed == ["topics", "topics"]
    assert f"looking up topic '{closed}'" in checked.errors[0][2]
    assert checked.errors[1][2].startswith(f"{seen}: this user may describe it, but not read it.")
    assert all("ACL READ on the topic" in line[2] for line in checked.errors)
    assert "has read 10 records" in checked.of("fetch")[0][2]


def test_a_topic_that_is_not_there_is_named(topic: MakeTopic, check: Check, plain: Mapping[str, str]) -> None:
    name = topic()
    checked = check(query(name, plain, subscribe=f"{name},no-such-topic"))
    assert checked.failed == ["topics"]
    assert "'no-such-topic'" in checked.errors[0][2]
    assert "Check subscribe or subscribePattern" in checked.errors[0][2]


def test_a_pattern_that_matches_nothing_is_a_warning(check: Check, plain: Mapping[str, str]) -> None:
    options = query("any", plain)
    del options["subscribe"]
    checked = check({**options, "subscribePattern": "no-such-.*"})
    assert checked.exit_code == 0
    assert checked.level("topics") == "warning"
    assert not checked.of("fetch")
