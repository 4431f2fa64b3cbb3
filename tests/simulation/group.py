"""A fake group coordinator with its members, its assignment, and one fenced register per partition.

Like Kafka, it accepts a commit only from a member of the current generation, and does not check who owns the partition. Under
KIP-848, it may be more lenient (`Fencing`). A partition goes to another member only after its owner has given it back or was
removed.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

from spark_groupsource.errors import GenerationChanged, MemberUnknown
from spark_groupsource.handoff.commit_record import GroupCommit, read_commit
from spark_groupsource.partition import TopicPartition
from tests.simulation.twins import twin_of

Protocol = Literal["classic", "consumer"]
Fencing = Literal["equal", "silent", "whole", "part"]
"""Under KIP-848, which epochs the coordinator takes.

- `equal`: a member's epoch rises with its own assignment. A commit has to have it.
- `silent`: it also rises when assignments of others change, which no callback tells. A commit still has to have it, as up to
  Kafka 4.2.
- `whole`: the same, but a commit with an earlier epoch is accepted if the member got each of its partitions in that epoch or
  before. So does Kafka 4.3.1 (KIP-1251).
- `part`: this is decided for each partition. The others are refused, and the commit is accepted in part.
"""
Register = tuple[int, str, "int | None"]
"""A committed offset, its metadata, and its leader epoch."""


def partition(number: int) -> TopicPartition:
    return TopicPartition("orders", number)


THIS_VERSION = '{"v":4,'
NEXT_VERSION = '{"v":5,"k":"later",'
"""How the records of this version begin, and those of the next one."""


@lru_cache(maxsize=10_000)  # reading a record takes longer than most steps
def as_commit(register: Register | None) -> GroupCommit:
    """Parse a register as a member does."""
    return None if register is None else read_commit(register[0], register[1], epoch=register[2])


def as_commit_of_any_version(register: Register | None) -> GroupCommit:
    """Parse a register as a member of the next version does, which reads both formats."""
    if register is None or not register[1].startswith(NEXT_VERSION):
        return as_commit(register)
    return as_commit((register[0], THIS_VERSION + register[1].removeprefix(NEXT_VERSION), register[2]))


class Group:
    """The coordinator's side of a group."""

    def __init__(self, partitions: int, protocol: Protocol, fencing: Fencing) -> None:
        self.protocol, self.fencing = protocol, fencing
        self.registers: list[Register | None] = [None] * partitions
        self.owner: list[str | None] = [None] * partitions
        """The member that has the partition, as far as the coordinator knows."""
        self.target: list[str | None] = [None] * partitions
        """The member that is to have it."""
        self.epochs: dict[str, int] = {}
        """Each member's epoch (KIP-848), or the group's generation (classic)."""
        self.joins: dict[str, int] = {}
        self.assigned: dict[int, int] = {}
        """The epoch in which each partition was assigned to its owner."""

    def clone(self) -> Group:
        twin = twin_of(self)
        twin.registers, twin.owner, twin.target = list(self.registers), list(self.owner), list(self.target)
        twin.epochs, twin.joins, twin.assigned = dict(self.epochs), dict(self.joins), dict(self.assigned)
        return twin

    def read(self, number: int) -> GroupCommit:
        """Return the group's commit for a partition."""
        return as_commit_of_any_version(self.registers[number])

    def fence(self, member: str | None, epoch: int, numbers: Iterable[int]) -> frozenset[int]:
        """Return the partitions for which a commit from the member is rejected, if it is not rejected as a whole."""
        if member is None or member not in self.epochs:
            raise MemberUnknown("the coordinator does not know this member")
        if self.epochs[member] == epoch:
            return frozenset()
        if self.fencing not in {"whole", "part"} or epoch > self.epochs[member]:
            raise GenerationChanged("illegal generation")
        refused = frozenset(number for number in numbers if not self.has_had(member, number, epoch))
        if refused and self.fencing == "whole":
            raise GenerationChanged(f"partitions {sorted(refused)} were assigned in a later epoch, or are not assigned")
        return refused

    def has_had(self, member: str | None, number: int, epoch: int) -> bool:
        """Whether the member has the partition, and got it in this epoch or before."""
        return member is not None and self.owner[number] == member and self.assigned[number] <= epoch

    def join(self, name: str) -> str:
        """Add a new member. The group moves to a new generation."""
        self.joins[name] = self.joins.get(name, 0) + 1
        member = f"{name}#{self.joins[name]}"
        self.epochs[member] = max(self.epochs.values(), default=0)
        self.move_on(member)
        return member

    def remove(self, member: str) -> None:
        """Remove a member that leaves, or whose session has expired."""
        del self.epochs[member]
        self.owner = [None if owner == member else owner for owner in self.owner]
        self.target = [None if target == member else target for target in self.target]
        self.move_on(None)

    def move_on(self, member: str | None) -> None:
        """Start a new generation (classic), or a new epoch for the member whose assignment changes (KIP-848).

        If epochs rise silently, other members get a new one, too, unless they still have to give something back.
        """
        for each in self.epochs:
            silently = self.fencing != "equal" and not self.to_revoke(each)
            if self.protocol == "classic" or each == member or silently:
                self.epochs[each] += 1

    def to_revoke(self, member: str | None) -> list[int]:
        """Return the partitions that the member must give back."""
        if member not in self.epochs:
            return []
        return [number for number, owner in enumerate(self.owner) if owner == member and self.target[number] != member]

    def to_assign(self, member: str | None) -> list[int]:
        """Return the free partitions that are meant for the member."""
        if member not in self.epochs:
            return []
        return [number for number, target in enumerate(self.target) if target == member and self.owner[number] is None]

    def assign(self, member: str) -> list[int]:
        """Assign the free partitions that are meant for the member."""
        given = self.to_assign(member)
        for number in given:
            self.owner[number] = member
        self.move_on(member)
        self.assigned |= dict.fromkeys(given, self.epochs[member])
        return given

    def release(self, member: str, numbers: list[int]) -> None:
        """Take the partitions back from the member."""
        for number in numbers:
            if self.owner[number] == member:
                self.owner[number] = None
        self.move_on(member if member in self.epochs else None)
