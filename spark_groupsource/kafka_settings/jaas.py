"""The text of `sasl.jaas.config`, read by the rules of Java."""

from __future__ import annotations

import re
from typing import NamedTuple

from spark_groupsource.kafka_settings.draft import class_name


class Jaas(NamedTuple):
    """One login module, and its options."""

    module: str
    options: dict[str, str]


_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/                  # blanks and comments
    | (?P<quoted>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
    | (?P<word>[^\s"'=;\\/]+(?:/[^\s"'=;\\/*]+)*)
    | (?P<mark>[=;])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}

JAAS_FORM = 'module required name="value" name="value";'
"""The form that is expected, for messages."""


def _unescape(match: re.Match[str]) -> str:
    text = match[1]
    return chr(int(text, 8)) if text[0] in "01234567" else _ESCAPES.get(text, text)


def parse_jaas(text: str) -> Jaas | None:
    """Read `module flag name=value ... ;` by the rules of Java's JaasConfig and StreamTokenizer.

    Returns:
        The login module, or `None` if the text has another form.
    """
    tokens: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return None
        at = match.end()
        if match.lastgroup == "quoted":
            tokens.append(("value", _ESCAPE.sub(_unescape, match[0][1:-1])))
        elif match.lastgroup:
            tokens.append((match.lastgroup, match[0]))
    kinds = " ".join(token if kind == "mark" else kind for kind, token in tokens)
    if not re.fullmatch(r"(word|value) word( word = (word|value))* ;", kinds):
        return None
    if tokens[1][1].lower() not in ("required", "requisite", "sufficient", "optional"):
        return None
    words = [token for _, token in tokens[2:-1]]
    return Jaas(class_name(tokens[0][1]), dict(zip(words[::3], words[2::3], strict=True)))
