"""This run's membership of its group, which begins anew after a commit without an answer."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable
from typing import TypeVar, cast

from spark_groupsource.errors import CommitOutcomeUnknown
from spark_groupsource.handoff.plan_offset import PlanOffset
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.options.model import Options
from spark_groupsource.patience import Deadline
from spark_groupsource.query.joined import Joined
from spark_groupsource.query.joining import Joining

log = logging.getLogger(__name__)

T = TypeVar("T")

STEP_S = 15.0
"""How long a step is tried again at least, if it fails. What the call waited for before may have taken its whole time, such as a
leader without an answer, which is no matter of the group's. A coordinator moves within seconds, and a rebalance ends."""


class Membership:
    """Joins before the first step of a run. `leave` is called from any thread, everything else on the runner's main thread."""

    def __init__(self, joining: Joining, options: Options, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without a membership.

        Args:
            joining: joins the group.
            options: the options of the source.
            clock: returns seconds, monotonic.
        """
        self._joining = joining
        self._options = options
        self._clock = clock
        self._has_left = False
        """Whether the current membership is over, and a new one is to take its place."""
        self.ending = False
        """Whether the run is being stopped, so that it does not join again. Any thread may set it."""
        self.current: Joined | None = None
        """The newest membership; `None` before the first one. Any thread may read it."""
        self.deadline = self._patience()
        """Until when what fails in the current call of Spark's is tried again."""

    @property
    def joined(self) -> Joined:
        """The newest membership, once there is one."""
        return cast(Joined, self.current)

    def begin_call(self) -> None:
        """Have what fails from now on tried again for `assignmentTimeout`: the steps of one call of Spark's share this time."""
        self.deadline = self._patience()

    def step_deadline(self) -> Deadline:
        """Return until when a step that begins now is tried again: until the call's time is over, and for `STEP_S` at least."""
        least_s = min(STEP_S, self._options.assignment_timeout_ms / 1000)
        return self.deadline if self.deadline.left >= least_s else Deadline(least_s, clock=self._clock)

    def become_member(self, stream: Stream, newest: PlanOffset) -> None:
        """Join the group, unless this run is a member of it. See `as_member`."""
        self.as_member(stream, newest, lambda: None)

    def as_member(self, stream: Stream, newest: PlanOffset, step: Callable[[], T]) -> T:
        """Take a step as a member of the group, and again as a new member after a commit without an answer.

        Args:
            stream: what the checkpoint says.
            newest: the newest offset of the checkpoint.
            step: the step, which may be taken again.

        Raises:
            CommitOutcomeUnknown: it happens again `assignmentTimeout` after the first time, or the run is being stopped.
        """
        has_failed = False
        while True:
            try:
                self._join(stream, newest)
                return step()
            except CommitOutcomeUnknown as error:
                # From the first one on: to learn that there is no answer may take longer than the whole patience.
                if not has_failed:
                    self.begin_call()
                has_failed = True
                if self.deadline.over or self.ending:
                    raise
                # As text: an error would keep the earlier membership as long as a handler keeps the line.
                why = str(error)
                log.warning("this driver leaves the group, and joins it as a new member, since a commit got no answer: %s", why)
            # The commit may still be on its way, and would undo the next claim if it arrived after that. Brokers refuse it once
            # its member has left. To read back what the group holds would not show what is on its way.
            self._joining.leave()
            self._has_left = True

    def leave(self) -> None:
        """Leave the group, if this driver has joined it or is joining. Safe in a signal handler."""
        self._joining.leave()

    def _join(self, stream: Stream, newest: PlanOffset) -> None:
        if self.current is not None and not self._has_left:
            return
        # Until there is a new membership, other threads see the earlier one, which shows what was closed.
        self.current = self._joining.join(stream, newest, self.deadline)
        if self._has_left:
            self._has_left = False
            # The earlier one keeps its clients, and perhaps a child process, until Python collects it. The runner rarely does.
            gc.collect()

    def _patience(self) -> Deadline:
        return Deadline(self._options.assignment_timeout_ms / 1000, clock=self._clock)
