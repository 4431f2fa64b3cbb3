"""Prints tables and sections for a terminal, or as plain text for a file or a pipe, and prints JSON and unique names.

In JSON, later versions may add fields, but rename and remove none. Offsets and counts are numbers, or `null` if unknown. Times
are ISO 8601 in UTC. Lists are sorted by topic and partition, and members by client id and member id. Names are not changed, but
all non-ASCII characters are escaped.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timezone
from typing import Any, TextIO

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from spark_groupsource.brokers.group_view import GroupMember, GroupView, PartitionView
from spark_groupsource.handoff.commit_record import VERSION
from spark_groupsource.partition import TopicPartition
from spark_groupsource.version import another_version

Json = dict[str, Any]

_UNLIMITED = 10_000
"""The line width when the output is not a terminal."""

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
    minutes = max(0, round(now.timestamp() - seconds)) // 60
    ago = f"{minutes} min" if minutes < 120 else f"{minutes // 60} h" if minutes < 2880 else f"{minutes // 1440} d"
    return f"{iso_or_none(seconds)} ({ago} ago)"


def print_json(value: Json) -> None:
    """Print the value as indented JSON."""
    click.echo(json.dumps(value, indent=2))


def iso(time: datetime) -> str:
    """Format a time as ISO 8601 in UTC, without fractions of a second."""
    return time.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def iso_or_none(seconds: int | None) -> str | None:
    """Format a Unix time in seconds as ISO 8601, or return `None` for `None`."""
    return None if seconds is None else iso(datetime.fromtimestamp(seconds, tz=timezone.utc))


def place(partition: TopicPartition) -> Json:
    """Return the two JSON fields that identify a partition."""
    return {"topic": partition.topic, "partition": partition.partition}


def lag_of(group: GroupView) -> str:
    """Describe the group's lag, how much of it is finished, and in how many partitions it is unknown."""
    unknown = f" (not known in {count(group.lag_unknown, 'partition')})"
    known = f"at least {group.lag}{unknown}" if group.lag_unknown else str(group.lag)
    return f"lag {known}" + (f", of which finished {group.finished_lag}" if group.finished_lag else "")


def make_table(names: Iterable[str], rows: Iterable[Iterable[object]], *, terminal: bool, one_line: bool = False) -> Table:
    """Return a table.

    Args:
        names: The names of the columns.
        rows: The values in each row, see `cell`.
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
    for row in rows:
        table.add_row(*(Text(cell(value)) for value in row))
    return table


def other_format_lines(views: Iterable[PartitionView]) -> list[str]:
    """Return a line for each partition whose commit record is in a format that this version cannot read."""
    return [
        another_version(f"the commit record of {printable(str(view.partition))}", view.other_format, VERSION)
        for view in views
        if view.other_format is not None
    ]


def indented(lines: Iterable[str]) -> str:
    """Return the lines as a list in an error, each after a line break and two spaces."""
    return "".join(f"\n  {line}" for line in lines)


def cell(value: object) -> str:
    """Return a value as text that is safe to print, or `-` for `None`."""
    return "-" if value is None else printable(str(value))


def print_table(table: Table, console: Console) -> None:
    """Print the table, without trailing spaces unless the console is a terminal."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        console.print(Text(line.rstrip()))


def print_section(heading: str, lines: Collection[str], console: Console) -> None:
    """Print an empty line, the heading, and the indented lines. Print nothing if there are no lines."""
    for line in ("", heading, *(f"  {line}" for line in lines)) if lines else ():
        console.print(Text(line))


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
            continue
        # A classic group's coordinator puts the client id in front of each member id.
        parts = {member.member_id: member.member_id.removeprefix(f"{member.client_id}-") for member in namesakes}
        longest = max(map(len, parts.values()))
        enough = (length for length in range(SHORTEST, longest) if len({part[:length] for part in parts.values()}) == len(parts))
        length = next(enough, longest)
        names |= {member_id: f"{name}#{part[:length]}" for member_id, part in parts.items()}
    return names


def identity(member: GroupMember | None) -> str | None:
    """Return a static member's instance id, because it survives restarts, or any other member's member id."""
    return None if member is None else member.instance_id or member.member_id


def name_in(names: Mapping[str, str], member: GroupMember | None, nobody: str) -> str:
    """Return the member's name, or the value of `nobody` if there is no member."""
    return nobody if member is None else names.get(member.member_id, member.name)
