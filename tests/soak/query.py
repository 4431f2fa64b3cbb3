"""One query of the group through all its runs: its checkpoint, its output, and the driver that runs it now."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.harness.evidence import Row
from tests.harness.pool import PATIENCE_S, Driver, Pool, PooledQuery
from tests.soak.meter import Role, processes_of
from tests.soak.outputs import Copies, Output
from tests.support.waiting import until

AS_FAST_AS_THEY_GO = "0 seconds"

SINK_LOG_KEEPS = "1h"
"""Without a limit the sink's own log lists every file of the run, and takes ever longer to read."""


class Query(PooledQuery):
    """Runs, is struck, and runs again. Used by one thread."""

    def __init__(
        self,
        name: str,
        folder: Path,
        pool: Pool,
        options: Mapping[str, str],
        source: Mapping[str, str],
        copies: Copies | None,
    ) -> None:
        """Prepare it; it has no driver before `ask`.

        Args:
            name: the query's name.
            folder: where its checkpoint and its output are.
            pool: where it gets a driver.
            options: the source's options.
            source: which source it is: `format`, and `register` for one that is not in the package.
            copies: the topic that it writes to, each row once. `None`: it writes files.
        """
        sink = {"kafka.bootstrap.servers": options["kafka.bootstrap.servers"], "topic": copies.topic} if copies else {}
        command = {
            **source,
            # As a user's program does: with the listener, claims are closed when a micro-batch is finished.
            "prepare": "spark_groupsource:register",
            "options": dict(options),
            "sink": "topic" if copies else "file",
            "sink options": sink or {"retention": SINK_LOG_KEEPS},
            "trigger": AS_FAST_AS_THEY_GO,
            # As in production: the chaos driver keeps the whole history of a checkpoint.
            "conf": {"spark.sql.streaming.minBatchesToRetain": "100"},
        }
        super().__init__(name, folder, pool, command)
        self._rows = copies or Output(self._output)
        self._was_struck = False
        self.started_at = 0.0
        """When it was started last, by `time.monotonic`."""

    # Running.

    def ask(self) -> None:
        self._was_struck = False
        super().ask()

    def until_started(self) -> None:
        super().until_started()
        self.started_at = time.monotonic()

    def failure(self) -> str | None:
        """Return the error with which it has ended by itself; `None` if it runs, was struck or was taken away."""
        if self._driver is None or self._was_struck or self._driver.look() not in ("failed", "stopped", "ended"):
            return None
        return " ".join(self._driver.failure.split()) or f"its driver has {self._driver.state}"

    @property
    def session(self) -> int | None:
        """The session of its processes; `None` while it has none."""
        # The meter's thread asks while another one takes the driver away.
        driver = self._driver
        return None if driver is None else driver.session

    def new_rows(self) -> Iterable[Row]:
        """Return what its sink has committed since the last call."""
        return self._rows.new_rows()

    # Striking.

    def kill(self) -> None:
        """Send SIGKILL to all its processes."""
        self._strike().kill()

    def terminate(self) -> None:
        """Send SIGTERM to its JVM."""
        self._strike().terminate()

    def kill_runner(self) -> None:
        """Send SIGKILL to its runner, and return when Spark has failed the query."""
        driver = self._strike()
        for process in processes_of(self.name, driver.session):
            if process.role is Role.RUNNER:
                os.kill(process.pid, signal.SIGKILL)
        until(lambda: driver.look() in ("failed", "ended"), f"{self.name}'s query has failed", PATIENCE_S)

    def take_away(self) -> None:
        """Stop it until it is started again."""
        self._was_struck = True
        self.stop()

    def _strike(self) -> Driver:
        assert self._driver is not None
        self._was_struck = True
        return self._driver
