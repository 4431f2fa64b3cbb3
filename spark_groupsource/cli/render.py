"""A view of a group on a terminal, or as plain aligned text where there is none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from spark_groupsource.brokers.group_view import GroupMember, GroupView, PartitionView
from spark_groupsource.cli.findings import Finding, Level
from spark_groupsource.cli.offset_reset import OffsetReset

if TYPE_CHECKING:
    from spark_groupsource.cli.migrate import Migration

_UNLIMITED = 10_000

STATE_STAYS = """\
The old query keeps state (aggregation, deduplication, join): it stays behind, and the new query begins without any."""

STOP_FIRST = """\
The old query has to be stopped: Spark's source joins no group, so nothing here can tell whether it still runs."""

DRY_RUN = "dry run: nothing was changed; --execute does it"

NEXT = """\
done. Start the groupkafka query with kafka.group.id={group}, a checkpoint of its own, startingOffsets=earliest for partitions and
topics that are created before its first micro-batch, and an output that does not know its micro-batches yet: they count from 0
again, and a sink that ignores the ids that it has (files, Delta Lake's txnVersion) would ignore these. The old query is not to
run again."""

IN_FLIGHT = """\
in flight: a micro-batch is running with it; or its query has stopped, and nobody has taken the partition over yet."""

OWED = """\
owed: its query stopped, or lost the partition, before it confirmed the range. One of these ends that:
  1. Restart the query of that stream ({streams}) on its checkpoint: it reads the range, and every record reaches the output
     once. Which checkpoint is it? grep -rl STREAM CHECKPOINT/offsets
  2. If that checkpoint is gone, restart the queries that are running now with outstandingClaims=reread: they read the range;
     records that had reached the output before are there twice.
  3. Or say by hand where to go on: stop every member, then (this only shows what it would do)
     groupkafka reset-offsets --group {group} --topic TOPIC:PARTITION --to-offset N --drop-claims"""

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


def print_claims(view: GroupView, console: Console, now: datetime) -> None:
    """Print what `groupkafka claims` shows: each range that is claimed and not confirmed, and what can be done about it."""
    rows = [
        (one.partition, kind, claim)
        for one in view.partitions
        for claims, kind in ((one.in_flight, "in flight"), (one.owed, "owed"))
        for claim in claims
    ]
    group = printable(view.group)
    if not rows:
        console.print(Text(f"group {group}: nothing is claimed; every record below the committed offsets has been confirmed."))
        return
    table = make_table(
        ("TOPIC", "PARTITION", "RANGE", "OFFSETS", "KIND", "STREAM", "PLAN", "SINCE"), terminal=console.is_terminal
    )
    for partition, kind, claim in sorted(rows, key=lambda row: (row[0], row[2].start)):
        cells = (printable(partition.topic), partition.partition, claim.range, claim.range.size, kind, claim.stream, claim.plan)
        table.add_row(*(Text(str(cell)) for cell in cells), Text(_since(claim.since, now)))
    _print_table(table, console)
    count = f"{len(rows)} {'range' if len(rows) == 1 else 'ranges'}"
    console.print(Text(f"group {group}, {view.state}: {count}, {view.held} offsets claimed and not yet confirmed"))
    console.print()
    if any(kind == "in flight" for _, kind, _ in rows):
        console.print(Text(IN_FLIGHT))
    if owed := sorted({claim.stream for _, kind, claim in rows if kind == "owed"}):
        console.print(Text(OWED.format(streams=" or ".join(owed), group=group)))


def _since(seconds: int | None, now: datetime) -> str:
    """When, and how long ago; by the clock of the driver that claimed it."""
    if seconds is None:
        return "not known"
    then = datetime.fromtimestamp(seconds, tz=timezone.utc)
    minutes = max(0, round((now - then).total_seconds())) // 60
    ago = f"{minutes} min" if minutes < 120 else f"{minutes // 60} h" if minutes < 2880 else f"{minutes // 1440} d"
    return f"{then:%Y-%m-%dT%H:%M:%SZ} ({ago} ago)"


