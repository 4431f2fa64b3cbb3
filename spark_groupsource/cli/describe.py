"""`groupkafka describe`: a group's members, partitions, offsets and lag."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from spark_groupsource.brokers.group_admin_process import GroupAdminProcess
from spark_groupsource.brokers.group_view import Difference, GroupMember, GroupView, PartitionView
from spark_groupsource.cli.as_json import Json, json_claims, json_held_back, json_text, place
from spark_groupsource.cli.group_changes import difference_text
from spark_groupsource.cli.render import (
    console_for,
    held_back_lines,
    lag_of,
    make_table,
    number,
    other_format_lines,
    print_table,
    printable,
)
from spark_groupsource.cli.shared_options import client_settings, group_options, json_option
from spark_groupsource.cli.sink_groups import OF_A_SINK, json_mark, sink_batch, sink_lines


@click.command()
@group_options
@json_option
def describe(bootstrap_server: str, group: str, command_config: Path | None, as_json: bool) -> None:
    """Show a group's members, partitions, offsets and lag.

    \b
    COMMITTED  the committed offset: every record below it is processed
    END        the end of the partition (high watermark)
    LAG        END minus COMMITTED
    HELD       offsets that streams have claimed and not yet confirmed.
               Either a micro-batch is processing them, or they are owed to
               a query that stopped; it reads them when it restarts
    MEMBER     client id, instance id of a static member, host
    STREAM     the query that wrote the commit; - for another client;
               a format number if this version does not read the record

    The group of a query that writes is named as such, with the micro-batch
    that it holds, or who may have a transaction open.

    If the members and the coordinator do not agree about a partition, that
    follows, too. While it moves, this lasts for seconds.

    A range that is not confirmed holds the committed offset back. What is
    finished above it counts as lag all the same. Such partitions follow below
    the table, with the range, its stream, and the number of these records.

    \b
    Example:
      groupkafka describe --bootstrap-server localhost:9092 --group orders
    """
    with GroupAdminProcess(client_settings(bootstrap_server, command_config)) as look:
        view = look.describe(group)
    if as_json:
        click.echo(json_text(json_group(view)))
    else:
        print_group(view, console_for(sys.stdout), datetime.now(timezone.utc))


def json_group(view: GroupView) -> Json:
    """Return the JSON of `groupkafka describe`."""
    return {
        "group": view.group,
        "state": view.state,
        "protocol": view.protocol,
        "assignor": view.assignor or None,
        "coordinator": view.coordinator or None,
        "lag": None if view.lag_unknown else view.lag,
        "lag_unknown": view.lag_unknown,
        "finished_lag": view.finished_lag,
        "held": view.held,
        "members": [_member(member) for member in view.members],
        "partitions": [_partition(one) for one in view.partitions],
        "differences": [_difference(one) for one in view.differences],
    }


def _difference(one: Difference) -> Json:
    return {
        **place(one.partition),
        "owner_member_id": None if one.owner is None else one.owner.member_id,
        "target_member_id": None if one.target is None else one.target.member_id,
        "writer_member_id": None if one.writer is None else one.writer.member_id,
    }


def _member(member: GroupMember) -> Json:
    return {
        "member_id": member.member_id,
        "client_id": member.client_id,
        "instance_id": member.instance_id,
        "host": member.host,
        "partitions": [place(partition) for partition in sorted(member.partitions)],
    }


def _partition(one: PartitionView) -> Json:
    return {
        **place(one.partition),
        "committed": one.committed,
        "end": one.end,
        "lag": one.lag,
        "held": one.held,
        "member_id": None if one.member is None else one.member.member_id,
        "stream": one.stream,
        "other_format": one.other_format,
        "sink_batch": sink_batch(one),
        "sink_mark": json_mark(one),
        "claims": json_claims(one),
        "held_back": json_held_back(one),
    }


def print_group(view: GroupView, console: Console, now: datetime) -> None:
    """Print what `groupkafka describe` shows."""
    console.print(Text(f"group        {printable(view.group)}"))
    console.print(Text(f"state        {view.state}, {len(view.members)} {'member' if len(view.members) == 1 else 'members'}"))
    console.print(Text(f"coordinator  {printable(view.coordinator) or '-'}"))
    console.print(Text(f"protocol     {view.protocol}, assignor {printable(view.assignor) or '-'}"))
    console.print()
    if view.partitions:
        print_table(partition_table(view.partitions, terminal=console.is_terminal), console)
        console.print(Text(f"{lag_of(view)}, held {view.held}, partitions {len(view.partitions)}"))
    else:
        console.print("No partition has a committed offset or a member.")
    print_sink(view, console)
    _print_differences(view, console)
    _print_held(view.partitions, console)
    _print_held_back(view.partitions, console, now)
    _print_other_formats(view, console)
    _print_idle([member for member in view.members if not member.partitions], console)


def partition_table(partitions: Iterable[PartitionView], *, terminal: bool) -> Table:
    """Return a table with a row for each partition."""
    table = make_table(("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "HELD", "MEMBER", "STREAM"), terminal=terminal)
    for one in partitions:
        numbers = (one.partition.partition, one.committed, one.end, one.lag, one.held)
        member = "-" if one.member is None else printable(one.member.name)
        stream = one.stream or ("-" if one.other_format is None else f"format {one.other_format}")
        texts = (printable(one.partition.topic), *map(number, numbers), member, stream)
        table.add_row(*map(Text, texts))
    return table


def print_sink(view: GroupView, console: Console) -> None:
    """Print that the group is a sink's, with what it holds, if it is."""
    if lines := sink_lines(view):
        console.print()
        console.print(Text(f"this group {OF_A_SINK}:"))
        for line in lines:
            console.print(Text(f"  {line}"))


def _print_differences(view: GroupView, console: Console) -> None:
    if view.differences:
        console.print()
        console.print("members and coordinator differ (if it stays: docs/operations.md, The group and a driver disagree):")
        for one in view.differences:
            console.print(Text(f"  {printable(difference_text(one))}"))


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
        console.print("held (claimed and not yet confirmed):")
        for line in lines:
            console.print(Text(line))


def _print_held_back(partitions: Iterable[PartitionView], console: Console, now: datetime) -> None:
    if lines := held_back_lines(partitions, now):
        console.print()
        console.print("committed offsets that a claimed range holds back:")
        for line in lines:
            console.print(Text(f"  {line}"))


def _print_other_formats(view: GroupView, console: Console) -> None:
    if lines := other_format_lines(view.other_formats):
        console.print()
        console.print("commit records that this version cannot read, so their claims are not known:")
        for line in lines:
            console.print(Text(f"  {line}"))


def _print_idle(members: list[GroupMember], console: Console) -> None:
    if members:
        console.print()
        console.print("members without partitions:")
        for member in members:
            console.print(Text(f"  {printable(member.name)}  {printable(member.member_id)}"))
