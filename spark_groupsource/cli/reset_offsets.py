"""`groupkafka reset-offsets`: sets a stopped group's committed offsets by hand.

The options have the same names as in Kafka's own `kafka-consumer-groups.sh --reset-offsets`, which does not check for claims. A
reset deletes claims, and a query that restarts from its checkpoint skips a range whose claim is gone.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import NamedTuple

import click
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]
from rich.console import Console
from rich.text import Text

from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.brokers.group_view import PartitionView
from spark_groupsource.cli.claimed import claim_text, json_claim
from spark_groupsource.cli.render import (
    DRY_RUN,
    Json,
    console_for,
    indented,
    make_table,
    other_format_lines,
    place,
    print_json,
    print_table,
    printable,
)
from spark_groupsource.cli.shared_options import brokers_options, execute_option, group_option, json_option
from spark_groupsource.cli.sink_groups import refuse_changes
from spark_groupsource.errors import ClaimsInTheWay, OffsetsInTheWay, OptionError
from spark_groupsource.handoff.commit_record import OwedRange
from spark_groupsource.options.values import TOPIC_NAME
from spark_groupsource.partition import OffsetRange, TopicPartition


@click.command("reset-offsets")
@brokers_options
@group_option
@click.option(
    "--topic",
    "topics",
    required=True,
    multiple=True,
    metavar="NAME[:0,1]",
    help="A topic, or some of its partitions. Can be repeated.",
)
@click.option("--to-earliest", is_flag=True, help="To the first available record.")
@click.option("--to-latest", is_flag=True, help="To the end: only new records are read.")
@click.option("--to-datetime", metavar="ISO8601", help="To the first record at or after this time. UTC if there is no zone.")
@click.option("--to-offset", type=click.IntRange(0), metavar="N", help="To this offset, or to the nearest available one.")
@execute_option
@click.option("--drop-claims", is_flag=True, help="Also reset partitions with unconfirmed claims, and delete these claims.")
@json_option
def reset_offsets(
    settings: Mapping[str, str],
    group: str,
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
    admin = GroupAdmin(settings)
    resets = plan_reset(admin, group, topics, to)
    if not as_json:
        print_resets(resets, console_for(sys.stdout))
    if execute:
        execute_reset(admin, group, resets, drop_claims=drop_claims)
    if as_json:
        print_json(json_shape(group, resets, executed=execute))
    else:
        click.echo("done" if execute else DRY_RUN)


class OffsetReset(NamedTuple):
    """One partition's reset."""

    seen: PartitionView
    """The partition before the reset."""
    new: int
    """The offset to commit."""

    @property
    def difference(self) -> int | None:
        """How far the reset moves the committed offset forward. Negative if it moves back, `None` without a commit."""
        return None if self.seen.committed is None else self.new - self.seen.committed

    @property
    def claims(self) -> tuple[OwedRange, ...]:
        """The claims that the reset deletes."""
        return self.seen.open + self.seen.owed


