"""What commands print: on a terminal, or as plain aligned text where there is none."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

_UNLIMITED = 10_000

DRY_RUN = "dry run: nothing was changed; --execute does it"

NUMBERS = frozenset(
    {"PARTITION", "PARTITIONS", "COMMITTED", "END", "LAG", "HELD", "OFFSETS", "PLAN", "CURRENT", "NEW", "DIFFERENCE"}
    | {"PRODUCED/S", "COMMITTED/S"}
)
"""Columns that are aligned to the right."""


def console_for(stream: TextIO) -> Console:
    """A console on `stream`; where that is no terminal, one that neither wraps nor colours."""
    if stream.isatty():
        return Console(file=stream, highlight=False)
    return Console(file=stream, highlight=False, width=_UNLIMITED, color_system=None, force_terminal=False)


def printable(text: str) -> str:
    """The text with every character that could steer a terminal written as an escape: clients choose their names."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def time_and_age(seconds: int | None, now: datetime) -> str:
    """When, and how long ago; by the clock of the driver that claimed it."""
    if seconds is None:
        return "not known"
    then = datetime.fromtimestamp(seconds, tz=timezone.utc)
    minutes = max(0, round((now - then).total_seconds())) // 60
    ago = f"{minutes} min" if minutes < 120 else f"{minutes // 60} h" if minutes < 2880 else f"{minutes // 1440} d"
    return f"{then:%Y-%m-%dT%H:%M:%SZ} ({ago} ago)"


def make_table(names: Iterable[str], *, terminal: bool) -> Table:
    """An empty table with these columns."""
    table = Table(box=None, pad_edge=False, header_style="bold" if terminal else "", padding=(0, 2, 0, 0))
    for name in names:
        right = name in NUMBERS
        table.add_column(name, justify="right" if right else "left", overflow="fold", no_wrap=not terminal or right)
    return table


def number(value: float | None) -> str:
    """The value, `-` where there is none."""
    return "-" if value is None else str(value)


def print_table(table: Table, console: Console) -> None:
    """Print the table; elsewhere than on a terminal, without blanks at the ends of lines."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as capture:
        console.print(table)
    # Cells are padded to the column's width: blanks at the end of a line are no use to anybody.
    for line in capture.get().splitlines():
        console.print(Text(line.rstrip()))
