"""Whom this process works for, as each of its log lines says.

All runners of a driver write to one stderr, and so do all workers of an executor. A runner works for one query. A worker has one
task at a time, and the next one may be another query's. So a line keeps whom it was written for.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

FIELD = "groupkafka_subject"
"""The attribute of a record, for any formatter of a process that Spark starts. It is empty, or ends with a colon and a blank."""

_subject = ""


def work_for(**names: str | None) -> None:
    """Set whom the lines from now on are written for.

    Args:
        names: What it is, in the order in which it is shown, such as a group and a query. Without a value it is left out.
    """
    global _subject
    shown = ", ".join(f"{kind} {_printable(name)}" for kind, name in names.items() if name)
    _subject = f"{shown}: " if shown else ""


def current_subject() -> str:
    """Return whom lines are written for now, as FIELD has it."""
    return _subject


@functools.cache
def name_in_records() -> None:
    """From now on each record of this process has FIELD, also for a handler that is not ours: empty in those of others."""
    make = logging.getLogRecordFactory()

    def named(*given: Any, **more: Any) -> logging.LogRecord:
        record = make(*given, **more)
        # logging.makeLogRecord, which remakes the record of another process, gives it no name at first.
        is_ours = record.name is not None and record.name.partition(".")[0] == __package__
        setattr(record, FIELD, _subject if is_ours else "")
        return record

    logging.setLogRecordFactory(named)


def _printable(name: str) -> str:
    """Return a name that cannot begin a line of its own. A group may have any character."""
    return name if name.isprintable() else ascii(name)
