"""`groupkafka describe`: shows a group's members, partitions, offsets and lag."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime, timezone

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from spark_groupsource.brokers.group_admin_process import GroupAdminProcess
from spark_groupsource.brokers.group_view import Difference, GroupMember, GroupView, PartitionView
from spark_groupsource.cli.claimed import (
    claim_line,
    claimed_in,
    claimed_of,
    json_claimed,
    json_lowest_claim,
    total,
)
from spark_groupsource.cli.group_changes import difference_text
from spark_groupsource.cli.render import (
    Json,
    console_for,
    count,
    lag_of,
    make_table,
    member_names,
    name_in,
    other_format_lines,
    place,
    print_json,
    print_section,
    print_table,
    printable,
)
from spark_groupsource.cli.shared_options import brokers_options, group_option, json_option
from spark_groupsource.cli.sink_groups import (
    OF_A_SINK,
    as_read,
    json_transaction,
    kept_by_sink,
    read_part,
    sink_batch,
    sink_lines,
)


@click.command()
@brokers_options
@group_option
@json_option
def describe(settings: Mapping[str, str], group: str, as_json: bool) -> None:
    """Show a group's members, partitions, offsets and lag.

    \b
    COMMITTED  the committed offset: every record below it has been processed
    END        the end of the partition (high watermark)
    LAG        END minus COMMITTED
    IN FLIGHT  offsets that a running query is processing in its micro-batch
    HELD       offsets of a query that stopped, or lost the partition, before
               it confirmed them. The query reads them after you restart it
    POSITION   where the group's queries continue: the next offset to claim
    MEMBER     client id, instance id of a static member, and host, with the
               beginning of the member id if two members have the same name
    STREAM     the stream of the query that wrote the commit; - for another
               client, and a format number if this version cannot read it

    The lines below the table list the ranges in flight or held. The committed
    offset stays at the lowest one. Finished records above it still count as
    lag, and the line shows how many they are.

    Partitions on which the members and the coordinator disagree are also
    listed. This is normal for a few seconds while a partition moves.

    If a query's sink keeps its progress in the group, the output shows
    which micro-batch was written last, or which process may have a transaction
    open. Such offsets have no lag.

    \b
    Example:
      groupkafka describe --bootstrap-server localhost:9092 --group orders
    """
    with GroupAdminProcess(settings) as groups:
        described = groups.describe(group)
    if as_json:
        print_json(json_group(described))
    else:
        print_group(described, console_for(sys.stdout), datetime.now(timezone.utc))


def json_group(group: GroupView) -> Json:
    """Return the output of `groupkafka describe --json`."""
    names, sizes, read = member_names(group), total(claimed_in(group)), read_part(group)
    return {
        "group": group.group,
        "state": group.state,
        "protocol": group.protocol,
        "assignor": group.assignor or None,
        "coordinator": group.coordinator or None,
        "lag": None if read is None or read.lag_unknown else read.lag,
        "lag_unknown": 0 if read is None else read.lag_unknown,
        "finished_lag": group.finished_lag,
        "in_flight": sizes.in_flight,
        "held": sizes.held,
        "members": [_member(member, names[member.member_id]) for member in group.members],
        "partitions": [_partition(group, view) for view in group.partitions],
        "differences": [_difference(difference) for difference in group.differences],
    }


def _difference(difference: Difference) -> Json:
    members = (difference.owner, difference.target, difference.writer)
    owner, target, writer = (None if member is None else member.member_id for member in members)
    return {**place(difference.partition), "owner_member_id": owner, "target_member_id": target, "writer_member_id": writer}


def _member(member: GroupMember, name: str) -> Json:
    return {
        "member_id": member.member_id,
        "name": name,
        "client_id": member.client_id,
        "instance_id": member.instance_id,
        "host": member.host,
        "partitions": [place(partition) for partition in sorted(member.partitions)],
    }


def _partition(group: GroupView, view: PartitionView) -> Json:
    ranges = claimed_of(group, view)
    in_flight, held = claimed_sizes(group, view)
    return {
        **place(view.partition),
        "committed": view.committed,
        "end": view.end,
        "lag": as_read(view).lag,
        "in_flight": in_flight,
        "held": held,
        "position": as_read(view).position,
        "member_id": None if view.member is None else view.member.member_id,
        "stream": view.stream,
        "other_format": view.other_format,
        "sink_batch": sink_batch(view),
        "sink_transaction": json_transaction(view),
        "claims": [json_claimed(claimed) for claimed in ranges],
        "lowest_claim": json_lowest_claim(ranges),
    }


def print_group(group: GroupView, console: Console, now: datetime) -> None:
    """Print the output of `groupkafka describe`."""
    ranges = claimed_in(group)
    console.print(Text(f"group        {printable(group.group)}"))
    console.print(Text(f"state        {group.state}, {count(len(group.members), 'member')}"))
    console.print(Text(f"coordinator  {printable(group.coordinator) or '-'}"))
    console.print(Text(f"protocol     {group.protocol}, assignor {printable(group.assignor) or '-'}"))
    console.print()
    if group.partitions:
        print_table(partition_table(group, terminal=console.is_terminal), console)
        console.print(Text(f"{lag_and_claims(group)}, partitions {len(group.partitions)}"))
    else:
        console.print("No partition has a committed offset or a member.")
    print_sink(group, console)
    names = member_names(group)
    heading = "members and coordinator disagree (if this persists, see docs/operations.md, The group and a driver disagree):"
    print_section(heading, [printable(difference_text(difference, names)) for difference in group.differences], console)
    print_section("claimed but not confirmed:", [claim_line(claimed, now) for claimed in ranges], console)
    if any(claimed.kind == "held" for claimed in ranges):
        console.print("To see what to do about a held range, run: groupkafka claims")
    heading = "commit records that this version cannot read, so it does not show their claims:"
    print_section(heading, other_format_lines(group.partitions), console)
    idle = [member.member_id for member in group.members if not member.partitions]
    print_section("members without partitions:", [printable(f"{names[member]}  {member}") for member in idle], console)


def partition_table(group: GroupView, *, terminal: bool) -> Table:
    """Return a table with one row per partition."""
    columns = ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "IN FLIGHT", "HELD", "POSITION", "MEMBER", "STREAM")
    names = member_names(group)
    rows = []
    for view in group.partitions:
        offsets = (view.committed, view.end, as_read(view).lag, *claimed_sizes(group, view), as_read(view).position)
        stream = view.stream or (None if view.other_format is None else f"format {view.other_format}")
        rows.append((*view.partition, *offsets, name_in(names, view.member, "-"), stream))
    return make_table(columns, rows, terminal=terminal)


def claimed_sizes(group: GroupView, view: PartitionView) -> tuple[int | None, int | None]:
    """Return how many of a partition's offsets are in flight and held, or `None` if its record is unreadable or has no claims."""
    no_claims = view.other_format is not None or kept_by_sink(view)
    return (None, None) if no_claims else total(claimed_of(group, view))


def lag_and_claims(group: GroupView) -> str:
    """Describe the group's lag, and how many offsets are in flight and held."""
    read = read_part(group)
    if read is None:
        return "no lag (the group belongs to a query's sink)"
    sizes = total(claimed_in(group))
    return f"{lag_of(read)}, in flight {sizes.in_flight}, held {sizes.held}"


def print_sink(group: GroupView, console: Console) -> None:
    """Print what a sink keeps in the group, if anything."""
    print_section(f"this group {OF_A_SINK}. It holds:", sink_lines(group), console)
