"""The state that survives a driver: its stream's checkpoint, as Spark keeps it, and its sink."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from spark_groupsource.handoff.plan_offset import PlanOffset
from spark_groupsource.partition import OffsetRange, Ranges, TopicPartition
from tests.simulation.twins import twin_of

GROUP_ID = "orders-to-lake"


def cut_off(ranges: Ranges, where: TopicPartition, at: int) -> Ranges:
    """Return the ranges without this partition's offsets from this one on."""
    below = OffsetRange(0, at)
    kept = tuple(left for offsets in ranges.get(where, ()) if (left := offsets.overlap(below)).size)
    others = {other: offsets for other, offsets in ranges.items() if other != where}
    return {**others, where: kept} if kept else others


@dataclass
class Checkpoint:
    """One stream's offset log and commit log, and its sink, which keeps the first attempt of each plan."""

    letter: str
    named: str = ""
    """The stream's name in batch 0, which Spark always writes, whether there is a plan or not."""
    batches: int = 0
    offset_log: list[str] = field(default_factory=list)
    """The plans. Only batch 0 can be without one."""
    committed: int = -1
    """The newest plan in the commit log."""
    granted: dict[int, Ranges] = field(default_factory=dict)
    """What the first attempt of each plan read."""
    sink: dict[int, Ranges] = field(default_factory=dict)
    drivers: int = 0
    """Drivers that have been started on it so far."""
    torn: bool = False
    """Whether two drivers have run on it at once, or an older copy was put back."""

    name_length: int = 0
    """Streams' names are filled up to this length."""
    newer: bool = False
    """Whether drivers that are started on it are of the next version of this package."""
    gone: frozenset[str] = frozenset()
    """Names of streams whose checkpoints were deleted here."""
    put_aside: tuple[str | None, int] | None = None
    """The newest plan, and the newest one in the commit log, while an older copy is in the place of this checkpoint. `None`: the
    copy has the newest plan, and lacks its commit only."""

    def clone(self) -> Checkpoint:
        twin = twin_of(self)
        twin.offset_log = list(self.offset_log)
        twin.granted, twin.sink = dict(self.granted), dict(self.sink)
        return twin

    @property
    def logged(self) -> int:
        """The newest plan in the offset log."""
        return len(self.offset_log) - 1

    def delete(self) -> None:
        """Delete the directory. The job's next run writes to a new output."""
        self.gone |= {self.named} if self.named else set()
        self.named, self.batches, self.offset_log, self.committed = "", 0, [], -1
        self.granted, self.sink = {}, {}

    def cut(self, where: TopicPartition, at: int) -> None:
        """Truncate the partition's log: everything known about its records from there on no longer counts."""
        for known in (self.granted, self.sink):
            for plan, ranges in known.items():
                known[plan] = cut_off(ranges, where, at)

    def restore(self) -> None:
        """Replace the checkpoint with an older copy, without the newest plan."""
        self.put_aside = self.offset_log.pop(), self.committed
        self.batches -= 1
        self.committed = min(self.committed, self.logged)
        self.torn = True

    def lose_commit(self) -> None:
        """Replace the checkpoint with an older copy, whose offset log has the newest plan but whose commit log does not."""
        self.put_aside = None, self.committed
        self.committed -= 1
        self.torn = True

    def put_back(self) -> None:
        """Restore the newest checkpoint."""
        assert self.put_aside is not None
        newest, self.committed = self.put_aside
        if newest is not None:
            self.offset_log.append(newest)
            self.batches += 1
        self.put_aside = None

    def complete(self) -> Checkpoint:
        """The checkpoint with its newest plan, even if an older copy has replaced it."""
        if self.put_aside is None:
            return self
        twin = self.clone()
        twin.put_back()
        return twin

    def first(self) -> PlanOffset:
        """The offset before the first plan. A name that never reached the log is forgotten, and each driver draws a new one."""
        name = self.named or f"{self.letter}{self.drivers}".ljust(self.name_length, "-")
        return PlanOffset.build(stream=name, plan=-1, generation=-1, member="", group=GROUP_ID, ranges={})

    def newest(self) -> PlanOffset:
        """The newest plan, as Spark returns it."""
        return PlanOffset.parse(json.loads(self.offset_log[-1]), GROUP_ID) if self.offset_log else self.first()

    def read_all(self) -> bool:
        """Whether the newest plan left nothing to other members."""
        last = self.newest().by_partition
        granted = self.granted.get(self.logged, last)
        return all(
            set(granted.get(where, ())) >= {offsets for offsets in ranges if offsets.size} for where, ranges in last.items()
        )

    def key(self) -> tuple[object, ...]:
        """A key that is equal for checkpoints that Spark would treat alike."""
        return (
            self.named,
            self.drivers,
            self.batches,
            self.committed,
            tuple(self.offset_log),
            repr(self.sink),
            repr(self.granted),
            self.gone,
            self.newer,
            self.put_aside,
            self.torn,
        )
