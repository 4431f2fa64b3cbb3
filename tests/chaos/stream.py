"""A stream through all of its runs: its checkpoint, its output, and its current driver."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path

from devtools.demo.count import committed_files
from tests.chaos.ways import Way
from tests.harness.account import rows_in
from tests.harness.events import Event, EventLog
from tests.harness.evidence import Durable, Row
from tests.harness.pool import PATIENCE_S, Pool, PooledQuery
from tests.harness.sampler import batches_in, plan_of
from tests.harness.source import FOLDER, LOG, NEXT, STREAM, VERSION
from tests.harness.steps import How, Step, Steps
from tests.support.waiting import until

TRIGGER = "1 second"
NO_OTHER_TRIGGER = "1 day"
"""After the first micro-batch of a run no other one comes."""


class Stream(PooledQuery):
    """A stream that is started, hit by a fault and restarted. The event log has what happened to it."""

    def __init__(
        self,
        name: str,
        folder: Path,
        pool: Pool,
        log: EventLog,
        options: Mapping[str, str],
        sink: str,
        trigger: str,
        way: Way,
    ) -> None:
        own = {FOLDER: str(folder), LOG: str(log.path), STREAM: name}
        command = {"options": {**options, **own}, "sink": sink, "trigger": trigger, "listener": way is Way.LISTENER}
        super().__init__(name, folder, pool, command)
        if way is Way.CHECKPOINT:
            self.change({"checkpointLocation": str(self.checkpoint)})
        folder.mkdir()
        self._log = log
        self._steps = Steps(folder, log, name)
        self._durable: dict[int, Durable] = {}

    # Running.

    def ask(self) -> None:
        driver = self._take_driver()
        self._log.append("start", stream=self.name, driver=driver.name)
        driver.ask(self._command)

    def end(self) -> None:
        """Kill all of its processes, in any state. Its driver is not used again."""
        if self._driver is not None:
            self._driver.kill()
            self._return_driver()

    @property
    def running(self) -> bool:
        """Whether its query is running, according to its driver."""
        return self._driver is not None and self._driver.look() == "started"

    def start_if_it_failed(self) -> bool:
        """Restart it if its query or driver has ended on its own, and return whether that was the case."""
        if self._driver is None or self._driver.look() not in ("failed", "ended"):
            return False
        self._log.append("failed", stream=self.name, message=self._driver.failure)
        self.start()
        return True

    def until_it_has_a_runner(self) -> None:
        """Wait until Spark has started its first runner, some time after the query."""
        until(lambda: self._mine("runner"), f"{self.name} has a runner", PATIENCE_S)

    def until_failed(self) -> None:
        until(lambda: not self.running, f"{self.name}'s query has failed", PATIENCE_S)

    def until_finished(self) -> None:
        """Wait until its query has read everything, and has ended on its own without an error."""
        until(lambda: not self.running, f"{self.name}'s query has ended", PATIENCE_S)
        assert self._driver is not None
        assert self._driver.look() == "stopped", self.failure

    @property
    def failure(self) -> str:
        """Return its query's error, if the query has failed."""
        return self._driver.failure if self._driver is not None else ""

    def change(self, options: Mapping[str, str]) -> None:
        """Use these options at its next start."""
        self._command = {**self._command, "options": {**self._command["options"], **options}}

    def every(self, trigger: str) -> None:
        """Use this trigger at its next start."""
        self._command = {**self._command, "trigger": trigger}

    def start_for_one_micro_batch(self) -> None:
        """Start it with a trigger that fires only once. Return as soon as its only micro-batch is in the commit log."""
        self.every(NO_OTHER_TRIGGER)
        before = self.micro_batches
        self.start()
        self.until_micro_batches(before + 1)

    def until_micro_batches(self, count: int) -> None:
        """Wait until this many micro-batches are in the commit log."""
        until(lambda: self.micro_batches >= count, f"{self.name} has had {count} micro-batches", PATIENCE_S)

    def upgrade(self) -> None:
        """Use the next version of this package at its next start."""
        self.change({VERSION: NEXT})

    # Faults.

    def arm(self, step: Step, how: How = How.BLOCK) -> None:
        """Hold it when it reaches `step`."""
        self._steps.arm(step, how)

    def release(self, step: Step) -> None:
        self._steps.release(step)

    def wait_at(self, step: Step) -> int:
        """Wait until it has reached the armed `step`, and return the id of the process that is held there."""
        until(lambda: not self._steps.is_armed(step) and self._at(step), f"{self.name} is at {step.value}", PATIENCE_S)
        pid: int = self._at(step)[-1]["pid"]
        return pid

    def hold_at(self, step: Step, how: How = How.BLOCK) -> int:
        """Arm `step` and wait until it is reached; return the id of the process that is held there."""
        self.arm(step, how)
        return self.wait_at(step)

    def kill(self, *, whole: bool) -> None:
        """Send SIGKILL to the driver with its runner, or only to its JVM, whose runner may still leave the group."""
        assert self._driver is not None
        self._log.append("kill", stream=self.name, whole=whole)
        if whole:
            self._driver.kill()
        else:
            self._driver.kill_jvm()

    def signal_runner(self, number: signal.Signals) -> None:
        self._log.append("signal", stream=self.name, signal=number.name)
        os.kill(self._mine("runner")[-1]["pid"], number)

    # Results.

    def refusals(self) -> list[Event]:
        """Return the claims' commits that were held up and then rejected."""
        return [event for event in self._mine("refused") if event["held"]]

    @property
    def owned(self) -> set[int]:
        """The partitions of its newest plan."""
        granted = self._mine("granted")
        return set(granted[-1]["owned"]) if granted else set()

    @property
    def in_records(self) -> str:
        """Its name in the group's commit records."""
        return str(self._mine("granted")[-1]["name"])

    def granted(self) -> list[Event]:
        """Return the plans that it was granted ranges for, in all its runs."""
        return [event for event in self._mine("granted") if event["ranges"]]

    def durable(self) -> list[Durable]:
        """Return when each of its plans was written to its commit log."""
        for batch in batches_in(self.checkpoint) - self._durable.keys():
            at = (self.checkpoint / "commits" / str(batch)).stat().st_mtime
            self._durable[batch] = Durable(self.name, plan_of(self.checkpoint, batch), at)
        return list(self._durable.values())

    def rows(self) -> list[Row]:
        """Return all rows that its sink has committed."""
        files = committed_files(self._output) or sorted(self._output.glob("[0-9]*.parquet"))
        return [row for file in files for row in rows_in(file)]

    def last_words(self) -> str:
        """Return the end of its driver's log."""
        return self._driver.last_words() if self._driver is not None else ""

    def _at(self, step: Step) -> list[Event]:
        return [event for event in self._mine("reached") if event["step"] == step.value]

    def _mine(self, kind: str) -> list[Event]:
        return [event for event in self._log.look(kind) if event["stream"] == self.name]
