"""Adds the group, query and stream to every log record.

All runners of a driver write to one stderr, and so do all workers of an executor. A runner works for one query. A worker has one
task at a time, and the next task may belong to another query. So each record keeps the names that were current when it was made.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

FIELD = "groupkafka_subject"
"""The attribute of a log record that formatters can show. It is empty, or ends with a colon and a space."""

_subject = ""


def work_for(**names: str | None) -> None:
    """Set the names that are added to log records from now on.

    Args:
        names: The names by kind, such as a group and a query, in the order to show them. Empty names are left out.
    """
    global _subject
    shown = ", ".join(f"{kind} {_printable(name)}" for kind, name in names.items() if name)
    _subject = f"{shown}: " if shown else ""


def current_subject() -> str:
    """Return the names that are added to log records now, as in FIELD."""
    return _subject


@functools.cache
def name_in_records() -> None:
    """Give every log record of this process the attribute FIELD. It is empty in the records of other packages."""
    make = logging.getLogRecordFactory()

    def named(*given: Any, **more: Any) -> logging.LogRecord:
        """Make a log record with the attribute FIELD."""
        record = make(*given, **more)
        # logging.makeLogRecord, which recreates the record of another process, first makes it without a name.
        is_ours = record.name is not None and record.name.partition(".")[0] == __package__
        setattr(record, FIELD, _subject if is_ours else "")
        return record

    logging.setLogRecordFactory(named)


def _printable(name: str) -> str:
    """Return the name with characters escaped that could break a log line. A group's name may contain any character."""
    return name if name.isprintable() else ascii(name)
