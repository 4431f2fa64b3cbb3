"""`groupkafka claims`: lists the ranges that queries have claimed but not confirmed, and explains what to do about them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from datetime import datetime, timezone

import click
from rich.console import Console
from rich.text import Text

from spark_groupsource.brokers.group_admin_process import GroupAdminProcess
from spark_groupsource.brokers.group_view import GroupView
from spark_groupsource.cli.claimed import claimed_in, finished_text, json_claimed, json_lowest_claim, total
from spark_groupsource.cli.describe import print_sink
from spark_groupsource.cli.render import (
    Json,
    console_for,
    count,
    make_table,
    member_names,
    name_in,
    other_format_lines,
    place,
    print_json,
    print_table,
    printable,
    time_and_age,
)
from spark_groupsource.cli.shared_options import brokers_options, group_option, json_option
from spark_groupsource.cli.sink_groups import sink_lines

IN_FLIGHT = """\
in flight: a running query is processing the range in its micro-batch. Nothing needs to be done. A query that was killed
still counts as running until its session times out, after 45 s by default."""

HELD = """\
held: the query that claimed the range {reason}.
It may have written none, some or all of these records, so no other query reads them. Do one of these:
  1. Restart the query of that stream ({streams}) from its checkpoint.
     It will read the range, and every record will reach the output once. To find the checkpoint, run:
     grep -rl STREAM CHECKPOINT/offsets
  2. If the checkpoint was deleted, restart the running queries with heldClaims=reread. They will read the range.
     Records that had already reached the output will be duplicated.
  3. Or set the offset by hand. Stop every member, then run this command, which changes nothing without --execute:
     groupkafka reset-offsets --bootstrap-server HOST:PORT --group {group} --topic TOPIC:PARTITION --to-offset N --drop-claims"""

NOBODY_RUNS = "is not running, because the group has no members"
AWAY = "stopped, or lost the partition, before it confirmed the range"


@click.command()
@brokers_options
@group_option
@json_option
def claims(settings: Mapping[str, str], group: str, as_json: bool) -> None:
    """List the ranges that queries have claimed but not confirmed, how old they are, and what to do about them.

    \b
    KIND    in flight: a running query is processing the range
            held: the query that claimed the range stopped, or lost the
            partition, before it confirmed the range. Only that query reads it,
            after you restart it
    MEMBER  the member that is processing the range
    STREAM  the stream of the query that claimed the range. Each file in
            CHECKPOINT/offsets contains its name
    SINCE   when the range was claimed, by the clock of that query's driver

    The committed offset of a partition stays at the lowest claim. Finished
    records above it still count as lag, and the lines below the table show how
    many they are.

    \b
    Example:
      groupkafka claims --bootstrap-server localhost:9092 --group orders
    """
    with GroupAdminProcess(settings) as groups:
        described = groups.describe(group)
    if as_json:
        print_json(json_shape(described))
    else:
        print_claims(described, console_for(sys.stdout), datetime.now(timezone.utc))


def json_shape(group: GroupView) -> Json:
    """Return the output of `groupkafka claims --json`."""
    ranges = claimed_in(group)
    sizes = total(ranges)
    lowest = [(claimed, json_lowest_claim([claimed])) for claimed in ranges]
    return {
        "group": group.group,
        "state": group.state,
        "in_flight": sizes.in_flight,
        "held": sizes.held,
        "claims": [
            {
                **place(claimed.partition),
                **json_claimed(claimed),
                "member_id": None if claimed.member is None else claimed.member.member_id,
            }
            for claimed in ranges
        ],
        "lowest_claims": [{**place(claimed.partition), **shown} for claimed, shown in lowest if shown is not None],
        "other_formats": [{**place(partition), "format": version} for partition, version in sorted(group.other_formats.items())],
    }


def print_claims(group: GroupView, console: Console, now: datetime) -> None:
    """Print each range that is claimed but not confirmed, and what to do about it."""
    if sink_lines(group):
        print_sink(group, console)
        return
    if unread := other_format_lines(group.partitions):
        console.print(Text("This version cannot read these commit records, so it does not show their claims:"))
        for line in unread:
            console.print(Text(f"  {line}"))
        console.print()
    ranges, name = claimed_in(group), printable(group.group)
    if not ranges:
        unless_unread = " in the other partitions" if unread else ""
        text = f"nothing is claimed{unless_unread}."
        if not any(view.committed is not None for view in group.partitions):
            text = "no committed offset is visible, so it is not known whether anything is claimed."
        console.print(Text(f"group {name}: {text} Brokers show only the topics that this user may describe."))
        return
    names = member_names(group)
    rows = [
        (
            *claimed.partition,
            *(claimed.claim.range, claimed.claim.range.size, claimed.kind, name_in(names, claimed.member, "-")),
            *(claimed.claim.stream, time_and_age(claimed.claim.since, now)),
        )
        for claimed in ranges
    ]
    columns = ("TOPIC", "PARTITION", "RANGE", "OFFSETS", "KIND", "MEMBER", "STREAM", "SINCE")
    print_table(make_table(columns, rows, terminal=console.is_terminal), console)
    sizes = total(ranges)
    offsets = f"{count(sizes.in_flight, 'offset')} in flight, {sizes.held} held"
    console.print(Text(f"group {name}, {group.state}: {count(len(ranges), 'range')} claimed but not confirmed, {offsets}"))
    for claimed in ranges:
        if claimed.finished_lag:
            line = f"{printable(str(claimed.partition))} {claimed.claim.range}: {finished_text(claimed)}"
            console.print(Text(line))
    console.print()
    if sizes.in_flight:
        console.print(Text(IN_FLIGHT))
    if streams := sorted({claimed.claim.stream for claimed in ranges if claimed.kind == "held"}):
        reason = AWAY if group.members else NOBODY_RUNS
        text = HELD.format(reason=reason, streams=" or ".join(streams), group=shlex.quote(name))
        console.print(Text(text), soft_wrap=True)  # so that the commands can be copied
