"""Parses option values. Each function returns the parsed value, or raises a ValueError that says what is expected."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from spark_groupsource.partition import TopicPartition

EARLIEST = -2
LATEST = -1
"""The numbers that stand for a partition's first and next offset in the JSON for `startingOffsets`, as in Spark."""

MAX_LONG = 2**63 - 1
MAX_INT = 2**31 - 1

TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")

_UNITS_US = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "min": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}


def boolean(text: str) -> bool:
    """Parse true or false, in upper or lower case."""
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("true or false is expected")
    return text.strip().lower() == "true"


def whole_number(low: int, high: int) -> Callable[[str], int]:
    """Return a parser for whole numbers from `low` to `high` (inclusive)."""

    def read(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", text.strip()) or not low <= int(text) <= high:
            raise ValueError(f"a whole number from {low} to {high} is expected")
        return int(text)

    return read


def duration_ms(text: str) -> int:
    """Parse a duration, as Spark's JavaUtils.timeStringAsMs does, and return it in ms. A number without a unit is in ms."""
    match = re.fullmatch(r"([0-9]{1,15})([a-z]*)", text.strip().lower())
    unit = match and _UNITS_US.get(match[2] or "ms")
    duration = int(match[1]) * unit // 1_000 if match and unit else 0
    if duration > MAX_INT:
        raise ValueError("a duration of at most 24d is expected")
    if not duration:
        raise ValueError(
            "a duration of at least 1ms is expected, such as 500ms, 30s or 2m (units us, ms, s, m or min, h, d; default ms)"
        )
    return duration


def choice(*allowed: str) -> Callable[[str], str]:
    """Return a parser that accepts one of these words, in upper or lower case."""

    def read(text: str) -> str:
        if text.strip().lower() not in allowed:
            raise ValueError(f"{' or '.join(allowed)} is expected")
        return text.strip().lower()

    return read


def host(text: str) -> str:
    """Parse the name or address of a host to listen on, without a port."""
    label = r"[A-Za-z0-9_-]{1,63}"
    if not re.fullmatch(rf"{label}(\.{label})*\.?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*", text.strip()):
        raise ValueError("a host name or an address without a port is expected, such as 127.0.0.1, 0.0.0.0 or ::")
    return text.strip()


def not_blank(text: str) -> str:
    """Return the text without surrounding whitespace, and refuse an empty one."""
    if not text.strip():
        raise ValueError("a non-empty string is expected")
    return text.strip()


def held_claims_value(text: str) -> str | int:
    """Parse `heldClaims`: `hold`, or the time in ms after which to reread, which is 0 for `reread`."""
    words = text.strip().lower().split()
    if words == ["hold"]:
        return "hold"
    if words == ["reread"]:
        return 0
    if len(words) == 2 and words[0] == "reread-after":
        return duration_ms(words[1])
    raise ValueError("hold, reread, or reread-after with a duration such as reread-after 10m is expected")


def topic_names(text: str) -> tuple[str, ...]:
    """Parse topic names separated by commas, and drop duplicates."""
    topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
    if not topics:
        raise ValueError("one or more topic names are expected, separated by commas")
    for topic in topics:
        if not TOPIC_NAME.fullmatch(topic) or topic in (".", ".."):
            raise ValueError(
                f"{topic!r} is not a valid topic name: topic names contain only letters, digits, '.', '_' and '-'. For a "
                "regular expression, use subscribePattern"
            )
    return topics


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a name is duplicated")
    return dict(pairs)


def _partition(topic: str, text: str) -> TopicPartition:
    if not re.fullmatch(r"[0-9]{1,10}", text) or int(text) > MAX_INT:
        raise ValueError(f"{text!r} is not a partition of topic {topic!r}: a whole number of at least 0 is expected")
    return TopicPartition(topic, int(text))


def offsets_value(*words: str) -> Callable[[str], str | dict[TopicPartition, int]]:
    """Return a parser that accepts one of these words, or JSON with an offset for each partition."""
    form = f'{", ".join(words)} or JSON such as {{"topicA":{{"0":23,"1":-1}},"topicB":{{"0":-2}}}} is expected'

    def read(text: str) -> str | dict[TopicPartition, int]:
        word = text.strip().lower()
        return word if word in words else _by_partition(text, EARLIEST, _NO_OFFSET, form)

    return read


def times_value(text: str) -> dict[TopicPartition, int]:
    """Parse JSON with a time for each partition, in milliseconds since 1970."""
    form = 'JSON with milliseconds since 1970, such as {"topicA":{"0":1700000000000,"1":1700000000000}}, is expected'
    return _by_partition(text, 0, _NO_TIME, form)


_NO_OFFSET = f"an offset of {{}}: a whole number of at least 0, {EARLIEST} (earliest) or {LATEST} (latest) is expected"
_NO_TIME = "a time for {}: milliseconds since 1970 are expected"


def _by_partition(text: str, lowest: int, otherwise: str, form: str) -> dict[TopicPartition, int]:
    """Parse JSON with a number for each partition.

    Args:
        text: The JSON.
        lowest: The lowest number that is allowed.
        otherwise: The expected value, for the error about a wrong one, with a placeholder for the partition.
        form: The expected form, for the error about text that is not such JSON.
    """
    try:
        topics = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{form} ({error})") from None
    if not isinstance(topics, dict) or not all(isinstance(partitions, dict) for partitions in topics.values()):
        raise ValueError(form)
    values: dict[TopicPartition, int] = {}
    for topic, partitions in topics.items():
        for number, written in partitions.items():
            partition = _partition(topic, number)
            # Spark also accepts numbers as strings.
            value = int(written) if isinstance(written, str) and re.fullmatch(r"-?[0-9]{1,19}", written) else written
            if type(value) is not int or not lowest <= value <= MAX_LONG:
                raise ValueError(f"{written!r} is not {otherwise.format(partition)}")
            values[partition] = value
    if not values:
        raise ValueError(f"{form}; this text names no partition")
    return values
