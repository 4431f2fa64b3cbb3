"""Assigns processors to the broker, Spark and the measuring process.

On a busy cluster, an executor has one task for each core and no idle core. `busy_core` reproduces this: Spark and its workers
have one processor, and the broker has the others. With `shared`, all of them share all processors.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Placement:
    """The numbers of the processors, as in `os.sched_getaffinity`, and Spark's local cores."""

    name: str
    broker: frozenset[int]
    spark: frozenset[int]
    cores: int


def busy_core() -> Placement:
    """Return one processor for Spark, and all others for the broker.

    Raises:
        SystemExit: This process may use only one processor.
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
    """Restrict the processes that this thread starts inside the block to these processors."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, processors)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
