"""Simulates a plain consumer in the same group, which starts at the committed offset, reads, and commits. It ignores claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.twins import twin_of

if TYPE_CHECKING:
    from tests.simulation.world import World


class OtherClient:
    """The consumer. Each `do_...` method is one step, and returns true if the step had an effect."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.member = world.group.join("other")
        self.epoch = world.group.epochs[self.member]
        self.positions: dict[int, int] = {}
        self.committed: dict[int, int] = {}

    def clone(self, world: World) -> OtherClient:
        twin = twin_of(self)
        twin.world, twin.positions, twin.committed = world, dict(self.positions), dict(self.committed)
        return twin

    def due(self) -> list[tuple[object, ...]]:
        """Return the steps that can be taken now."""
        steps = [(kind, number) for number in self.positions for kind in ("other reads", "other commits")]
        return [("other polls",), *steps]

    def do_polls(self) -> bool:
        """Give partitions back, take new ones, or notice that the group has removed this member."""
        group = self.world.group
        if self.member not in group.epochs:
            self.world.other = None
            return True
        self.epoch = group.epochs[self.member]
        going = [number for number in group.to_revoke(self.member) if number in self.positions]
        for number in going:
            self.do_commits(number)
            del self.positions[number]
        if going:
            group.release(self.member, going)
        given = group.assign(self.member) if group.to_assign(self.member) else []
        for number in given:
            register = group.registers[number]
            self.positions[number] = self.committed[number] = 0 if register is None else register[0]
        self.epoch = group.epochs[self.member]
        return bool(going or given)

    def do_reads(self, number: int) -> bool:
        """Read one record."""
        if number not in self.positions or self.positions[number] >= self.world.ends[number]:
            return False
        self.world.account.written(number, self.positions[number], "the other client")
        self.positions[number] += 1
        return True

    def do_commits(self, number: int) -> bool:
        """Commit the position, without metadata or with text that looks a little like a commit record."""
        group = self.world.group
        if self.committed.get(number) == self.positions.get(number) or group.epochs.get(self.member) != self.epoch:
            return False
        position = self.committed[number] = self.positions[number]
        group.registers[number] = (position, "" if position % 2 else '{"v":4,"s":"B1"}', None)
        self.world.account.committed_elsewhere(number, position)
        return True

    def do_leaves(self) -> bool:
        """Commit, and leave."""
        if self.member not in self.world.group.epochs:
            return False
        self.epoch = self.world.group.epochs[self.member]
        for number in self.positions:
            self.do_commits(number)
        self.world.group.remove(self.member)
        self.world.other = None
        return True

    def do_crashes(self) -> bool:
        """Crash. The member stays in the group until its session expires."""
        self.world.account.graceful = False
        self.world.other = None
        return True
