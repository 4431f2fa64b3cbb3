"""How the runners of a run learn that a plan is in the commit log, before the next trigger shows it."""

from __future__ import annotations

from enum import Enum


class Way(str, Enum):
    """The same for all streams of a run. One way at a time: so each has to suffice."""

    NEITHER = "neither"
    """The next `latestOffset` is the first to show it."""
    LISTENER = "listener"
    """A `DurableListener` in the driver's program reports it."""
    CHECKPOINT = "checkpoint"
    """The reader has the option `checkpointLocation`, and looks into the commit log."""


EARLY = (Way.LISTENER, Way.CHECKPOINT)
"""The ways with which claims are closed before the next trigger."""