def target(*, to_earliest: bool, to_latest: bool, to_datetime: str | None, to_offset: int | None) -> int | OffsetSpec:
    """Return the target that the options choose: an offset, or a spec that the brokers resolve to one.

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
        return to_offset
    spec: OffsetSpec = OffsetSpec.earliest() if to_earliest else OffsetSpec.latest()  # type: ignore[no-untyped-call]
    return spec if to_datetime is None else OffsetSpec.for_timestamp(_milliseconds(to_datetime))


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


def plan_reset(admin: GroupAdmin, group: str, topics: Sequence[str], to: int | OffsetSpec) -> tuple[OffsetReset, ...]:
    """Return what a reset would change, without writing anything.

    Raises:
        OptionError: A topic is malformed, or a partition does not exist.
        GroupActive: The group has members.
        OffsetsInTheWay: The group belongs to a sink.
        BrokerError: See `GroupAdmin`.
    """
    chosen = [topic_choice(text) for text in topics]
    known = changeable(admin, group)
    partitions: set[TopicPartition] = set()
    for name, numbers in chosen:
        existing = admin.partitions_of(name)
        if missing := sorted((numbers or frozenset()) - {partition.partition for partition in existing}):
            raise OptionError(f"--topic: {name} has {len(existing)} partitions (from 0); it has no partition {missing[0]}.")
        partitions |= {partition for partition in existing if numbers is None or partition.partition in numbers}
    found = dict.fromkeys(partitions, to) if isinstance(to, int) else admin.offsets_at(partitions, to)
    new = {
        # -1 means that there is no record at or after this time, so reading starts at the end.
        partition: end if found[partition] < 0 else max(start, min(found[partition], end))
        for partition, (start, end) in log_bounds(admin, partitions).items()
    }
    return resets_to(known, new)


def changeable(admin: GroupAdmin, group: str) -> dict[TopicPartition, PartitionView]:
    """Return the partitions of a group whose offsets may be changed.

    Raises:
        GroupActive: The group has members.
        OffsetsInTheWay: The group belongs to a sink.
        BrokerError: See `GroupAdmin`.
    """
    view = admin.describe(group)
    refuse_changes(view)
    return {found.partition: found for found in view.partitions}


def log_bounds(admin: GroupAdmin, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetRange]:
    """Return the range of offsets in each partition's log.

    Raises:
        BrokerError: See `GroupAdmin`.
    """
    starts = admin.offsets_at(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
    ends = admin.offsets_at(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]
    return {partition: OffsetRange(starts[partition], ends[partition]) for partition in partitions}


def resets_to(known: Mapping[TopicPartition, PartitionView], new: Mapping[TopicPartition, int]) -> tuple[OffsetReset, ...]:
    """Return the resets to these offsets, by partition."""
    return tuple(
        OffsetReset(known.get(partition) or PartitionView(partition, None, None, None), offset)
        for partition, offset in sorted(new.items())
    )


def refuse_changed(group: str, resets: Iterable[OffsetReset], known: Mapping[TopicPartition, PartitionView]) -> None:
    """Refuse to write if the group has committed since the resets were planned.

    Args:
        group: the group.
        resets: the planned resets.
        known: the group's partitions now.

    Raises:
        OffsetsInTheWay: The group has committed.
    """
    now = {partition: view.commit for partition, view in known.items()}
    if any(now.get(reset.seen.partition) != reset.seen.commit for reset in resets):
        raise OffsetsInTheWay(
            f"Nothing was changed. The group {group} has changed since this command described it. Run the command again."
        )


def execute_reset(admin: GroupAdmin, group: str, resets: Sequence[OffsetReset], *, drop_claims: bool) -> None:
    """Commit the new offsets to the group.

    Raises:
        ClaimsInTheWay: A partition has claims, or a commit record in another format, and `drop_claims` is false.
        GroupActive: A member has joined since the group was described.
        OffsetsInTheWay: The group has committed since it was described.
        BrokerError: See `GroupAdmin`.
    """
    unread = other_format_lines(reset.seen for reset in resets)
    if unread and not drop_claims:
        raise ClaimsInTheWay(
            f"Nothing was reset, because this version cannot read the formats of these commit records:{indented(unread)}\n"
            "A reset deletes any claims in them. Do one of these:\n"
            "  1. Run this command with the version that wrote the records. That version shows the claims, and what a reset "
            "would mean.\n"
            "  2. Use --drop-claims. Records that queries of that version have claimed but not confirmed may then be missing "
            "from the output, or duplicated."
        )
    claimed = [claim_text(reset.seen.partition, claim) for reset in resets for claim in reset.claims]
    if claimed and not drop_claims:
        raise ClaimsInTheWay(
            f"Nothing was reset, because these ranges are claimed but not confirmed:{indented(claimed)}\n"
            "A reset deletes the claims, so the queries of these streams will skip the ranges after a restart. Only their "
            "checkpoints show whether the records reached the output. Do one of these:\n"
            "  1. Restart these queries. Reset the offsets once `groupkafka claims` no longer lists anything.\n"
            "  2. Use --drop-claims. If the records reached the output, those above the new offsets will be duplicated. If "
            "not, those below the new offsets will be missing."
        )
    refuse_changed(group, resets, changeable(admin, group))
    admin.alter_offsets(group, {reset.seen.partition: reset.new for reset in resets})


def json_shape(group_id: str, planned: Sequence[OffsetReset], *, executed: bool) -> Json:
    """Return the output of `groupkafka reset-offsets --json`."""
    return {
        "group": group_id,
        "executed": executed,
        "resets": [
            {
                **place(reset.seen.partition),
                "current": reset.seen.committed,
                "new": reset.new,
                "difference": reset.difference,
                "other_format": reset.seen.other_format,
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
            console.print(Text(f"a reset deletes this claim: {printable(claim_text(reset.seen.partition, claim))}"))
    for line in other_format_lines(reset.seen for reset in resets):
        console.print(Text(f"a reset deletes this record, which may contain claims: {line}"))


def print_moves(resets: Iterable[OffsetReset], console: Console) -> None:
    """Print each partition's committed offset and new offset."""
    rows = [
        (*reset.seen.partition, reset.seen.committed, reset.new, reset.difference and f"{reset.difference:+d}")
        for reset in resets
    ]
    columns = ("TOPIC", "PARTITION", "CURRENT", "NEW", "DIFFERENCE")
    print_table(make_table(columns, rows, terminal=console.is_terminal), console)