def print_resets(resets: Sequence[OffsetReset], console: Console) -> None:
    """Print the plan of `groupkafka reset-offsets`, and the claims that it would forget."""
    _print_moves(resets, console)
    for reset in resets:
        for claim in reset.claims:
            where = f"{printable(str(reset.partition))} {claim.range} {claim.range.size} offsets"
            console.print(Text(f"claimed, and forgotten by a reset: {where}: stream {claim.stream}, plan {claim.plan}"))


def _print_moves(resets: Iterable[OffsetReset], console: Console) -> None:
    table = make_table(("TOPIC", "PARTITION", "CURRENT", "NEW", "DIFFERENCE"), terminal=console.is_terminal)
    for reset in resets:
        difference = "-" if reset.difference is None else f"{reset.difference:+d}" if reset.difference else "0"
        numbers = (str(reset.partition.partition), number(reset.current), str(reset.new), difference)
        table.add_row(*map(Text, (printable(reset.partition.topic), *numbers)))
    _print_table(table, console)


def print_migration(migration: Migration, console: Console, now: datetime) -> None:
    """Print the plan of `groupkafka migrate`, and what to know of it."""
    last, when = migration.last, migration.committed_at
    console.print(Text(f"checkpoint   {printable(migration.checkpoint)}, source {printable(migration.source)}"))
    console.print(Text(f"query        {migration.query or 'not known'}"))
    committed = "" if when is None else f", committed {_since(int(when.timestamp()), now)}"
    console.print(Text(f"micro-batch  {last.committed}{committed}"))
    if last.planned != last.committed:
        what = "read again" if migration.batch == last.committed else "skipped"
        console.print(Text(f"             {last.planned} was planned and not committed: its records are {what}"))
    console.print(Text(f"group        {printable(migration.group)}"))
    console.print()
    _print_moves(migration.resets, console)
    for partition in sorted(migration.added):
        console.print(Text(f"added after the checkpoint, from its beginning: {printable(str(partition))}"))
    for partition, lost in migration.expired.items():
        where = f"{printable(str(partition))} {lost} {lost.size} offsets"
        console.print(Text(f"no longer in Kafka: {where}; the query will stop and say so, or go on with failOnDataLoss=false"))
    for partition in migration.gone:
        console.print(Text(f"no longer in Kafka, left out: {printable(str(partition))}"))
    if migration.stateful:
        console.print(Text(STATE_STAYS))


def print_next(group: str, console: Console, *, executed: bool) -> None:
    """Print what to do once `groupkafka migrate` has shown its plan, or has done it."""
    # As Text: brackets in the group's name are none of rich's markup.
    console.print(Text(NEXT.format(group=printable(group)) if executed else f"{STOP_FIRST}\n{DRY_RUN}"))


def print_finding(finding: Finding, console: Console) -> None:
    """Print one line of `groupkafka check`."""
    text = Text(f"{finding.level.value:<8} ", style=_STYLES[finding.level] if console.is_terminal else "")
    console.print(text.append(Text(f"{finding.check:<11} {printable(finding.text)}", style="default")))


_STYLES = {Level.OK: "green", Level.WARNING: "bold yellow", Level.ERROR: "bold red"}


def partition_table(partitions: Iterable[PartitionView], *, terminal: bool) -> Table:
    """One row for each partition."""
    table = make_table(("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "HELD", "MEMBER", "STREAM"), terminal=terminal)
    for one in partitions:
        numbers = (one.partition.partition, one.committed, one.end, one.lag, one.held)
        member = "-" if one.member is None else printable(one.member.name)
        texts = (printable(one.partition.topic), *map(number, numbers), member, one.stream or "-")
        table.add_row(*map(Text, texts))
    return table


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
            console.print(Text(f"  {printable(member.name)}  {printable(member.member_id)}"))
