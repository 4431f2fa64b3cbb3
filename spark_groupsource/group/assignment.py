"""What the group has given to this member."""

from __future__ import annotations

from dataclasses import dataclass

from spark_groupsource.partition import TopicPartition


@dataclass(frozen=True)
class Assignment:
    """What the group has given to this member. Never edited: a new one replaces it."""

    partitions: frozenset[TopicPartition] = frozenset()
    """Every partition that this member has, the draining ones included."""
    draining: frozenset[TopicPartition] = frozenset()
    """Those of `partitions` that the group has asked back."""
    generation: int = -1
    """The generation (classic) or the member epoch (KIP-848); -1 before the first assignment."""
    member_id: str = ""
    """The member's id in the group; empty before the first assignment."""
