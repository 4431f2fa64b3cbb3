"""`subscribePattern`: a Java regular expression, rewritten so that three engines read it alike.

The engines are the POSIX expressions of the C library (librdkafka, classic), RE2/J (the broker, KIP-848) and Python's re
(`Options.matches`). The rewritten pattern means the same in all three as the original means in Java.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

INTERNAL_TOPICS = ("__consumer_offsets", "__share_group_state", "__transaction_state")
"""Kafka's own topics, which Java's consumer leaves out of a pattern (`exclude.internal.topics`)."""

_ONLY_COMMON = "only what every Kafka client supports can be used: letters, digits, '.', [...], (...|...), *, +, ? and {n,m}"

_REFUSED_GROUPS: Mapping[str, str] = {
    "(?=": "a look-ahead, which cannot be used; name the topics that are wanted",
    "(?!": "a look-ahead, which cannot be used; name the topics that are wanted instead of the others",
    "(?<=": "a look-behind, which cannot be used; name the topics that are wanted",
    "(?<!": "a look-behind, which cannot be used; name the topics that are wanted instead of the others",
    "(?>": f"an atomic group, which cannot be used; {_ONLY_COMMON}",
    "(?": "a flag, which cannot be used; write [Aa] for a letter in either case",
}
_SHORT_CLASSES = {"d": "0-9", "w": "A-Za-z0-9_"}
_REFUSED_ESCAPES: Mapping[str, str] = {
    "D": "write [^0-9]",
    "W": "write [^A-Za-z0-9_]",
    "s": "topic names have no blanks",
    "S": "write .",
    "p": "write a class such as [A-Za-z]",
    "P": "write a class such as [^A-Za-z]",
    "b": "the pattern must match the whole name; write the characters at the boundary",
    "B": "the pattern must match the whole name; write the characters there",
}
_REPEATS = ("*", "+", "?", "{")
_MAX_REPEAT = 255
"""POSIX's RE_DUP_MAX."""

_PATTERN_TOKEN = re.compile(
    r"""\\Q(?P<quoted>.*?)(?:\\E|$)
    | \\(?P<edge>[AzZ])
    | \\(?P<escaped>.)
    | (?P<group>\((?!\?)|\(\?:|\(\?<[A-Za-z][A-Za-z0-9]*>)
    | (?P<refused>\(\?(?:=|!|<=|<!|>)?)
    | \[(?P<class>\^?(?:\\.|[^\]\\])*)\]
    | (?P<repeat>[*+?]|\{[0-9]+(?:,[0-9]*)?\})(?P<greed>[?+]?)
    | (?P<plain>[^\\\[{}\]])""",
    re.VERBOSE | re.DOTALL,
)
_CLASS_TOKEN = re.compile(r"(?P<low>[A-Za-z0-9])-(?P<high>[A-Za-z0-9])|\\(?P<escaped>.)|(?P<plain>.)", re.DOTALL)


def _escape(character: str, shorts: Mapping[str, str]) -> str:
    """Return what `\\character` means."""
    if character in shorts:
        return shorts[character]
    if character.isalnum():
        reason = _REFUSED_ESCAPES.get(character, _ONLY_COMMON)
        raise ValueError(f"\\{character} cannot be used: {reason}")
    return character if character in "-_" else "\\" + character


