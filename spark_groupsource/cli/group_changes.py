"""The changes between two looks at a group: rates, and events such as a member that joined or a partition that moved.

Pure. A member that joins and leaves between two looks is not seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from spark_groupsource.brokers.group_view import HIDING, Difference, GroupView
from spark_groupsource.cli.render import identity, member_names, name_in
from spark_groupsource.partition import TopicPartition

DIFFERS_S = 20.0
"""How long the members and the coordinator may differ in a partition before that is an event: longer than it takes to move."""

NOBODY = "nobody"

Kind = Literal["state", "coordinator", "joined", "left", "moved", "differs", "reset", "owed", "settled"]
"""The kinds of events, as docs/command-line.md lists them."""


@dataclass(frozen=True)
class GroupEvent:
    """One change. The text may contain names that clients chose."""

    kind: Kind
    text: str


@dataclass(frozen=True)
class Rates:
    """Offsets per second between two looks, for partitions whose offsets both looks know.

    `produced` is the speed of the partition's end. `committed` is the speed of the group's committed offset; it is below 0 if
    the offset moved back.
    """

    produced: Mapping[TopicPartition, float] = field(default_factory=dict)
    committed: Mapping[TopicPartition, float] = field(default_factory=dict)

    @property
    def all_produced(self) -> float | None:
        """The sum of all partitions; `None` if no rate is known."""
        return round(sum(self.produced.values()), 1) if self.produced else None

    @property
    def all_committed(self) -> float | None:
        """The sum of all partitions; `None` if no rate is known."""
        return round(sum(self.committed.values()), 1) if self.committed else None


def rates(before: GroupView, after: GroupView, seconds: float) -> Rates:
    """Return the rates between two looks that are `seconds` apart."""
    if seconds <= 0:
        return Rates()
    earlier = {seen.partition: seen for seen in before.partitions}
    produced, committed = {}, {}
    for now in after.partitions:
        then = earlier.get(now.partition)
        if then is None:
            continue
        if now.end is not None and then.end is not None:
            # A topic that was deleted and created again has a lower end. That is not a negative rate.
            produced[now.partition] = round(max(0, now.end - then.end) / seconds, 1)
        if now.committed is not None and then.committed is not None:
            committed[now.partition] = round((now.committed - then.committed) / seconds, 1)
    return Rates(produced, committed)


class Changes:
    """The changes from each look to the next."""

    def __init__(self) -> None:
        self._before: GroupView | None = None
        self._settled: GroupView | None = None
        self._differing: dict[Difference, float] = {}
        """The differences of the last look, and for how many seconds each has been there."""

    def since_last(self, view: GroupView, seconds: float) -> tuple[Rates, list[GroupEvent]]:
        """Return the rates and events since the last look, which was `seconds` ago. The first look has none."""
        before, settled = self._before, self._settled
        self._before = view
        lasting = self._lasting(view, seconds)
        if view.state not in HIDING:
            self._settled = view
        if before is None:
            return Rates(), []
        names = member_names(*((settled,) if settled is not None else ()), before, view)
        events = [*_changed_group(before, view), *_changed_members(before, view, names)]
        if settled is not None and view.state not in HIDING:
            events += _moves(settled, view, names)
        events += [GroupEvent("differs", difference_text(difference, names)) for difference in lasting]
        return rates(before, view, seconds), [*events, *_changed_offsets(before, view)]

    def _lasting(self, view: GroupView, seconds: float) -> list[Difference]:
        """Return the differences that have lasted for too long since this look."""
        before = self._differing
        self._differing = {found: before[found] + seconds if found in before else 0.0 for found in view.differences}
        return [found for found, lasted_s in self._differing.items() if before.get(found, 0.0) < DIFFERS_S <= lasted_s]


def difference_text(difference: Difference, names: Mapping[str, str]) -> str:
    """Return a difference as text. It may contain names that clients chose.

    Args:
        difference: what differs.
        names: as `member_names` returns them.
    """
    owner, target = (name_in(names, member, NOBODY) for member in (difference.owner, difference.target))
    meant = "" if difference.target == difference.owner else f", meant for {target}"
    writer = name_in(names, difference.writer, "one that is no member")
    return f"{difference.partition}: assigned to {owner}{meant}, last written by {writer}"


def _changed_group(before: GroupView, after: GroupView) -> Iterator[GroupEvent]:
    kinds = [(view.protocol, view.assignor) for view in (before, after)]
    if before.state != after.state:
        yield GroupEvent("state", f"{before.state} -> {after.state}")
    if kinds[0] != kinds[1] and before.members and after.members and before.assignor and after.assignor:
        yield GroupEvent("state", f"{before.protocol}, assignor {before.assignor} -> {after.protocol}, assignor {after.assignor}")
    if before.coordinator != after.coordinator:
        yield GroupEvent("coordinator", f"{before.coordinator or 'none'} -> {after.coordinator or 'none'}")


def _changed_members(before: GroupView, after: GroupView, names: Mapping[str, str]) -> Iterator[GroupEvent]:
    were, are = ({identity(member): member for member in view.members} for view in (before, after))
    yield from (GroupEvent("left", names[member.member_id]) for same, member in were.items() if same not in are)
    yield from (GroupEvent("joined", names[member.member_id]) for same, member in are.items() if same not in were)


def _moves(before: GroupView, after: GroupView, names: Mapping[str, str]) -> Iterator[GroupEvent]:
    were, are = ({seen.partition: seen.member for seen in view.partitions} for view in (before, after))
    for partition in sorted(were.keys() | are.keys()):
        was, is_now = were.get(partition), are.get(partition)
        if identity(was) != identity(is_now):
            yield GroupEvent("moved", f"{partition}: {name_in(names, was, NOBODY)} -> {name_in(names, is_now, NOBODY)}")


def _changed_offsets(before: GroupView, after: GroupView) -> Iterator[GroupEvent]:
    earlier = {seen.partition: seen for seen in before.partitions}
    for now in after.partitions:
        then = earlier.get(now.partition)
        if then is None:
            continue
        if then.committed is not None and now.committed is not None and now.committed < then.committed:
            yield GroupEvent("reset", f"{now.partition}: the committed offset went back from {then.committed} to {now.committed}")
        if then.other_format is not None or now.other_format is not None:
            continue  # what is owed there is not known
        were, are = ({(claim.stream, claim.plan, claim.range) for claim in seen.owed} for seen in (then, now))
        for stream, plan, offsets in sorted(are - were):
            yield GroupEvent("owed", f"{now.partition} {offsets}: owed to stream {stream}, plan {plan}")
        for stream, plan, offsets in sorted(were - are):
            yield GroupEvent("settled", f"{now.partition} {offsets}: no longer owed to stream {stream}, plan {plan}")
