"""A translation in progress: the settings still to translate, those already translated, and the mistakes found."""

from __future__ import annotations

import re

from spark_groupsource.kafka_settings.secrets import shown
from spark_groupsource.kafka_settings.tables import BLANK_IS_UNSET, DEBUG_FLAGS, PROPERTIES, REWRITTEN


class Draft:
    """One translation in progress. Each step takes settings out of `given`, and puts its results into `settings`."""

    def __init__(self, given: dict[str, str]) -> None:
        self.given = given
        """The user's settings that no step has taken yet, with names in lower case."""
        self.settings: dict[str, str] = {}
        """The translated settings."""
        self.sources: dict[str, str] = {}
        """For each translated setting, the name that the user wrote."""
        self.problems: list[str] = []
        """One sentence for each mistake."""
        self._reported: set[str] = set()

    def take(self, name: str) -> str | None:
        """Remove a setting from `given` and return its value, `None` if there is none."""
        return self.given.pop(name, None)

    def wrong(self, name: str, reason: str, *, value: str | None = None) -> None:
        """Add a mistake. A later step does not report what only follows from it: see `has_mistake`."""
        self._reported.add(name)
        given = "" if value is None else f" = {shown(name, value)}"
        self.problems.append(f"kafka.{name}{given}: {reason}" + ("" if reason.endswith("?") else "."))

    def has_mistake(self, prefix: str) -> bool:
        """Return whether a mistake has been reported for a setting whose name begins with `prefix`."""
        return any(name.startswith(prefix) for name in self._reported)

    def put(self, target: str, value: str, source: str) -> None:
        """Set `target` to the value of `source`. It is a mistake if another setting has set it to something else."""
        value = REWRITTEN.get((target, value.strip()), value)
        if not value.strip() and target in BLANK_IS_UNSET:
            return
        spec = PROPERTIES[target]
        read = _read(spec, value if spec == "text" else value.strip())
        if read is None:
            self.wrong(source, f"{_allowed(spec)} is expected", value=value)
        elif self.settings.get(target, read) != read:
            self.wrong(source, f"kafka.{self.sources[target]} sets the same to another value; keep one of the two")
        else:
            self.settings[target] = read
            self.sources[target] = source


def _read(spec: str, value: str) -> str | None:
    """Return the value in librdkafka's form, or `None` if `spec` does not allow it."""
    if spec == "text":
        return value if value.strip() else None
    if spec == "names":
        return value if re.fullmatch(r"\w+( *, *\w+)*", value) else None
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
    if spec == "names":
        return "a list of names, without paths,"
    if spec == "bool":
        return "true or false"
    if ".." in spec:
        low, high = spec.split("..")
        return f"a whole number from {low} to {high}"
    return f"a list of {', '.join(sorted(DEBUG_FLAGS))}" if spec == "flags" else spec.replace("|", " or ")


def class_name(value: str) -> str:
    """Return the name of a Java class without the prefix that Databricks adds to it."""
    return value.strip().removeprefix("kafkashaded.")
