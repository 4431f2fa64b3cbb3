"""`subscribePattern`: one regular expression that means the same in Java, in Python and at the broker."""

from __future__ import annotations

import re
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_groupsource.options.model import Options
from spark_groupsource.options.topic_pattern import common_pattern
from tests.support.options import NEEDED, refusal


@pytest.mark.parametrize(
    ("java", "given_to_kafka", "matching", "other"),
    [
        ("orders|payments", "^(orders|payments)$", "payments", "payments-orders"),
        (r"orders-\d+", "^(orders-[0-9]+)$", "orders-42", "orders-x"),
        (r"(?:eu|us)\.[\w\-]+", r"^((eu|us)\.[A-Za-z0-9_-]+)$", "eu.a-b_c", "uk.a"),
        (r"(?<region>eu|us)-.*?", "^((eu|us)-.*)$", "us-", "us"),
        (r"\Qa.b\E.*", r"^(a\.b.*)$", "a.b.c", "aXb"),
        (r"\Aorders\z", "^(^orders$)$", "orders", "xorders"),
        ("^orders$", "^(^orders$)$", "orders", "orders1"),
        (r"[^_\d].*", "^([^0-9_].*)$", "orders", "_orders"),
        (r"a{2,3}b{1}c{0,}", "^(a{2,3}b{1}c{0,})$", "aab", "ab"),
        (r"[.\-^x]+", "^([.x^-]+)$", "x.-", "y"),
        (r"[\^]a", r"^(\^a)$", "^a", "a"),
        (r"a\-b\_c\.d", r"^(a-b_c\.d)$", "a-b_c.d", "a-b_cxd"),
    ],
)
def test_a_java_pattern_means_the_same_to_every_engine(java: str, given_to_kafka: str, matching: str, other: str) -> None:
    options = Options.parse({**NEEDED, "subscribePattern": java})
    assert options.subscribe_pattern == java
    assert options.subscription() == [given_to_kafka]
    assert options.matches(matching)
    assert not options.matches(other)


@pytest.mark.parametrize(
    ("java", "said"),
    [
        ("orders(?!-test).*", "(?! is a look-ahead"),
        (".*(?<!-test)", "(?<! is a look-behind"),
        ("(?>a|ab)c", "(?> is an atomic group"),
        ("(?i)orders", "write [Aa]"),
        ("a*+", "possessive repetition, which cannot be used; write *"),
        (r"(a)\1", r"\1 cannot be used"),
        (r"\D+", "write [^0-9]"),
        (r"\W+", "write [^A-Za-z0-9_]"),
        (r"a\s", "no blanks"),
        (r"\bword\b", "whole name"),
        (r"\p{Alpha}+", "write a class such as [A-Za-z]"),
        (r"\x41", r"\x cannot be used"),
        (r"[\D]", r"\D cannot be used"),
        ("[a-z&&[^b]]", "a class within a class"),
        ("[[a]b]", "a class within a class"),
        ("[z-a]", "runs backwards"),
        ("[.-9]", "write the character '-' last"),
        (r"[\.-9]", "write the character '-' last"),
        ("a*?+", "two repetitions in a row"),
        ("[]", "an empty class"),
        ("[a", "[ at position 0"),
        ("a{300}", "more than 255 times"),
        ("a||b", "an empty alternative or group"),
        ("(a", "not a regular expression"),
        ("bücher", "ASCII"),
    ],
)
def test_what_not_every_engine_has_is_refused_by_name(java: str, said: str) -> None:
    message = refusal({**NEEDED, "subscribePattern": java})
    assert message.startswith(f"subscribePattern = {java!r}: ")
    assert said in message


PIECES = re.findall(
    r"\S+", r"a b 0 - _ . \. [ab] [.-9] [a-] [-b] [a-b-] [b-a] [^^a] [^a0] [\w.-] \d \w (a|b) (?:0|a-) * + ? *? {1,2} |"
)


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=8).map("".join), st.lists(st.text("ab0-_.", max_size=6)))
def test_rewriting_a_pattern_does_not_change_what_it_matches(java: str, names: list[str]) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = re.compile(java)  # Python reads these pieces as Java does
        common = common_pattern(java)
    except (re.error, ValueError):
        return
    assert [bool(re.fullmatch(common, name)) for name in names] == [bool(expected.fullmatch(name)) for name in names]


def test_a_pattern_leaves_kafkas_own_topics_out_as_javas_consumer_does() -> None:
    options = Options.parse({**NEEDED, "subscribePattern": ".*"})
    assert not options.matches("__consumer_offsets")
    assert options.matches("__our_own")
    assert "^__consumer_offsets$" in options.member_settings()["topic.blacklist"]
    assert "topic.blacklist" not in {**options.client_settings(), **options.fetch_settings().client}


def test_kafkas_own_topics_are_read_when_they_are_asked_for() -> None:
    asked = Options.parse({**NEEDED, "subscribePattern": ".*", "kafka.exclude.internal.topics": "false"})
    assert asked.matches("__consumer_offsets")
    named = Options.parse({**NEEDED, "subscribe": "__consumer_offsets"})
    assert named.matches("__consumer_offsets")
    for options in (asked, named):
        assert "topic.blacklist" not in options.member_settings()
