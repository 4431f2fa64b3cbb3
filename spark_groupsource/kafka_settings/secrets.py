"""What is a secret, and how a text is made that shows none."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_SECRET = re.compile(
    r"pass(w|phrase)|pwd|secret|token(?!\.endpoint\.url$)|jaas|\.pem$|\.config$|(^|[._])key$|keystore\.key|extensions$"
)

MASK = "********"

_SHOWN_CHARACTERS = 300


def is_secret(name: str) -> bool:
    """Whether the value of this option or setting must never be shown."""
    return _SECRET.search(name.lower()) is not None


def shown(name: str, value: str) -> str:
    """The value as a message may show it: masked when the name is a secret's; without a user, a password or a query; cut."""
    if is_secret(name):
        return MASK
    visible = "".join(_address(part) for part in re.split(r"([,\s]+)", value))
    return repr(visible if len(visible) <= _SHOWN_CHARACTERS else visible[:_SHOWN_CHARACTERS] + "...")


def _address(text: str) -> str:
    """Mask what stands before the `@` of an address, and what a URL asks with."""
    scheme, mark, rest = text.partition("://") if "://" in text else ("", "", text)
    if "@" in rest:
        rest = MASK + "@" + rest.rpartition("@")[2]
    if mark and "?" in rest:
        rest = rest.partition("?")[0] + "?" + MASK
    return scheme + mark + rest


def without_secrets(text: str, settings: Mapping[str, object]) -> str:
    """The text with the values of secret settings masked: librdkafka quotes values that it refuses."""
    for name, value in settings.items():
        if value and is_secret(name):
            text = text.replace(str(value), MASK)
    return text


class Settings(Mapping[str, str]):
    """Settings of librdkafka, unchangeable, that never show their secrets."""

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
