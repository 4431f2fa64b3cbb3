"""The states of a group member, and the order in which they may follow each other."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class State(Enum):
    """Where a member is in its life."""

    NEW = "new"
    JOINING = "joining"
    MEMBER = "member"
    DRAINING = "draining"
    LEAVING = "leaving"
    LEFT = "left"
    FAILED = "failed"


PREDECESSORS: Mapping[State, frozenset[State]] = {
    State.NEW: frozenset(),
    State.JOINING: frozenset({State.NEW, State.MEMBER, State.JOINING}),
    State.MEMBER: frozenset({State.JOINING, State.MEMBER, State.DRAINING}),
    State.DRAINING: frozenset({State.MEMBER}),
    State.LEAVING: frozenset({State.NEW, State.JOINING, State.MEMBER, State.DRAINING}),
    State.LEFT: frozenset({State.LEAVING}),
    State.FAILED: frozenset({State.LEAVING}),
}
"""The states that each state may follow. A member that loses its partitions goes from MEMBER back to JOINING."""
