"""Measures how long partitions stalled, from the times at which their micro-batches became durable. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.harness.evidence import Evidence


@dataclass(frozen=True)
class Stalls:
    """The longest stall of each partition in seconds: of those that moved or whose owner was hit, and of the bystanders."""

    moved: Mapping[int, float]
    kept: Mapping[int, float]


def stalls(evidence: Evidence, begin: float, end: float, struck: Collection[str]) -> Stalls:
    """Find the longest time between two durable micro-batches of each partition, from `begin` to `end` (epoch seconds).

    A partition is a bystander when one stream alone read it all that time and before, and that stream is not among `struck`.
    """
    ranges = {(grant.stream, grant.plan): grant.ranges for grant in evidence.grants}
    times: dict[int, list[tuple[float, str]]] = defaultdict(list)
    for durable in sorted(evidence.durable, key=lambda one: one.at):
        for offsets in ranges.get((durable.stream, durable.plan), ()):
            times[offsets.partition].append((durable.at, durable.stream))
    moved: dict[int, float] = {}
    kept: dict[int, float] = {}
    for partition in evidence.produced:
        within = [(at, stream) for at, stream in times[partition] if begin < at < end]
        before = [stream for at, stream in times[partition] if at <= begin][-1:]
        owners = {*before, *(stream for _, stream in within)}
        longest = max(after - earlier for earlier, after in pairwise([begin, *(at for at, _ in within), end]))
        (kept if len(owners) == 1 and not owners & set(struck) else moved)[partition] = longest
    return Stalls(moved, kept)


def summary(seconds: Sequence[float]) -> tuple[float, float, float]:
    """Return median, 99th percentile and maximum; zeros if there are no values."""
    if not seconds:
        return 0.0, 0.0, 0.0
    ordered = sorted(seconds)
    return statistics.median(ordered), ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))], ordered[-1]
