"""The ways in which runners learn that a plan is in the commit log before the next trigger shows it."""

from __future__ import annotations

from enum import Enum


class Way(str, Enum):
    """A way, which is the same for all streams in a run. A run has only one way, so each way must suffice."""

    NEITHER = "neither"
    """The next `latestOffset` is the first to show it."""
    LISTENER = "listener"
    """A `DurableListener` in the driver's program reports it."""
    CHECKPOINT = "checkpoint"
    """The reader has the option `checkpointLocation`, and looks into the commit log."""


EARLY = (Way.LISTENER, Way.CHECKPOINT)
"""The ways with which claims are closed before the next trigger."""
