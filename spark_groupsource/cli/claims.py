"""`groupkafka claims`: the ranges of a group that streams have claimed and not yet confirmed."""

from __future__ import annotations

import shlex
import sys
from datetime import datetime, timezone
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from spark_groupsource.brokers.group_admin_process import GroupAdminProcess
from spark_groupsource.brokers.group_view import GroupView
from spark_groupsource.cli.as_json import Json, json_claims, json_held_back, json_text, place
from spark_groupsource.cli.describe import print_sink
from spark_groupsource.cli.render import (
    console_for,
    held_back_lines,
    make_table,
    other_format_lines,
    print_table,
    printable,
    time_and_age,
)
from spark_groupsource.cli.shared_options import client_settings, group_options, json_option
from spark_groupsource.cli.sink_groups import sink_lines

IN_FLIGHT = """\
in flight: a micro-batch is processing the range. Or its query has stopped, and no other query has the partition yet."""

OWED = """\
owed: its query stopped, or lost the partition, before it confirmed the range. No other query reads it. Do one of these:
  1. Restart the query of that stream ({streams}) on its checkpoint. It reads the range, and every record reaches the output
     once. To find the checkpoint: grep -rl STREAM CHECKPOINT/offsets
  2. If that checkpoint was deleted, restart the running queries with outstandingClaims=reread. They read the range. Records
     that had already reached the output are duplicated.
  3. Or set the offset by hand. Stop every member, then run this (without --execute it only shows what it would do):
     groupkafka reset-offsets --bootstrap-server HOST:PORT --group {group} --topic TOPIC:PARTITION --to-offset N --drop-claims"""


@click.command()
@group_options
@json_option
def claims(bootstrap_server: str, group: str, command_config: Path | None, as_json: bool) -> None:
    """List the ranges that streams have claimed and not yet confirmed: since when, and what to do.

    \b
    KIND    in flight: the current micro-batch of the partition's owner
            owed: its query stopped, or lost the partition, before it
            confirmed the range. Only that query reads it, when it restarts
    STREAM  the stream id of the query; each file of CHECKPOINT/offsets has it
    PLAN    the number of the stream's micro-batch
    SINCE   when it was claimed, by the clock of that query's driver

    The lowest range of a partition holds its committed offset back. What is
    finished above it counts as lag all the same. The lines below the table
    say how many records these are.

    \b
    Example:
      groupkafka claims --bootstrap-server localhost:9092 --group orders
    """
    with GroupAdminProcess(client_settings(bootstrap_server, command_config)) as look:
        view = look.describe(group)
    if as_json:
        click.echo(json_text(json_shape(view)))
    else:
        print_claims(view, console_for(sys.stdout), datetime.now(timezone.utc))


def json_shape(view: GroupView) -> Json:
    """Return the JSON of `groupkafka claims`."""
    return {
        "group": view.group,
        "state": view.state,
        "held": view.held,
        "claims": [{**place(one.partition), **claim} for one in view.partitions for claim in json_claims(one)],
        "held_back": [{**place(one.partition), **held} for one in view.partitions if (held := json_held_back(one)) is not None],
        "other_formats": [{**place(partition), "format": version} for partition, version in sorted(view.other_formats.items())],
    }


def print_claims(view: GroupView, console: Console, now: datetime) -> None:
    """Print each range that is claimed and not confirmed, and what to do about it."""
    rows = [
        (one.partition, kind, claim)
        for one in view.partitions
        for claims, kind in ((one.in_flight, "in flight"), (one.owed, "owed"))
        for claim in claims
    ]
    group = printable(view.group)
    if sink_lines(view):
        print_sink(view, console)
        return
    if unread := other_format_lines(view.other_formats):
        console.print(Text("The claims in these commit records are not known, because this version cannot read them:"))
        for line in unread:
            console.print(Text(f"  {line}"))
        console.print()
    if not rows:
        where = " in the other partitions" if unread else ""
        said = f"nothing is claimed{where}; every record below the committed offsets has been confirmed."
        if not any(one.committed is not None for one in view.partitions):
            said = "no committed offset is to be seen, so nothing is known of claims."
        console.print(Text(f"group {group}: {said} Brokers show the topics only that this user may describe."))
        return
    table = make_table(
        ("TOPIC", "PARTITION", "RANGE", "OFFSETS", "KIND", "STREAM", "PLAN", "SINCE"), terminal=console.is_terminal
    )
    for partition, kind, claim in sorted(rows, key=lambda row: (row[0], row[2].start)):
        cells = (printable(partition.topic), partition.partition, claim.range, claim.range.size, kind, claim.stream, claim.plan)
        table.add_row(*(Text(str(cell)) for cell in cells), Text(time_and_age(claim.since, now)))
    print_table(table, console)
    count = f"{len(rows)} {'range' if len(rows) == 1 else 'ranges'}"
    console.print(Text(f"group {group}, {view.state}: {count}, {view.held} offsets claimed and not yet confirmed"))
    for line in held_back_lines(view.partitions, now):
        console.print(Text(line))
    console.print()
    if any(kind == "in flight" for _, kind, _ in rows):
        console.print(Text(IN_FLIGHT))
    if owed := sorted({claim.stream for _, kind, claim in rows if kind == "owed"}):
        console.print(Text(OWED.format(streams=" or ".join(owed), group=shlex.quote(group))))
