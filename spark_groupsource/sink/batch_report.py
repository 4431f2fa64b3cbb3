"""Reports to the driver's program how many rows the sink wrote in a micro-batch.

Spark does not accept metrics from a Python sink. So the process on the driver's host that commits a micro-batch writes a file,
named after the query's run, to the folder from reports/private_folder.py. A `LagListener` in the driver's program reads the file
when Spark reports the micro-batch. No guarantee depends on this file.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from spark_groupsource.reports.private_folder import PrivateFolder

_LONGEST = 500
_RUN = re.compile(r"[0-9a-f-]{1,36}")
_MOST = 2**63 - 1


@dataclass(frozen=True)
class BatchReport:
    """The row counts and commit time of one micro-batch."""

    run_id: str
    """The query's run."""
    batch_id: int
    written: int
    """The number of rows that were written."""
    skipped: int
    """The number of rows that were already in the topic."""
    commit_ms: int
    """How long the slowest task took to commit or, with at-least-once, to deliver its last rows, in ms."""


class BatchReports:
    """The latest report from each query run on this host.

    Args:
        folder: See `PrivateFolder`.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = PrivateFolder(folder)

    def write(self, report: BatchReport) -> None:
        """Write a report, replacing the run's previous one.

        Raises:
            ReportsUnavailable: See `PrivateFolder.replace`.
        """
        fields = {"batch": report.batch_id, "written": report.written, "skipped": report.skipped, "commit": report.commit_ms}
        if _RUN.fullmatch(report.run_id):
            self._folder.replace(_name(report.run_id), json.dumps({"v": 1, **fields}))

    def read(self, run_id: str) -> BatchReport | None:
        """Return a run's latest report, or `None` if there is none that this version can read.

        Raises:
            ReportsUnavailable: See `PrivateFolder.content`.
        """
        content = self._folder.content(_name(run_id), _LONGEST) if _RUN.fullmatch(run_id) else None
        try:
            fields = json.loads(content or b"null")
        except ValueError:
            return None
        if not isinstance(fields, dict) or fields.get("v") != 1:
            return None
        batch, written, skipped, commit_ms = (fields.get(name) for name in ("batch", "written", "skipped", "commit"))
        if not (_is_count(batch) and _is_count(written) and _is_count(skipped) and _is_count(commit_ms)):
            return None
        return BatchReport(run_id, batch, written, skipped, commit_ms)


def _name(run_id: str) -> str:
    return f"sink-{run_id}"


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= _MOST
