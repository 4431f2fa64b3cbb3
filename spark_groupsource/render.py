"""A view of a group on a terminal, or as plain aligned text where there is none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .group_view import GroupMember, GroupView, PartitionView

_UNLIMITED = 10_000


def console_for(stream: TextIO) -> Console:
    """A console on `stream`; where that is no terminal, one that neither wraps nor colours."""
    if stream.isatty():
        return Console(file=stream, highlight=False)
    return Console(file=stream, highlight=False, width=_UNLIMITED, color_system=None, force_terminal=False)


def printable(text: str) -> str:
    """The text with every character that could steer a terminal written as an escape: clients choose their names."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def print_group(view: GroupView, console: Console) -> None:
    """Print what `groupkafka describe` shows."""
    console.print(Text(f"group        {printable(view.group)}"))
    console.print(Text(f"state        {view.state}, {len(view.members)} {'member' if len(view.members) == 1 else 'members'}"))
    console.print(Text(f"coordinator  {printable(view.coordinator) or '-'}"))
    console.print(Text(f"protocol     {view.protocol}, assignor {printable(view.assignor) or '-'}"))
    console.print()
    if view.partitions:
        _print_table(partition_table(view.partitions, terminal=console.is_terminal), console)
        console.print(Text(f"lag {view.lag}, held {view.held}, partitions {len(view.partitions)}"))
    else:
        console.print("No partition has a committed offset or a member.")
    _print_held(view.partitions, console)
    _print_idle([member for member in view.members if not member.partitions], console)


def partition_table(partitions: Iterable[PartitionView], *, terminal: bool) -> Table:
    """One row for each partition."""
    table = Table(box=None, pad_edge=False, header_style="bold" if terminal else "", padding=(0, 2, 0, 0))
    for name in ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "HELD", "MEMBER", "STREAM"):
        number = name in {"PARTITION", "COMMITTED", "END", "LAG", "HELD"}
        table.add_column(name, justify="right" if number else "left", overflow="fold", no_wrap=not terminal or number)
    for one in partitions:
        numbers = (one.partition.partition, one.committed, one.end, one.lag, one.held)
        member = "-" if one.member is None else member_name(one.member)
        texts = (printable(one.partition.topic), *map(_number, numbers), member, one.stream or "-")
        table.add_row(*map(Text, texts))
    return table


def member_name(member: GroupMember) -> str:
    """Instance id of a static member, else client id; with the host."""
    name = member.client_id if member.instance_id is None else f"{member.client_id}/{member.instance_id}"
    return f"{printable(name)}@{printable(member.host)}"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _print_table(table: Table, console: Console) -> None:
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as capture:
        console.print(table)
    # Cells are padded to the column's width: blanks at the end of a line are no use to anybody.
    for line in capture.get().splitlines():
        console.print(Text(line.rstrip()))


def _print_held(partitions: Iterable[PartitionView], console: Console) -> None:
    lines = []
    for one in partitions:
        for claims, meaning in ((one.owed, "owed: its query reads them when it restarts"), (one.in_flight, "in flight")):
            lines += [
                f"  {printable(str(one.partition))} {claim.range} {claim.range.size} offsets: "
                f"stream {claim.stream}, plan {claim.plan} ({meaning})"
                for claim in claims
            ]
    if lines:
        console.print()
        console.print("held, claimed and not yet confirmed:")
        for line in lines:
            console.print(Text(line))


def _print_idle(members: list[GroupMember], console: Console) -> None:
    if members:
        console.print()
        console.print("members without partitions:")
        for member in members:
            console.print(Text(f"  {member_name(member)}  {printable(member.member_id)}"))
