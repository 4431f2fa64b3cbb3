"""What can happen in a simulated history."""

from __future__ import annotations

from dataclasses import dataclass

from spark_groupsource.handoff.rules import HOLD, HeldClaims
from tests.simulation.group import Fencing, Protocol


@dataclass(frozen=True)
class Setting:
    """What can happen in a history."""

    streams: int
    partitions: int
    records: int
    """Records that each partition gets."""
    protocol: Protocol = "classic"
    fencing: Fencing = "equal"
    """Which epochs the coordinator takes under KIP-848."""
    second_drivers: bool = False
    """A second driver may be started on a checkpoint whose first one is still running."""
    other_client: bool = False
    """A plain Kafka consumer may join the group, and a tool may move the offsets of a stopped group."""
    expiry: bool = False
    """The group's commits may expire while it has no member."""
    held_claims: HeldClaims = HOLD
    """`heldClaims` of every stream."""
    recreations: bool = False
    """The topic may be deleted and created again, without its records."""
    deletions: bool = False
    """The checkpoint of a stopped stream may be deleted, and the next driver starts without one. Takes streams that reread."""
    restores: bool = False
    """An older copy may be put in the place of a stopped query's checkpoint, without a plan that the group knows, or without the
    commit of a plan that the group knows as done."""
    falls: int = 0
    """How often logs may get a new leader: one that has all records, or one that lacks some. Then others are written there."""
    lost_answers: bool = False
    """An answer to a member's heartbeat may be lost, which said what it has to give back or may take. It then joins again."""
    room: int = 0
    """How many ranges a record has room for once it is adopted. 0: as many as in Kafka."""
    upgrades: bool = False
    """Streams may be moved one by one to the next version of this package, whose records today's version cannot read."""
