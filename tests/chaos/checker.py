"""Checks that every record was read once, by the stream that had claimed it, and that no offset was committed too early. Pure.

lost, doubled, unknown   the outputs against what was produced
not granted              a row in the output of a stream that was not granted it
two owners               a range granted to two plans
unstable                 two attempts at one plan that were granted different ranges
ahead                    a committed offset above the first offset that was not durable when it was looked at
left                     a range that is claimed, or owed to a stream, at the end
read again               records for a plain consumer that joins the group after the end
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.harness.account import MOST_NAMED, Account
from tests.harness.evidence import Evidence, Grant, Range, Sample


@dataclass(frozen=True)
class Verdict:
    """`lost` and `doubled` count records. `violations` has sentences, and is empty if all is well."""

    records: int
    lost: int
    doubled: int
    violations: tuple[str, ...]


def check(evidence: Evidence, *, drained: bool = True) -> Verdict:
    """Check a run's evidence. Records that are missing before the group was drained may still arrive."""
    account = Account()
    for name, rows in evidence.outputs.items():
        account.add(name, rows)
    count = account.count(evidence.produced)
    lost = count.lost if drained else ()
    found: dict[str, Sequence[str]] = {
        **count.wrong,
        "lost": lost,
        "not granted": list(_not_granted(evidence)),
        "two owners": list(_two_owners(evidence.grants)),
        "unstable": list(_unstable(evidence.grants)),
        "ahead of what is durable": list(_ahead(evidence)),
        "left": evidence.left,
        "read again": [f"{evidence.read_again} records by a plain consumer"] if evidence.read_again else [],
    }
    violations = tuple(f"{kind}: {_named(problems)}" for kind, problems in found.items() if problems)
    return Verdict(records=count.records, lost=len(lost), doubled=len(count.doubled), violations=violations)


def _named(problems: Sequence[str]) -> str:
    more = f" and {len(problems) - MOST_NAMED} more" if len(problems) > MOST_NAMED else ""
    return ", ".join(problems[:MOST_NAMED]) + more


def _not_granted(evidence: Evidence) -> Iterator[str]:
    """Return the rows that their stream was not granted. Only this detects records that are swapped between two outputs."""
    granted: dict[tuple[str, int], list[Range]] = defaultdict(list)
    for grant in evidence.grants:
        for offsets in grant.ranges:
            granted[grant.stream, offsets.partition].append(offsets)
    for held in granted.values():
        held.sort()
    for name, rows in evidence.outputs.items():
        for row in rows:
            held = granted[name, row.partition]
            place = bisect_right(held, row.offset, key=lambda offsets: offsets.start) - 1
            if place < 0 or row.offset >= held[place].end:
                yield f"{row.partition}:{row.offset} in the output of {name}"


def _two_owners(grants: Sequence[Grant]) -> Iterator[str]:
    claimed = sorted({(offsets, grant.stream, grant.plan) for grant in grants for offsets in grant.ranges})
    for (one, stream, plan), (other, other_stream, other_plan) in pairwise(claimed):
        same_plan = (stream, plan) == (other_stream, other_plan)
        if one.partition == other.partition and other.start < one.end and not same_plan:
            yield f"{one} of {stream}'s plan {plan}, {other} of {other_stream}'s plan {other_plan}"


def _unstable(grants: Sequence[Grant]) -> Iterator[str]:
    first: dict[tuple[str, int], frozenset[Range]] = {}
    for grant in grants:
        before = first.setdefault((grant.stream, grant.plan), grant.ranges)
        if before != grant.ranges:
            yield f"{grant.stream}'s plan {grant.plan}: {sorted(before)}, then {sorted(grant.ranges)}"


def _ahead(evidence: Evidence) -> Iterator[str]:
    by_partition: dict[int, list[tuple[Range, str, int]]] = defaultdict(list)
    for offsets, stream, plan in sorted(
        {(offsets, grant.stream, grant.plan) for grant in evidence.grants for offsets in grant.ranges}
    ):
        by_partition[offsets.partition].append((offsets, stream, plan))
    for sample in evidence.samples:
        for partition, committed in sample.committed.items():
            durable = _durable_up_to(by_partition[partition], sample)
            if committed > durable:
                yield f"partition {partition} is committed up to {committed} and durable up to {durable} at {sample.at:.3f}"


def _durable_up_to(claimed: Sequence[tuple[Range, str, int]], sample: Sample) -> int:
    """Return the first offset that no plan in a commit log has read. `claimed` is in offset order."""
    reached = 0
    newest: Mapping[str, int] = sample.newest
    for offsets, stream, plan in claimed:
        if offsets.start > reached:
            break
        if plan <= newest.get(stream, -1):
            reached = max(reached, offsets.end)
    return reached
