"""Holds a translation in progress: the settings still to translate, the translated ones, and the problems found.

Asks librdkafka which settings exist, and which values they accept.
"""

from __future__ import annotations

import re

from confluent_kafka import Consumer, KafkaException

from spark_groupsource.kafka_settings import environment
from spark_groupsource.kafka_settings.secrets import is_secret, shown, shown_name, without_secrets
from spark_groupsource.kafka_settings.tables import BLANK_IS_UNSET, CHOICES, REWRITTEN, WITHIN_RANGE

_END = "groupkafka.end"

_MOST = 2**31 - 1

_FLAGS = {"true": "true", "t": "true", "1": "true", "false": "false", "f": "false", "0": "false"}
"""The strings that librdkafka reads as true and false, each with the form that the rest of this package uses."""


class Draft:
    """A translation in progress. Each step takes settings out of `given`, and puts its results into `settings`."""

    def __init__(self, given: dict[str, str], *, writes: bool = False) -> None:
        self.writes = writes
        """Whether the settings are for a producer."""
        self.given = given
        """The user's settings that no step has taken yet, with names in lower case."""
        self.settings: dict[str, str] = {}
        """The translated settings."""
        self.sources: dict[str, str] = {}
        """The name that the user wrote for each translated setting."""
        self.problems: list[str] = []
        """The problems found so far, one sentence each."""
        self._reported: set[str] = set()

    def take(self, name: str) -> str | None:
        """Remove a setting from `given` and return its value, or `None` if it is not set."""
        return self.given.pop(name, None)

    def wrong(self, name: str, reason: str, *, value: str | None = None) -> None:
        """Add a problem. Later steps call `has_mistake` to avoid reporting its consequences."""
        self._reported.add(name)
        given = "" if value is None else f" = {shown(name, value)}"
        self.problems.append(f"kafka.{shown_name(name)}{given}: {reason}" + ("" if reason.endswith("?") else "."))

    def has_mistake(self, prefix: str) -> bool:
        """Return whether a problem has been reported for a setting whose name begins with `prefix`."""
        return any(name.startswith(prefix) for name in self._reported)

    def put(self, target: str, value: str, source: str) -> None:
        """Set `target` to the value of `source`, or add a problem if another setting has set `target` to something else."""
        value = REWRITTEN.get((target, value.strip()), value)
        if not value.strip() and target in BLANK_IS_UNSET:
            return
        read = _read(target, value)
        if target in WITHIN_RANGE:
            read = nearest(target, read)
        reason = environment.problem(target, read) or refusal(target, read)
        if reason is not None:
            self.wrong(source, reason, value=value)
        elif self.settings.get(target, read) != read:
            self.wrong(source, f"kafka.{self.sources[target]} sets the same thing to a different value; remove one of them")
        else:
            self.settings[target] = read
            self.sources[target] = source


def _read(name: str, value: str) -> str:
    """Return the value in librdkafka's form, without leading and trailing blanks unless it is a secret or a user name."""
    if is_secret(name) or name == "sasl.username":
        return value
    read, lower = value.strip(), value.strip().lower()
    # A group may be called TRUE, and a number may be 1. Only a flag accepts true and refuses other words.
    if lower in _FLAGS and refusal(name, "true") is None and refusal(name, "neither") is not None:
        return _FLAGS[lower]
    return lower if lower in CHOICES.get(name, ()) else read


def class_name(value: str) -> str:
    """Return the name of a Java class without the prefix that Databricks adds."""
    return value.strip().removeprefix("kafkashaded.")


def exists(name: str) -> bool:
    """Return whether the installed librdkafka has a setting with this name, which may be newer than this package."""
    return not (_objection(name, "1") or "").startswith("No such configuration property")


def refusal(name: str, value: str) -> str | None:
    """Return why librdkafka does not accept this value, or `None` if it does. The reason contains no secret.

    Args:
        name: The name of a librdkafka setting.
        value: Its value, without leading or trailing blanks.
    """
    if not value.strip():
        return "a non-empty value is expected"
    if name in CHOICES:
        return None if value in CHOICES[name] else f"{' or '.join(CHOICES[name])} is expected"
    is_number = "Integer configuration property" in (_objection(name, "") or "")
    # librdkafka reads 6s as 6, and 4294967297 as 1.
    if is_number and not (re.fullmatch(r"-?[0-9]{1,18}", value) and abs(int(value)) <= _MOST):
        return f"a whole number of at most {_MOST} is expected"
    if name == "ssl.providers" and not re.fullmatch(r"\w+( *, *\w+)*", value):
        return "a list of names, without paths, is expected"
    objection = _objection(name, value)
    return None if objection is None else f"librdkafka rejects it: {without_secrets(objection, {name: value}).strip()}"


def nearest(name: str, value: str) -> str:
    """Return the number closest to `value` that librdkafka accepts. A negative number, or text, is returned unchanged."""
    found = re.search(r"range (-?[0-9]+)\.\.(-?[0-9]+)", _objection(name, str(-_MOST)) or "")
    if found is None or not re.fullmatch(r"[0-9]{1,19}", value):
        return value
    return str(min(max(int(value), int(found[1])), int(found[2])))


def _objection(name: str, value: str) -> str | None:
    """Return librdkafka's objection to a setting, or `None` if it accepts the setting.

    No client is started: the last property does not exist, so librdkafka refuses the settings as a whole.
    """
    try:
        Consumer({"group.id": "-", name: value, _END: ""})
    except KafkaException as refused:
        text: str = refused.args[0].str()
    except (TypeError, ValueError) as refused:
        text = str(refused)
    return None if _END in text else text