def _class(text: str) -> str:
    """Rewrite the text between the brackets of a class without escapes, which POSIX does not have there."""
    negated, text = text.startswith("^"), text.removeprefix("^")
    ranges, characters = "", ""
    after_character = False
    for token in _CLASS_TOKEN.finditer(text):
        if token["low"]:
            if token["low"] > token["high"]:
                raise ValueError(f"the range {token[0]} in [...] runs backwards")
            ranges += token[0]
        elif token["escaped"] in _SHORT_CLASSES:
            ranges += _SHORT_CLASSES[token["escaped"]]
        elif token[0] == "-" and after_character and token.end() < len(text):
            raise ValueError(
                "a range in [...] must be from a letter to a letter or from a digit to a digit; write the character '-' last"
            )
        else:
            characters += token["plain"] or _escape(token["escaped"], {}).removeprefix("\\")
        after_character = bool(token["plain"] or token["escaped"] not in (None, *_SHORT_CLASSES))
    if "&&" in characters or set(characters) & set("[]\\"):
        raise ValueError("a class within a class ([...[...]], &&) cannot be used: write one class")
    if not ranges and not characters:
        raise ValueError("an empty class [] cannot be used")
    # A hyphen is a character only at the end, and ^ only after the beginning. Python warns of duplicates such as -- and ||.
    listed = "".join(sorted(set(characters), key=lambda character: (character == "-", character == "^", character)))
    if listed.startswith("^") and not ranges and not negated:
        listed = listed[1:] + "^" if listed[1:2] != "-" else "-^"
    if not ranges and not negated and listed == "^":
        return "\\^"
    return f"[{'^' if negated else ''}{ranges}{listed}]"


def _common_token(token: re.Match[str]) -> str:
    kind = token.lastgroup
    if token["quoted"] is not None:
        return re.sub(r"([\\.\[\](){}*+?|^$])", r"\\\1", token["quoted"])
    if token["edge"]:
        return "^" if token["edge"] == "A" else "$"
    if token["escaped"]:
        return _escape(token["escaped"], {short: f"[{ranges}]" for short, ranges in _SHORT_CLASSES.items()})
    if token["refused"]:
        raise ValueError(f"{token['refused']} is {_REFUSED_GROUPS[token['refused']]}")
    if kind == "group":
        return "("
    if token["class"] is not None:
        return _class(token["class"])
    if token["repeat"]:
        if token["greed"] == "+":
            raise ValueError(f"{token[0]} is a possessive repetition, which cannot be used; write {token['repeat']}")
        if any(int(count) > _MAX_REPEAT for count in re.findall("[0-9]+", token["repeat"])):
            raise ValueError(f"{token['repeat']} is more than {_MAX_REPEAT} times; topic names have at most 249 characters")
        # A lazy repetition matches the same whole names.
        return token["repeat"]
    return token[0]


def common_pattern(pattern: str) -> str:
    """Rewrite a Java regular expression for POSIX, RE2/J and Python alike.

    Raises:
        ValueError: Not all of them support it. The text says what to write instead.
    """
    tokens: list[str] = []
    at = 0
    while at < len(pattern):
        token = _PATTERN_TOKEN.match(pattern, at)
        if token is None:
            raise ValueError(f"{pattern[at]} at position {at} is unbalanced: close the pair, or escape it as \\{pattern[at]}")
        tokens.append(_common_token(token))
        at = token.end()
    rewritten = "".join(tokens)
    if not rewritten.isascii():
        raise ValueError("topic names have ASCII letters, digits, '.', '_' and '-' only")
    tokens = [token for token in tokens if token]
    for before, after in zip(["(", *tokens], [*tokens, ")"], strict=True):
        if before.startswith(_REPEATS) and after.startswith(_REPEATS):
            raise ValueError(f"two repetitions in a row, {before}{after}, cannot be used")
        if before in ("(", "|") and after in (")", "|"):
            raise ValueError("an empty alternative or group cannot be used: write (...)? for an optional part")
    try:
        re.compile(rewritten)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"it is not a regular expression ({error})") from None
    return rewritten


class TopicPattern(NamedTuple):
    """A pattern as it was given, and as every engine reads it."""

    given: str
    common: str


def parse_topic_pattern(text: str) -> TopicPattern:
    """Read the text of `subscribePattern`."""
    if not text.strip():
        raise ValueError("a regular expression that matches the whole names of topics is expected")
    return TopicPattern(text.strip(), common_pattern(text.strip()))
