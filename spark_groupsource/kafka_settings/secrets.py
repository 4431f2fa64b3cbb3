"""Recognizes secret values, and masks them in messages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_SECRET = re.compile(
    r"pass(w|phrase)|pwd|secret|token(?!\.endpoint\.url$)|jaas|\.pem$|\.config$|(^|[._])key$|keystore\.key|extensions$"
)
"""Matches names of settings with secret values, even if they are misspelled."""

MASK = "********"

_SHOWN_NAME = 80

_SHOWN_CHARACTERS = 300
"""How many characters of a value to show. Longer values are truncated."""


def is_secret(name: str) -> bool:
    """Return whether the value of this option or setting must never be shown."""
    return _SECRET.search(name.lower()) is not None


def shown(name: str, value: str) -> str:
    """Return an option's value in a form that is safe to show in a message.

    A secret is masked completely. In an address, the user, password and query are masked. A long value is truncated.
    """
    if is_secret(name):
        return MASK
    visible = "".join(_address(part) for part in re.split(r"([,\s]+)", value))
    return repr(visible if len(visible) <= _SHOWN_CHARACTERS else visible[:_SHOWN_CHARACTERS] + "...")


def shown_name(name: str) -> str:
    """Return an unknown option's name in a form that is safe to show, because the name may be part of a secret.

    In a properties file, each line of a pasted key becomes an entry, unless the previous line ends with a backslash.
    """
    words = re.split(r"[._-]", name)
    # No option is a single word with a digit, but the last line of a key, which may end with `=`, can look like one.
    like_a_name = len(words) > 1 or not re.search(r"\d", name)
    if like_a_name and all(re.fullmatch(r"[A-Za-z0-9]{1,30}", word) for word in words) and len(name) <= _SHOWN_NAME:
        return name
    return "a name that is not shown (does the value before it have a line break without a \\ at the end of the line?)"


def _address(text: str) -> str:
    """Mask the part of an address before the `@`, and a URL's query."""
    scheme, mark, rest = text.partition("://") if "://" in text else ("", "", text)
    if "@" in rest:
        rest = MASK + "@" + rest.rpartition("@")[2]
    if mark and "?" in rest:
        rest = rest.partition("?")[0] + "?" + MASK
    return scheme + mark + rest


def without_secrets(text: str, settings: Mapping[str, object]) -> str:
    """Return the text with the values of secret settings masked, because librdkafka quotes the values that it refuses."""
    for name, value in settings.items():
        if value and is_secret(name):
            text = text.replace(str(value), MASK)
    return text


class Settings(Mapping[str, str]):
    """An immutable mapping of librdkafka settings, whose `repr` shows no secrets."""

    __slots__ = ("_settings",)

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = dict(settings)

    def __getitem__(self, name: str) -> str:
        return self._settings[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{name!r}: {shown(name, value)}" for name, value in sorted(self.items())) + "}"
