"""`groupkafka reset-offsets`: sets a stopped group's committed offsets by hand.

The options have the same names as in Kafka's own `kafka-consumer-groups.sh --reset-offsets`, which does not check for claims. A
reset deletes claims, and a query that restarts from its checkpoint skips a range whose claim is gone.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import click
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]
from rich.console import Console
from rich.text import Text

from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.brokers.group_view import GroupView, refuse_active
from spark_groupsource.cli.as_json import Json, json_claim, json_text, place
from spark_groupsource.cli.render import DRY_RUN, console_for, make_table, number, other_format_lines, print_table, printable
from spark_groupsource.cli.shared_options import client_settings, execute_option, group_options, json_option
from spark_groupsource.cli.sink_groups import refuse_sink
from spark_groupsource.errors import ClaimsInTheWay, OffsetsInTheWay, OptionError
from spark_groupsource.handoff.commit_record import OwedRange
from spark_groupsource.options.values import TOPIC_NAME
from spark_groupsource.partition import OffsetRange, TopicPartition


@click.command("reset-offsets")
@group_options
@click.option(
    "--topic", "topics", multiple=True, metavar="NAME[:0,1]", help="A topic, or some of its partitions. Can be repeated."
)
@click.option("--to-earliest", is_flag=True, help="To the first available record.")
@click.option("--to-latest", is_flag=True, help="To the end: only new records are read.")
@click.option("--to-datetime", metavar="ISO8601", help="To the first record at or after this time. UTC if there is no zone.")
@click.option("--to-offset", type=int, metavar="N", help="To this offset, or to the nearest available one.")
@execute_option
@click.option("--drop-claims", is_flag=True, help="Also reset partitions with unconfirmed claims, and delete these claims.")
@json_option
def reset_offsets(
    bootstrap_server: str,
    group: str,
    command_config: Path | None,
    topics: tuple[str, ...],
    to_earliest: bool,
    to_latest: bool,
    to_datetime: str | None,
    to_offset: int | None,
    execute: bool,
    drop_claims: bool,
    as_json: bool,
) -> None:
    """Set the committed offsets of a group whose members are all stopped.

    The options are the same as for kafka-consumer-groups.sh --reset-offsets. The command refuses partitions with ranges that are
    claimed but not confirmed (see groupkafka claims): first restart the queries that claimed them, or use --drop-claims. It also
    refuses partitions whose commit record this version cannot read, unless you use --drop-claims. It always refuses a group that
    belongs to a query's sink.

    \b
    Example:
      groupkafka reset-offsets --bootstrap-server localhost:9092 --group orders \\
        --topic orders:0,1 --to-datetime 2026-11-21T16:00:00Z --execute
    """
    to = target(to_earliest=to_earliest, to_latest=to_latest, to_datetime=to_datetime, to_offset=to_offset)
    admin = GroupAdmin(client_settings(bootstrap_server, command_config))
    resets = plan_reset(admin, group, topics, to)
    if not as_json:
        print_resets(resets, console_for(sys.stdout))
    if execute:
        execute_reset(admin, group, resets, drop_claims=drop_claims)
    if as_json:
        click.echo(json_text(json_shape(group, resets, executed=execute)))
    else:
        click.echo("done" if execute else DRY_RUN)


@dataclass(frozen=True)
class OffsetReset:
    """One partition's reset: its committed offset (`None` without a commit), its new offset, and its claims."""

    partition: TopicPartition
    current: int | None
    new: int
    claims: tuple[OwedRange, ...]
    """The claims that the reset deletes."""
    other_format: int | None = None
    """The commit record's format, if this version cannot read it, so its claims are unknown."""

    @property
    def difference(self) -> int | None:
        """How far the reset moves the committed offset forward. Negative if it moves back, `None` without a commit."""
        return None if self.current is None else self.new - self.current


@dataclass(frozen=True)
class Target:
    """The target of a reset: an offset, or a spec that the brokers resolve to one."""

    offset: int | None = None
    spec: OffsetSpec | None = None


