"""`--command-config FILE`: Kafka client settings in a Java properties file, as Kafka's own tools take them."""

from __future__ import annotations

import re
from pathlib import Path

from .errors import OptionError

# Key, then `=`, `:` or blanks; a backslash takes the next character out of that.
_ENTRY = re.compile(r"(?P<key>(?:\\.|[^\\=:\s])*)\s*[=:]?\s*(?P<value>.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u(?P<unicode>[0-9a-fA-F]{4})|(?P<char>.))", re.DOTALL)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(path: Path) -> dict[str, str]:
    """Read the file as `java.util.Properties.load` does; of a key that stands twice, the last one counts.

    Raises:
        OptionError: the file cannot be read. The message shows nothing of its content.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise OptionError(f"--command-config {path} cannot be read: {reason}.") from None
    return parse_properties(text)


def parse_properties(text: str) -> dict[str, str]:
    """The entries of a properties file."""
    properties: dict[str, str] = {}
    pending = ""
    for line in text.splitlines():
        stripped = line.lstrip(" \t\f")
        if not pending and (not stripped or stripped[0] in "#!"):
            continue
        pending += stripped
        # An odd number of backslashes at the end: the entry goes on in the next line.
        if (len(pending) - len(pending.rstrip("\\"))) % 2:
            pending = pending[:-1]
            continue
        _put(properties, pending)
        pending = ""
    if pending:
        _put(properties, pending)
    return properties


def _put(properties: dict[str, str], entry: str) -> None:
    match = _ENTRY.match(entry)
    if match is not None:
        properties[_unescaped(match["key"])] = _unescaped(match["value"])


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match["unicode"], 16)) if match["unicode"] else _plain(match["char"]), text)


def _plain(char: str) -> str:
    return _CONTROL.get(char, char)
