"""Adds the group, query and stream to every log record.

All of a driver's runners share one stderr, and so do all of an executor's workers. A runner serves one query. A worker runs one
task at a time, and the next task may belong to another query. So each record keeps the names that were current when it was made.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

FIELD = "groupkafka_subject"
"""The log record attribute that formatters can show. It is empty, or ends with a colon and a space."""

_subject = ""


def work_for(**names: str | None) -> None:
    """Set the names to add to log records from now on.

    Args:
        names: The names by kind (such as `group` and `query`), in display order. Empty names are left out.
    """
    global _subject
    shown = ", ".join(f"{kind} {_printable(name)}" for kind, name in names.items() if name)
    _subject = f"{shown}: " if shown else ""


def current_subject() -> str:
    """Return the names that are currently added to log records, formatted as in FIELD."""
    return _subject


@functools.cache
def name_in_records() -> None:
    """Add the FIELD attribute to every log record in this process. It is empty in other packages' records."""
    make = logging.getLogRecordFactory()

    def named(*given: Any, **more: Any) -> logging.LogRecord:
        """Make a log record with the FIELD attribute."""
        record = make(*given, **more)
        # logging.makeLogRecord, which recreates a record from another process, first makes it without a name.
        is_ours = record.name is not None and record.name.partition(".")[0] == __package__
        setattr(record, FIELD, _subject if is_ours else "")
        return record

    logging.setLogRecordFactory(named)


def _printable(name: str) -> str:
    """Escape characters that could break a log line. A group's name may contain any character."""
    return name if name.isprintable() else ascii(name)
