"""Prints tables and paragraphs for a terminal, or as plain aligned text for a file or a pipe, and gives members unique names."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timezone
from textwrap import fill
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from spark_groupsource.brokers.group_view import GroupMember, GroupView
from spark_groupsource.handoff.commit_record import VERSION
from spark_groupsource.partition import TopicPartition
from spark_groupsource.version import another_version

_UNLIMITED = 10_000
"""The line width when the output is not a terminal."""

_PARAGRAPH = 120
"""The paragraph width when the output is not a terminal."""

SHORTEST = 4
"""The minimum number of characters from the member id that are added to names that would otherwise be equal."""

DRY_RUN = "dry run: nothing was changed. Use --execute to make the change."
"""The last line that a command prints if it only showed what it would do."""

NUMBERS = frozenset(
    {"PARTITION", "PARTITIONS", "COMMITTED", "END", "LAG", "IN FLIGHT", "HELD", "POSITION", "OFFSETS"}
    | {"CURRENT", "NEW", "DIFFERENCE", "PRODUCED/S", "COMMITTED/S", "STABLE", "NOT VISIBLE"}
)
"""Columns that are right-aligned."""


def console_for(stream: TextIO) -> Console:
    """Return a console for `stream` that wraps lines and uses colors only if the stream is a terminal."""
    if stream.isatty():
        return Console(file=stream, highlight=False)
    return Console(file=stream, highlight=False, width=_UNLIMITED, color_system=None, force_terminal=False)


def printable(text: str) -> str:
    """Escape the text's control characters. Clients choose their own names, which could contain terminal codes."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def count(number: int, name: str) -> str:
    """Return a count with its noun: `1 partition`, `2 partitions`."""
    return f"{number} {name}{'' if number == 1 else 's'}"


def time_and_age(seconds: int | None, now: datetime) -> str:
    """Describe a time in UTC and how long ago it was, or return "not known" for `None`."""
    if seconds is None:
        return "not known"
    time = datetime.fromtimestamp(seconds, tz=timezone.utc)
    minutes = max(0, round((now - time).total_seconds())) // 60
    ago = f"{minutes} min" if minutes < 120 else f"{minutes // 60} h" if minutes < 2880 else f"{minutes // 1440} d"
    return f"{time:%Y-%m-%dT%H:%M:%SZ} ({ago} ago)"


def lag_of(group: GroupView) -> str:
    """Describe the group's lag, how much of it is finished, and in how many partitions it is unknown."""
    unknown = f" (not known in {count(group.lag_unknown, 'partition')})"
    known = f"at least {group.lag}{unknown}" if group.lag_unknown else str(group.lag)
    return f"lag {known}" + (f", of which finished {group.finished_lag}" if group.finished_lag else "")


def make_table(names: Iterable[str], *, terminal: bool, one_line: bool = False) -> Table:
    """Return an empty table with these columns.

    Args:
        names: The names of the columns.
        terminal: Whether the table is for a terminal, where long names are wrapped.
        one_line: Whether each row takes only one line, even if that truncates names on a narrow terminal.
    """
    table = Table(box=None, pad_edge=False, header_style="bold" if terminal else "", padding=(0, 2, 0, 0))
    for name in names:
        right = name in NUMBERS
        table.add_column(
            name,
            justify="right" if right else "left",
            overflow="ellipsis" if one_line and not right else "fold",
            no_wrap=not terminal or right or one_line,
        )
    return table


def other_format_lines(formats: Mapping[TopicPartition, int]) -> list[str]:
    """Return a line for each partition whose commit record is in a format that this version cannot read."""
    return [
        another_version(f"the commit record of {printable(str(partition))}", version, VERSION)
        for partition, version in sorted(formats.items())
    ]


def number(value: float | None) -> str:
    """Return the value as a string, or `-` for `None`."""
    return "-" if value is None else str(value)


def print_table(table: Table, console: Console) -> None:
    """Print the table, without trailing spaces unless the console is a terminal."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        console.print(Text(line.rstrip()))


def print_paragraphs(text: str, console: Console) -> None:
    """Print each line of the text as a paragraph. Wrapped lines align with the beginning of the paragraph or list item.

    A line that begins with a command is not wrapped, so that it can be copied.
    """
    width = console.width if console.is_terminal else _PARAGRAPH
    for line in text.split("\n"):
        beginning = re.match(r" *(\d\. )?", line)
        indent = " " * (beginning.end() if beginning is not None else 0)
        command = line.lstrip().startswith(("groupkafka ", "grep "))
        shown = line if command else fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        console.print(Text(shown), soft_wrap=True)


def member_names(*groups: GroupView) -> dict[str, str]:
    """Return a unique name for each member id, made from the client id, instance id and host. Never print it raw.

    If several members would have the same name, the beginning of each member id's unique part is appended.

    Args:
        groups: the group, or several snapshots of it to compare.
    """
    members = {member.member_id: member for group in groups for member in group.members}
    by_name: dict[str, list[GroupMember]] = defaultdict(list)
    for member in members.values():
        by_name[member.name].append(member)
    names: dict[str, str] = {}
    for name, namesakes in by_name.items():
        # A static member gets a new member id when it restarts, but is still the same member.
        if len({identity(member) for member in namesakes}) == 1:
            names |= dict.fromkeys((member.member_id for member in namesakes), name)
        else:
            names |= _told_apart(name, {member.member_id: _own_part(member) for member in namesakes})
    return names


def identity(member: GroupMember | None) -> str | None:
    """Return a static member's instance id, because it survives restarts, or any other member's member id."""
    return None if member is None else member.instance_id or member.member_id


def name_in(names: Mapping[str, str], member: GroupMember | None, nobody: str) -> str:
    """Return the member's name, or the value of `nobody` if there is no member."""
    return nobody if member is None else names.get(member.member_id, member.name)


def _own_part(member: GroupMember) -> str:
    """Return the member id without the client id that a classic group's coordinator puts in front of it."""
    return member.member_id.removeprefix(f"{member.client_id}-")


def _told_apart(name: str, parts: Mapping[str, str]) -> dict[str, str]:
    length = _length(parts.values())
    return {member_id: f"{name}#{part[:length]}" for member_id, part in parts.items()}


def _length(parts: Collection[str]) -> int:
    longest = max(len(part) for part in parts)
    enough = (length for length in range(SHORTEST, longest) if len({part[:length] for part in parts}) == len(parts))
    return next(enough, longest)
