"""Reports to the driver's program how many rows the sink wrote in a micro-batch.

Spark does not accept metrics from a Python sink. So the process on the driver's host that commits a micro-batch writes a file,
named after the query's run, to the folder from reports/private_folder.py. A `LagListener` in the driver's program reads the file
when Spark reports the micro-batch. No guarantee depends on this file.
"""

from __future__ import annotations

import json
import re
from dataclasses import astuple, dataclass
from typing import Any

from spark_groupsource.reports.private_folder import PrivateFolder

_FIELDS = ("batch", "written", "skipped", "commit")
"""The names of a report's fields in the file, in order. `run_id` is only in the file's name."""
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


def write_report(report: BatchReport) -> None:
    """Write a report, replacing the run's previous one.

    Raises:
        ReportsUnavailable: See `PrivateFolder.replace`.
    """
    if _RUN.fullmatch(report.run_id):
        fields = dict(zip(_FIELDS, astuple(report)[1:], strict=True))
        PrivateFolder().replace(f"sink-{report.run_id}", json.dumps({"v": 1, **fields}))


def read_report(run_id: str) -> BatchReport | None:
    """Return a run's latest report, or `None` if there is none that this version can read.

    Raises:
        ReportsUnavailable: See `PrivateFolder.content`.
    """
    content = PrivateFolder().content(f"sink-{run_id}", _LONGEST) if _RUN.fullmatch(run_id) else None
    try:
        fields = json.loads(content or b"null")
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or fields.get("v") != 1:
        return None
    counts: list[Any] = [fields.get(name) for name in _FIELDS]
    return BatchReport(run_id, *counts) if all(type(count) is int and 0 <= count <= _MOST for count in counts) else None
