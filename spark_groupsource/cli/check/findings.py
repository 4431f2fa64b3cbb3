"""What `groupkafka check` finds, and how its steps are taken.

A finding says what was found. If something is wrong, it also says what this means for the query or its data, and what to do now.
A finding that is `ok` has no advice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

Known = TypeVar("Known")


class Level(Enum):
    """How bad a finding is. With an error the query cannot run as its options say."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """One line. `check` names what was checked, in one or two words. The text may contain names that clients chose."""

    level: Level
    check: str
    text: str


def ok(check: str, text: str) -> Finding:
    """Return a finding that needs nothing to be done."""
    return Finding(Level.OK, check, text)


def warning(check: str, text: str) -> Finding:
    """Return a finding that lets the query run."""
    return Finding(Level.WARNING, check, text)


def error(check: str, text: str) -> Finding:
    """Return a finding that stops the query."""
    return Finding(Level.ERROR, check, text)


@dataclass(frozen=True)
class Step(Generic[Known]):
    """One step of a check. It takes what is known, may add to it, and yields what it finds."""

    find: Callable[[Known], Iterator[Finding]]
    needed: bool = False
    """Whether the later steps need it: an error in it ends the check."""


def take(steps: Sequence[Step[Known]], known: Known) -> Iterator[Finding]:
    """Take the steps in their order. Yield each finding as soon as it is there."""
    for step in steps:
        failed = False
        for finding in step.find(known):
            yield finding
            failed = failed or finding.level is Level.ERROR
        if failed and step.needed:
            return
