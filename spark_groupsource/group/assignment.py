"""Defines `Assignment`, a snapshot of what the group has assigned to a member."""

from __future__ import annotations

from dataclasses import dataclass

from spark_groupsource.partition import TopicPartition


@dataclass(frozen=True)
class Assignment:
    """A member's partitions, generation and id at one moment. Immutable: every change makes a new one."""

    partitions: frozenset[TopicPartition] = frozenset()
    """Every partition that this member has, including the draining ones."""
    draining: frozenset[TopicPartition] = frozenset()
    """The partitions among these that the group has revoked but this member has not released yet."""
    generation: int = -1
    """The generation (classic) or the member epoch (KIP-848); -1 before the first assignment."""
    member_id: str = ""
    """The member's id in the group; empty before the first assignment."""
