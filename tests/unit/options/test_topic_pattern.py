"""`subscribePattern`: every engine reads it as Java does, or it is refused. tests/spark/test_same_as_builtin.py asks Java."""

from __future__ import annotations

import pytest

from spark_groupsource.options.model import Options
from spark_groupsource.options.topic_pattern import parse_topic_pattern
from tests.support.options import NEEDED, refusal

READ_ALIKE = (
    ("orders|payments", "payments", "payments-orders"),
    ("orders-[0-9]+", "orders-42", "orders-x"),
    (r"(eu|us)\.[A-Za-z0-9_-]+", "eu.a-b_c", "uk.a"),
    ("^orders$", "orders", "orders1"),
    ("(^eu|us$)", "us", "eu1"),
    ("[^_0-9].*", "orders", "_orders"),
    ("[^-a-c]x?", "dx", "-x"),
    ("a{2,3}b{1}c{0,}", "aab", "ab"),
    ("[.x-]+", "x.-", "y"),
    (r"(a\.b)*", "a.ba.b", "axb"),
    ("a-b_c.d", "a-b_cxd", "a-b_c"),
)
"""A pattern, a name that matches, and one that does not."""


@pytest.mark.parametrize(("pattern", "matching", "other"), READ_ALIKE)
def test_what_every_engine_reads_alike_is_passed_on_as_it_is(pattern: str, matching: str, other: str) -> None:
    options = Options.parse({**NEEDED, "subscribePattern": f" {pattern} "})
    assert options.subscribe_pattern == pattern
    assert options.subscription() == [f"^({pattern})$"]
    assert options.matches(matching)
    assert not options.matches(other)


@pytest.mark.parametrize(
    ("java", "said", "instead"),
    [
        ("orders(?!-test).*", "(?! is a look-around, which cannot be used: name the topics", "orders-(eu|us)"),
        (".*(?<!-test)", "(?<! is a look-around", ".*-(eu|us)"),
        ("(?:eu|us)-.*", "(? cannot be used: write (...) for a group", "(eu|us)-.*"),
        ("(?i)orders", "and [Aa] for a letter in either case", "[Oo]rders"),
        ("orders.*?", "*? is a lazy, possessive or second repetition, which cannot be used: write *, +, ? or {n,m}", "orders.*"),
        ("a*+", "*+ is a lazy, possessive", "a*"),
        (r"orders-\d+", r"\d cannot be used: write [0-9]", "orders-[0-9]+"),
        (r"\bword\b", r"\b cannot be used: remove it, because the pattern must match the whole name anyway", "word"),
        (r"\Aorders\z", r"\A cannot be used: remove it, because the pattern must match the whole name", "orders"),
        (r"\Qa.b\E.*", r"\Q cannot be used: write \. for each dot", r"a\.b.*"),
        (r"(a)\1", r"\1 cannot be used: write the characters", "aa"),
        (r"\p{Alpha}+", r"\p cannot be used: write the characters, or a class such as [A-Za-z]", "[A-Za-z]+"),
        (r"a\sb", r"\s cannot be used", "ab"),
        (r"a\-b", r"\- cannot be used: write the character without the \ ", "a-b"),
        (r"[\w.]+", "[\\w.] cannot be used: write one class with characters and ranges such as a-z or 0-9", "[A-Za-z0-9_.]+"),
        (r"[\.-]", "without \\", "[.-]"),
        ("[a-z&&[^b]]", "[a-z&&[^b] cannot be used: write one class", "[ac-z]"),
        ("[[:alpha:]]", "write one class", "[a-z]"),
        ("[a^]", "with '^' first", "[^a]"),
        ("[.-9]", "'-' last", "[.9-]"),
        ("[a", "[a cannot be used", "[a]"),
        ("[z-a]", "this is not a regular expression (bad character range z-a", "[a-z]"),
        ("a{300}", "repeat counts above 255", "a{255}"),
        ("a{1,300}", "repeat counts above 255", "a{1,255}"),
        ("a{,3}", r"{ is unbalanced: close the pair, or write \ before it", "a{0,3}"),
        ("a]", r"] is unbalanced: close the pair, or write \ before it", r"a\]"),
        ("a\\", "\\ is unbalanced", "a"),
        ("a||b", "| begins an empty alternative or group, which cannot be used: write (...)? for an optional part", "a|b"),
        ("(|a)", "( begins an empty alternative", "(a)?"),
        ("a|", "| begins an empty alternative", "(a)?"),
        ("(a", "this is not a regular expression (missing ), unterminated subpattern", "(a)"),
        ("a)(b", "this is not a regular expression (unbalanced parenthesis", "(a)(b)"),
        ("*a", "this is not a regular expression (nothing to repeat", "a*"),
        ("^*a", "this is not a regular expression (nothing to repeat", "^a"),
        ("bücher", "topic names contain only ASCII letters", "b.cher"),
    ],
)
def test_what_not_every_engine_reads_alike_is_refused_with_what_to_write_instead(java: str, said: str, instead: str) -> None:
    message = refusal({**NEEDED, "subscribePattern": java})
    assert message.startswith(f"subscribePattern = {java!r}: ")
    assert said in message
    assert parse_topic_pattern(instead) == instead


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
