"""One run's evidence as plain values, which are the checker's only input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Row(NamedTuple):
    """One record in an output. The producer counts from 0 in each partition, so `number` must equal `offset`."""

    partition: int
    offset: int
    number: int


class Range(NamedTuple):
    """Offsets in one partition, start inclusive, end exclusive."""

    partition: int
    start: int
    end: int


class Grant(NamedTuple):
    """The ranges that one attempt at a plan was granted, once its claims were in the group."""

    stream: str
    plan: int
    ranges: frozenset[Range]


class Durable(NamedTuple):
    """The moment, in seconds since the epoch, at which a plan was in its stream's commit log."""

    stream: str
    plan: int
    at: float


class Sample(NamedTuple):
    """The group's committed offsets by partition and, read right after, the newest plan in each stream's commit log."""

    at: float
    committed: Mapping[int, int]
    newest: Mapping[str, int]


@dataclass(frozen=True)
class Evidence:
    """`produced` counts the records that the broker has accepted, by partition."""

    produced: Mapping[int, int]
    outputs: Mapping[str, Sequence[Row]]
    grants: Sequence[Grant]
    durable: Sequence[Durable]
    samples: Sequence[Sample]
    left: Sequence[str] = ()
    """What was still claimed, or owed to a stream, when the group had drained and the streams were stopped."""
    read_again: int = 0
    """How many records a plain consumer got that joined the group after that."""
