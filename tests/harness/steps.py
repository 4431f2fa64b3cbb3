"""The steps at which a query's process can be held, so that a test can strike it exactly there.

A file named after the step arms it. The first process that reaches the step removes the file, and stops. Only the data source and
the harness's process use this.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from enum import Enum
from pathlib import Path

from tests.harness.events import EventLog

CHECKPOINT = "checkpoint"
"""The checkpoint in a stream's folder, which is named after the stream."""


class Step(str, Enum):
    """The steps at which a query can be held, in the order of a micro-batch."""

    BEFORE_CONFIRMATION = "before-confirmation"
    """`latestOffset` begins: the last plan is in the commit log, and the group does not know. With a way to learn of it the group
    knows soon, although the main thread is held here."""
    BEFORE_OFFSET_LOG = "before-offset-log"
    """`latestOffset` ends with a new plan."""
    BEFORE_CLAIM = "before-claim"
    """`partitions` begins, for a new plan that is in the offset log."""
    IN_CLAIM_COMMIT = "in-claim-commit"
    """On the consumer's thread, right before the commit that claims a plan, without a poll in between."""
    AFTER_CLAIM = "after-claim"
    """`partitions` ends, for a new plan."""
    IN_REPLAY = "in-replay"
    """`partitions` ends, for a plan of an earlier run."""
    IN_TASK = "in-task"
    """On an executor's worker that has read records."""
    AFTER_SINK = "after-sink"
    """`foreachBatch` has written; the commit log has not."""
    BEFORE_CLOSING = "before-closing"
    """On the consumer's thread, right before the commit that closes a plan which was reported as durable."""
    IN_DRAIN = "in-drain"
    """On the consumer's thread, in `on_revoke`, with a range in flight."""


STOPPED_S = 3.0
"""A gap in time of this length is a pause, and not a busy machine."""


class How(str, Enum):
    """What a process does at a step."""

    BLOCK = "block"
    """Waits until it is killed or released."""
    PAUSE = "pause"
    """Sends itself SIGSTOP, so that all its threads stop there."""
    MARK = "mark"
    """Goes on; the log has an event."""


class Steps:
    """One stream's steps, which are armed and reached through files in its folder. Pickles."""

    def __init__(self, folder: Path, log: EventLog, stream: str) -> None:
        self._folder = folder
        self._stream = stream
        self.log = log

    def checkpoints(self) -> dict[str, Path]:
        """Return the checkpoints of all of the run's streams, by name."""
        return {path.parent.name: path for path in self._folder.parent.glob(f"*/{CHECKPOINT}")}

    def arm(self, step: Step, how: How = How.BLOCK) -> None:
        """Hold the next process that reaches `step`."""
        for old in ("held", "go"):
            (self._folder / f"{old}-{step.value}").unlink(missing_ok=True)
        partial = self._folder / f"arming-{step.value}"
        partial.write_text(how.value)
        partial.rename(self._folder / f"stop-{step.value}")

    def is_armed(self, step: Step) -> bool:
        """Return whether no process has reached `step` since it was armed."""
        return (self._folder / f"stop-{step.value}").exists()

    def release(self, step: Step) -> None:
        (self._folder / f"go-{step.value}").touch()

    def come_to(self, step: Step) -> bool:
        """Stop here if the step is armed, and return whether it was. The query's process calls this."""
        held = self._folder / f"held-{step.value}"
        try:
            (self._folder / f"stop-{step.value}").rename(held)
        except FileNotFoundError:
            return False
        how = How(held.read_text())
        self.log.append("reached", stream=self._stream, step=step.value, how=how.value)
        if how is How.PAUSE:
            _stop_here()
            self.log.append("woke", stream=self._stream, step=step.value)
        parent = os.getppid()
        while how is How.BLOCK and not (self._folder / f"go-{step.value}").exists() and os.getppid() == parent:
            with contextlib.suppress(InterruptedError):
                time.sleep(0.02)
        return True


def _stop_here() -> None:
    """Stop all threads, and continue here after SIGCONT. On a busy machine, some threads may run for another moment."""
    before = time.monotonic()
    os.kill(os.getpid(), signal.SIGSTOP)
    while (now := time.monotonic()) - before <= STOPPED_S:
        before = now
        time.sleep(0.01)