def target(*, to_earliest: bool, to_latest: bool, to_datetime: str | None, to_offset: int | None) -> Target:
    """Return the target that the options choose.

    Raises:
        OptionError: No target or more than one was given, or it is malformed.
    """
    given = {
        "--to-earliest": to_earliest,
        "--to-latest": to_latest,
        "--to-datetime": to_datetime is not None,
        "--to-offset": to_offset is not None,
    }
    chosen = [name for name, is_given in given.items() if is_given]
    if len(chosen) != 1:
        wrong = f"{' and '.join(chosen)} cannot be combined" if chosen else "The new offset is missing"
        raise OptionError(f"{wrong}. Use one of {', '.join(given)}.")
    if to_offset is not None:
        if to_offset < 0:
            raise OptionError(f"--to-offset {to_offset}: an offset is 0 or higher.")
        return Target(offset=to_offset)
    if to_datetime is not None:
        return Target(spec=OffsetSpec.for_timestamp(_milliseconds(to_datetime)))
    return Target(spec=OffsetSpec.earliest() if to_earliest else OffsetSpec.latest())  # type: ignore[no-untyped-call]


def _milliseconds(text: str) -> int:
    try:
        time = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text.strip()))
    except ValueError:
        raise OptionError(
            f"--to-datetime {text!r}: this is not a date with a time. Write it like 2026-11-21T16:00:00 (UTC), "
            "2026-11-21T16:00:00.000Z or 2026-11-21T17:00:00+01:00."
        ) from None
    time = time if time.tzinfo else time.replace(tzinfo=timezone.utc)
    if time.timestamp() < 0:
        raise OptionError(f"--to-datetime {text!r}: the time is before 1970. To start at the first record, use --to-earliest.")
    return int(time.timestamp() * 1000)


def topic_choice(text: str) -> tuple[str, frozenset[int] | None]:
    """Parse `orders` or `orders:0,1` into the topic and its partitions, with `None` for all partitions.

    Raises:
        OptionError: The text is malformed.
    """
    name, colon, numbers = text.partition(":")
    if not TOPIC_NAME.fullmatch(name) or (colon and not re.fullmatch(r"[0-9]{1,9}(,[0-9]{1,9})*", numbers)):
        raise OptionError(f"--topic {text!r}: write a topic's name, or a name with partitions, such as orders:0,1.")
    return name, frozenset(map(int, numbers.split(","))) if colon else None


