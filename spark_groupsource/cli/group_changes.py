"""Compares two snapshots of a group, and returns rates and events such as a member joining or a partition moving.

Pure. A member that joins and leaves between two snapshots causes no event.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from spark_groupsource.brokers.group_view import HIDING, Difference, GroupView
from spark_groupsource.cli.render import identity, member_names, name_in
from spark_groupsource.partition import TopicPartition

DIFFERS_S = 20.0
"""How long members and coordinator may disagree about a partition before this becomes an event, in seconds. A move takes less
time."""

NOBODY = "nobody"

Kind = Literal["state", "coordinator", "joined", "left", "moved", "differs", "reset", "held", "released"]
"""The kinds of events, as docs/command-line.md lists them."""


@dataclass(frozen=True)
class GroupEvent:
    """One change in a group. The text may contain names that clients chose."""

    kind: Kind
    text: str


@dataclass(frozen=True)
class Rates:
    """Offsets per second between two snapshots, for partitions whose offsets are in both.

    `produced` is how fast the partition's end moves. `committed` is how fast the group's committed offset moves, and is negative
    if the offset moved back.
    """

    produced: Mapping[TopicPartition, float] = field(default_factory=dict)
    committed: Mapping[TopicPartition, float] = field(default_factory=dict)

    @property
    def all_produced(self) -> float | None:
        """The total rate across all partitions, or `None` if no rate is known."""
        return round(sum(self.produced.values()), 1) if self.produced else None

    @property
    def all_committed(self) -> float | None:
        """The total rate across all partitions, or `None` if no rate is known."""
        return round(sum(self.committed.values()), 1) if self.committed else None


def rates(earlier: GroupView, later: GroupView, seconds: float) -> Rates:
    """Return the rates between two snapshots taken `seconds` apart."""
    if seconds <= 0:
        return Rates()
    starts = {view.partition: view for view in earlier.partitions}
    produced, committed = {}, {}
    for end in later.partitions:
        start = starts.get(end.partition)
        if start is None:
            continue
        if end.end is not None and start.end is not None:
            # A topic that was deleted and created again has a lower end, which must not become a negative rate.
            produced[end.partition] = round(max(0, end.end - start.end) / seconds, 1)
        if end.committed is not None and start.committed is not None:
            committed[end.partition] = round((end.committed - start.committed) / seconds, 1)
    return Rates(produced, committed)


class Changes:
    """Tracks the changes from each snapshot of a group to the next."""

    def __init__(self) -> None:
        self._previous: GroupView | None = None
        self._settled: GroupView | None = None
        """The last snapshot in which the coordinator reported the members' partitions."""
        self._differing: dict[Difference, float] = {}
        """The differences in the last snapshot, and how many seconds each has lasted."""

    def since_last(self, view: GroupView, seconds: float) -> tuple[Rates, list[GroupEvent]]:
        """Return the rates and events since the last snapshot, taken `seconds` ago. The first snapshot has none."""
        previous, settled = self._previous, self._settled
        self._previous = view
        lasting = self._lasting(view, seconds)
        if view.state not in HIDING:
            self._settled = view
        if previous is None:
            return Rates(), []
        names = member_names(*((settled,) if settled is not None else ()), previous, view)
        events = [*_changed_group(previous, view), *_changed_members(previous, view, names)]
        if settled is not None and view.state not in HIDING:
            events += _moves(settled, view, names)
        events += [GroupEvent("differs", difference_text(difference, names)) for difference in lasting]
        return rates(previous, view, seconds), [*events, *_changed_offsets(previous, view)]

    def _lasting(self, view: GroupView, seconds: float) -> list[Difference]:
        """Return the differences that have now lasted DIFFERS_S, each only once."""
        lasted = self._differing
        self._differing = {found: lasted[found] + seconds if found in lasted else 0.0 for found in view.differences}
        return [found for found, lasted_s in self._differing.items() if lasted.get(found, 0.0) < DIFFERS_S <= lasted_s]


def difference_text(difference: Difference, names: Mapping[str, str]) -> str:
    """Describe a difference. The text may contain names that clients chose.

    Args:
        difference: the difference.
        names: the result of `member_names`.
    """
    owner, target = (name_in(names, member, NOBODY) for member in (difference.owner, difference.target))
    destination = "" if difference.target == difference.owner else f", meant for {target}"
    writer = name_in(names, difference.writer, "a client that is not a member")
    return f"{difference.partition}: assigned to {owner}{destination}, last written by {writer}"


def _changed_group(earlier: GroupView, later: GroupView) -> Iterator[GroupEvent]:
    kinds = [(view.protocol, view.assignor) for view in (earlier, later)]
    if earlier.state != later.state:
        yield GroupEvent("state", f"{earlier.state} -> {later.state}")
    if kinds[0] != kinds[1] and earlier.members and later.members and earlier.assignor and later.assignor:
        change = f"{earlier.protocol}, assignor {earlier.assignor} -> {later.protocol}, assignor {later.assignor}"
        yield GroupEvent("state", change)
    if earlier.coordinator != later.coordinator:
        yield GroupEvent("coordinator", f"{earlier.coordinator or 'none'} -> {later.coordinator or 'none'}")


def _changed_members(earlier: GroupView, later: GroupView, names: Mapping[str, str]) -> Iterator[GroupEvent]:
    before, after = ({identity(member): member for member in view.members} for view in (earlier, later))
    yield from (GroupEvent("left", names[before[name].member_id]) for name in before if name not in after)
    yield from (GroupEvent("joined", names[after[name].member_id]) for name in after if name not in before)


def _moves(earlier: GroupView, later: GroupView, names: Mapping[str, str]) -> Iterator[GroupEvent]:
    owners, new_owners = ({view.partition: view.member for view in group.partitions} for group in (earlier, later))
    for partition in sorted(owners.keys() | new_owners.keys()):
        owner, new_owner = owners.get(partition), new_owners.get(partition)
        if identity(owner) != identity(new_owner):
            yield GroupEvent("moved", f"{partition}: {name_in(names, owner, NOBODY)} -> {name_in(names, new_owner, NOBODY)}")


def _changed_offsets(earlier: GroupView, later: GroupView) -> Iterator[GroupEvent]:
    previous = {view.partition: view for view in earlier.partitions}
    for view in later.partitions:
        was = previous.get(view.partition)
        if was is None:
            continue
        if was.committed is not None and view.committed is not None and view.committed < was.committed:
            change = f"from {was.committed} to {view.committed}"
            yield GroupEvent("reset", f"{view.partition}: the committed offset moved back {change}")
        if was.other_format is not None or view.other_format is not None:
            continue  # this version cannot read the held ranges in such a record
        held_before, held = ({(claim.stream, claim.range) for claim in seen.owed} for seen in (was, view))
        for stream, offsets in sorted(held - held_before):
            yield GroupEvent("held", f"{view.partition} {offsets}: held for stream {stream}")
        for stream, offsets in sorted(held_before - held):
            yield GroupEvent("released", f"{view.partition} {offsets}: no longer held for stream {stream}")
