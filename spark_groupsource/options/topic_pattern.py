"""Checks that Java, Python, librdkafka and Kafka brokers all interpret a `subscribePattern` in the same way.

Four engines read the pattern: Java's (Spark's own source), the C library's (librdkafka, classic), RE2/J (the broker, KIP-848) and
Python's re (`Options.matches`). Nothing is translated. A piece that they do not all interpret in the same way is refused, with
advice on what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

INTERNAL_TOPICS = ("__consumer_offsets", "__share_group_state", "__transaction_state")
"""Kafka's own topics, which a Java consumer's pattern does not match (`exclude.internal.topics`)."""

_MAX_REPEAT = 255
"""The highest repeat count that POSIX requires every engine to support (RE_DUP_MAX)."""

_READ_ALIKE = re.compile(
    r"""[^\[\]\\(){}*+?|]
    | \\[.\[\](){}*+?|^$\\]
    | \[\^?-?(?:[A-Za-z0-9]-[A-Za-z0-9]|[^\[\]\\&|~^-])+-?\]
    | (?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})(?![*+?{])
    | \((?![?|)])
    | \|(?![|)]|$)
    | \)""",
    re.VERBOSE,
)
"""The pieces of a pattern that every engine interprets in the same way."""

_REFUSED: Mapping[str, str] = {
    r"\(\?<?[=!]": "is a look-around, which cannot be used: name the topics that you want",
    r"\(\?": "cannot be used: write (...) for a group, and [Aa] for a letter in either case",
    r"\\d": "cannot be used: write [0-9]",
    r"\\D": "cannot be used: write [^0-9]",
    r"\\w": "cannot be used: write [A-Za-z0-9_]",
    r"\\W": "cannot be used: write [^A-Za-z0-9_]",
    r"\\[AbBGzZ]": "cannot be used: remove it, because the pattern must match the whole name anyway",
    r"\\Q": r"cannot be used: write \. for each dot; letters, digits, '_' and '-' stand for themselves",
    r"\\[A-Za-z0-9]": "cannot be used: write the characters, or a class such as [A-Za-z]",
    r"\\.": r"cannot be used: write the character without the \ ",
    r"(?:[*+?]|\{[0-9,]+\})[*+?{]": "is a lazy, possessive or second repetition, which cannot be used: write *, +, ? or {n,m}",
    r"[(|](?=[|)]|$)": "begins an empty alternative or group, which cannot be used: write (...)? for an optional part",
    r"\[[^\]]*\]?": (
        r"cannot be used: write one class with characters and ranges such as a-z or 0-9, without \, '&', '|' and '~', with '^' "
        "first and '-' last"
    ),
    r".": r"is unbalanced: close the pair, or write \ before it",
}
"""How refused pieces of a pattern begin, each with advice on what to write instead."""


def parse_topic_pattern(text: str) -> str:
    """Parse `subscribePattern`.

    Raises:
        ValueError: Not every engine interprets the pattern as Java does. The message says what to write instead.
    """
    pattern = text.strip()
    if not pattern:
        raise ValueError("a regular expression that matches a topic's whole name is expected")
    if not pattern.isascii():
        raise ValueError("topic names contain only ASCII letters, digits, '.', '_' and '-'")
    within, at = f"({pattern}", 0
    while at < len(within):
        piece = _READ_ALIKE.match(within, at)
        if piece is None:
            raise ValueError(_advice(within[at:]))
        at = piece.end()
    if any(int(count) > _MAX_REPEAT for count in re.findall(r"[{,]([0-9]+)", pattern)):
        raise ValueError(f"repeat counts above {_MAX_REPEAT} cannot be used; a topic name has at most 249 characters")
    try:
        re.compile(pattern)
    except (re.error, RecursionError) as error:
        raise ValueError(f"this is not a regular expression ({error})") from None
    return pattern


def _advice(rest: str) -> str:
    """Return advice on what to write instead of the piece at the start of `rest`."""
    return next(f"{found[0]} {advice}" for start, advice in _REFUSED.items() if (found := re.match(start, rest, re.DOTALL)))