def plan_reset(admin: GroupAdmin, group: str, topics: Sequence[str], to: Target) -> list[OffsetReset]:
    """Return what a reset would change, without writing anything.

    Raises:
        OptionError: No topic is given, a topic is malformed, or a partition does not exist.
        GroupActive: The group has members.
        OffsetsInTheWay: The group belongs to a sink.
        BrokerError: See `GroupAdmin`.
    """
    if not topics:
        raise OptionError(
            "--topic is missing: name each topic to reset, for example orders, or orders:0,1 for some of its partitions."
        )
    chosen = [topic_choice(text) for text in topics]
    view = admin.describe(group)
    refuse_active(view)
    refuse_sink(view)
    partitions: set[TopicPartition] = set()
    for name, numbers in chosen:
        existing = admin.partitions_of(name)
        if missing := sorted((numbers or frozenset()) - {partition.partition for partition in existing}):
            raise OptionError(f"--topic: {name} has {len(existing)} partitions (from 0); it has no partition {missing[0]}.")
        partitions |= {partition for partition in existing if numbers is None or partition.partition in numbers}
    starts = admin.offsets_at(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
    ends = admin.offsets_at(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]
    found = admin.offsets_at(partitions, to.spec) if to.spec is not None else dict.fromkeys(partitions, to.offset or 0)
    return _resets(view, {partition: OffsetRange(starts[partition], ends[partition]) for partition in partitions}, found)


def _resets(
    view: GroupView, bounds: Mapping[TopicPartition, OffsetRange], found: Mapping[TopicPartition, int]
) -> list[OffsetReset]:
    known = {owned.partition: owned for owned in view.partitions}
    resets = []
    for partition in sorted(bounds):
        start, end = bounds[partition]
        # -1 means that there is no record at or after this time, so reading starts at the end.
        offset = end if found[partition] < 0 else max(start, min(found[partition], end))
        current = known.get(partition)
        claims = () if current is None else current.open + current.owed
        other_format = None if current is None else current.other_format
        resets.append(OffsetReset(partition, None if current is None else current.committed, offset, claims, other_format))
    return resets


def execute_reset(admin: GroupAdmin, group: str, resets: Sequence[OffsetReset], *, drop_claims: bool) -> None:
    """Write the new offsets.

    Raises:
        ClaimsInTheWay: A partition has claims, or a commit record in another format, and `drop_claims` is false.
        GroupActive: A member has joined since the group was described.
        OffsetsInTheWay: The group has committed since it was described.
        BrokerError: See `GroupAdmin`.
    """
    unread = other_format_lines({reset.partition: reset.other_format for reset in resets if reset.other_format is not None})
    if unread and not drop_claims:
        lines = "".join(f"\n  {line}" for line in unread)
        raise ClaimsInTheWay(
            f"Nothing was reset, because this version cannot read the formats of these commit records:{lines}\n"
            "A reset deletes any claims in them. Do one of these:\n"
            "  1. Run this command with the version that wrote the records. It shows the claims, and what a reset would mean.\n"
            "  2. Use --drop-claims. Records that queries of that version have claimed but not confirmed may then be missing "
            "from the output, or duplicated."
        )
    claimed = [(reset.partition, claim) for reset in resets for claim in reset.claims]
    if claimed and not drop_claims:
        ranges = "".join(
            f"\n  {partition} {claim.range} {claim.range.size} offsets: stream {claim.stream}" for partition, claim in claimed
        )
        raise ClaimsInTheWay(
            f"Nothing was reset, because these ranges are claimed but not confirmed:{ranges}\n"
            "A reset deletes the claims, so the queries of these streams skip the ranges after a restart. Only their "
            "checkpoints show whether the records reached the output. Do one of these:\n"
            "  1. Restart these queries. Reset when `groupkafka claims` no longer lists anything.\n"
            "  2. Use --drop-claims. If the records reached the output, those above the new offsets are duplicated. If not, "
            "those below the new offsets are missing."
        )
    view = admin.describe(group)
    refuse_active(view)
    refuse_sink(view)
    current = {found.partition: (found.committed, found.open + found.owed) for found in view.partitions}
    if any(current.get(reset.partition, (None, ())) != (reset.current, reset.claims) for reset in resets):
        raise OffsetsInTheWay(
            f"Nothing was reset. The group {group} has changed since this command described it. Run the command again."
        )
    admin.alter_offsets(group, {reset.partition: reset.new for reset in resets})


def json_shape(group_id: str, planned: Sequence[OffsetReset], *, executed: bool) -> Json:
    """Return the output of `groupkafka reset-offsets --json`."""
    return {
        "group": group_id,
        "executed": executed,
        "resets": [
            {
                **place(reset.partition),
                "current": reset.current,
                "new": reset.new,
                "difference": reset.difference,
                "other_format": reset.other_format,
                "claims": [json_claim(claim) for claim in sorted(reset.claims, key=lambda claim: claim.start)],
            }
            for reset in planned
        ],
    }


def print_resets(resets: Sequence[OffsetReset], console: Console) -> None:
    """Print the offsets that `groupkafka reset-offsets` would set, and the claims that it would delete."""
    print_moves(resets, console)
    for reset in resets:
        for claim in reset.claims:
            offsets = f"{printable(str(reset.partition))} {claim.range} {claim.range.size} offsets"
            console.print(Text(f"a reset deletes this claim: {offsets}: stream {claim.stream}"))
    for line in other_format_lines({reset.partition: reset.other_format for reset in resets if reset.other_format is not None}):
        console.print(Text(f"a reset deletes this record, which may contain claims: {line}"))


def print_moves(resets: Iterable[OffsetReset], console: Console) -> None:
    """Print each partition's committed offset and new offset."""
    table = make_table(("TOPIC", "PARTITION", "CURRENT", "NEW", "DIFFERENCE"), terminal=console.is_terminal)
    for reset in resets:
        difference = "-" if reset.difference is None else f"{reset.difference:+d}" if reset.difference else "0"
        numbers = (str(reset.partition.partition), number(reset.current), str(reset.new), difference)
        table.add_row(*map(Text, (printable(reset.partition.topic), *numbers)))
    print_table(table, console)
