"""Which processors the broker, Spark and the measuring process run on.

An executor of a loaded cluster has one task for each core and no idle core beside it. `busy_core` makes that case: Spark, with
its workers, has one processor, and the broker has the others. `shared` lets all of them share all processors.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Placement:
    """The processors by number, as `os.sched_getaffinity` counts them, and Spark's local cores."""

    name: str
    broker: frozenset[int]
    spark: frozenset[int]
    cores: int


def busy_core() -> Placement:
    """Return one processor for Spark, and all others for the broker.

    Raises:
        SystemExit: This process may use one processor only.
    """
    *others, last = sorted(os.sched_getaffinity(0))
    if not others:
        raise SystemExit("The busy core needs two processors, one for Spark and one for the broker. Try: --placement shared")
    return Placement("busy core", frozenset(others), frozenset({last}), 1)


def shared() -> Placement:
    """Return all processors for both, and a local core for each."""
    every = frozenset(os.sched_getaffinity(0))
    return Placement("shared cores", every, every, len(every))


PLACEMENTS = {"busy": busy_core, "shared": shared}


@contextlib.contextmanager
def starting_on(processors: frozenset[int]) -> Iterator[None]:
    """Have the processes that this thread starts inside the block run on these processors only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, processors)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
