"""A translation under way: the settings that are left to translate, those translated so far, and the mistakes found."""

from __future__ import annotations

import re

from spark_groupsource.kafka_settings.secrets import shown
from spark_groupsource.kafka_settings.tables import BLANK_IS_UNSET, DEBUG_FLAGS, PROPERTIES, REWRITTEN


class Draft:
    """One translation under way. Steps take names out of `given`; what is left at `_each` is taken name by name."""

    def __init__(self, given: dict[str, str]) -> None:
        self.given = given
        self.settings: dict[str, str] = {}
        self.sources: dict[str, str] = {}
        self.problems: list[str] = []
        self.told: set[str] = set()

    def take(self, name: str) -> str | None:
        return self.given.pop(name, None)

    def wrong(self, name: str, reason: str, *, value: str | None = None) -> None:
        """Note a mistake. What only follows from it is not told as well: see `silent_on`."""
        self.told.add(name)
        given = "" if value is None else f" = {shown(name, value)}"
        self.problems.append(f"kafka.{name}{given}: {reason}" + ("" if reason.endswith("?") else "."))

    def silent_on(self, prefix: str) -> bool:
        """Whether something has been told already about settings of this kind."""
        return any(name.startswith(prefix) for name in self.told)

    def put(self, target: str, value: str, source: str) -> None:
        """Set `target` to what `source` says, unless another setting has said something else already."""
        value = REWRITTEN.get((target, value.strip()), value)
        if not value.strip() and target in BLANK_IS_UNSET:
            return
        spec = PROPERTIES[target]
        read = _read(spec, value if spec == "text" else value.strip())
        if read is None:
            self.wrong(source, f"{_allowed(spec)} is expected", value=value)
        elif self.settings.get(target, read) != read:
            self.wrong(source, f"kafka.{self.sources[target]} sets the same thing to something else; keep one of them")
        else:
            self.settings[target] = read
            self.sources[target] = source


def _read(spec: str, value: str) -> str | None:
    """The value in librdkafka's form, or `None` when it is not one that `spec` allows."""
    if spec == "text":
        return value if value.strip() else None
    if spec == "bool":
        return value.lower() if value.lower() in ("true", "false") else None
    if spec == "flags":
        flags = [flag.strip().lower() for flag in value.split(",")]
        return ",".join(flags) if set(flags) <= DEBUG_FLAGS else None
    if ".." in spec:
        low, high = spec.split("..")
        fits = re.fullmatch(r"-?[0-9]{1,18}", value) and int(low) <= int(value) <= int(high)
        return str(int(value)) if fits else None
    return next((choice for choice in spec.split("|") if choice.lower() == value.lower()), None)


def _allowed(spec: str) -> str:
    if spec == "text":
        return "a value that is not empty"
    if spec == "bool":
        return "true or false"
    if ".." in spec:
        low, high = spec.split("..")
        return f"a whole number from {low} to {high}"
    return f"a list of {', '.join(sorted(DEBUG_FLAGS))}" if spec == "flags" else spec.replace("|", " or ")


def class_name(value: str) -> str:
    """A Java class name without the prefix that Databricks' shading puts before it."""
    return value.strip().removeprefix("kafkashaded.")
