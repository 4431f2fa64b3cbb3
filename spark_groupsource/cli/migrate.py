"""`groupkafka migrate`: commits the offsets from a checkpoint of Spark's own Kafka source to a consumer group.

A groupkafka query with a new checkpoint then continues where the old query stopped. The checkpoint is not changed, so until the
new query starts you can still restart the old one instead.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

import click
from rich.console import Console
from rich.text import Text

from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.brokers.group_view import PartitionView
from spark_groupsource.checkpoint.files import CheckpointFiles, without_password
from spark_groupsource.checkpoint.offset_log import source_lines
from spark_groupsource.cli.render import (
    DRY_RUN,
    Json,
    console_for,
    indented,
    iso,
    other_format_lines,
    place,
    print_json,
    printable,
    time_and_age,
)
from spark_groupsource.cli.reset_offsets import OffsetReset, changeable, log_bounds, print_moves, refuse_changed, resets_to
from spark_groupsource.cli.shared_options import brokers_options, execute_option, group_option, json_option
from spark_groupsource.cli.spark_checkpoint import LastBatches, batch_to_carry, choose_source, last_batches
from spark_groupsource.errors import GroupNotFound, OffsetError, OffsetsInTheWay, OptionError, TopicNotFound
from spark_groupsource.partition import OffsetRange, TopicPartition

STATE_STAYS = """\
The old query keeps state (aggregation, deduplication, join). This state is not copied: the new query will start with no state."""

STOP_FIRST = """\
Stop the old query first. Spark's source does not join a group, so this command cannot detect that the query is still running."""

NEXT = """\
done. Now start the groupkafka query with kafka.group.id={group}, and with
  - a new checkpoint
  - startingOffsets=earliest, for partitions and topics that are created before its first micro-batch
  - a new output if the sink remembers micro-batch ids (Spark's file sink, Delta Lake's txnVersion). With a new checkpoint the ids
    start at 0 again, and such a sink skips the ids that it already has
Do not start the old query again."""


@click.command()
@brokers_options
@group_option
@click.option(
    "--checkpoint",
    required=True,
    metavar="PATH",
    help="The old query's checkpointLocation: a path, or a URI such as s3://...",
)
@click.option("--source", metavar="ID", help="The source to migrate, if the query has several Kafka sources.")
@click.option(
    "--uncommitted",
    type=click.Choice(["reread", "skip"]),
    help="What to do with the last micro-batch if it was not committed. Without this option, the command fails.",
)
@click.option("--overwrite", is_flag=True, help="Replace the offsets that the group has already committed.")
@execute_option
@json_option
def migrate(
    settings: Mapping[str, str],
    group: str,
    checkpoint: str,
    source: str | None,
    uncommitted: str | None,
    overwrite: bool,
    execute: bool,
    as_json: bool,
) -> None:
    """Commit the offsets from a checkpoint of Spark's own Kafka source to a group, so that a groupkafka query continues there.

    The checkpoint is not changed. The old query must be stopped, and its last micro-batch must be committed. The group must have
    no members. Partitions that were added to the topics later are read from the beginning, as with Spark's source.

    \b
    Example:
      groupkafka migrate --checkpoint /data/checkpoints/billing \\
        --bootstrap-server localhost:9092 --group billing --execute
    """
    files = CheckpointFiles(checkpoint)
    admin = GroupAdmin(settings)
    migration = plan_migration(admin, group, files, source=source, uncommitted=uncommitted)
    if not as_json:
        console = console_for(sys.stdout)
        print_migration(migration, console, datetime.now(timezone.utc))
    refuse_to_replace(migration, overwrite=overwrite)
    if execute:
        execute_migration(admin, files, migration)
    if as_json:
        print_json(json_shape(migration, executed=execute))
    else:
        # Use Text, because rich would parse brackets in the group's name as markup.
        console.print(Text(NEXT.format(group=printable(group)) if execute else f"{STOP_FIRST}\n{DRY_RUN}"))


@dataclass(frozen=True)
class Migration:
    """The offsets that a migration commits, and what the user should know about them."""

    group: str
    checkpoint: str
    query: str | None
    last: LastBatches
    batch: int
    """The micro-batch whose end offsets are committed."""
    committed_at: datetime | None
    source: str
    resets: tuple[OffsetReset, ...]
    """Every partition in the checkpoint, and those that were added to its topics later."""
    added: frozenset[TopicPartition]
    """Partitions that are not in the checkpoint. They are read from the start of the log, as with Spark's source."""
    expired: Mapping[TopicPartition, OffsetRange]
    """The ranges from the checkpoint's offset to the start of the log, whose records have expired."""
    deleted: tuple[TopicPartition, ...]
    """Partitions in the checkpoint whose topic has been deleted."""
    stateful: bool
    """Whether the old query keeps state, which cannot be migrated."""


def plan_migration(
    admin: GroupAdmin, group: str, checkpoint: CheckpointFiles, *, source: str | None, uncommitted: str | None
) -> Migration:
    """Return what a migration would commit, without writing anything.

    Args:
        admin: the client for requests to the brokers.
        group: the group to commit to.
        checkpoint: the old query's checkpoint.
        source: the id of the Kafka source, if the query has several.
        uncommitted: see `spark_checkpoint.batch_to_carry`.

    Raises:
        OptionError: See the functions in `spark_checkpoint`.
        UncommittedBatch: See `spark_checkpoint.batch_to_carry`.
        OffsetError: See the functions in `spark_checkpoint`. Also if the topics do not match the checkpoint, because an offset is
            beyond the end of its log or a topic has fewer partitions.
        GroupActive: The group has members.
        OffsetsInTheWay: The group belongs to a sink.
        BrokerError: See `GroupAdmin`.
    """
    last, committed_at = _last_batches(checkpoint)
    batch = batch_to_carry(last, uncommitted)
    name, offsets = choose_source(source_lines(checkpoint.read(f"offsets/{batch}")), source)
    known = _partitions_of(admin, group)
    existing = _existing(admin, {partition.topic for partition in offsets})
    bounds = log_bounds(admin, existing)
    carried = {partition: offsets.get(partition, bounds[partition].start) for partition in existing}
    deleted = tuple(sorted(offsets.keys() - existing))
    _refuse_other_logs(carried, bounds, deleted)
    return Migration(
        group=group,
        checkpoint=without_password(checkpoint.location),
        query=checkpoint.query_id(),
        last=last,
        batch=batch,
        committed_at=committed_at,
        source=name,
        resets=resets_to(known, carried),
        added=frozenset(existing - offsets.keys()),
        expired={
            partition: OffsetRange(offset, bounds[partition].start)
            for partition, offset in sorted(carried.items())
            if offset < bounds[partition].start
        },
        deleted=deleted,
        stateful=not checkpoint.is_empty("state"),
    )


def _last_batches(checkpoint: CheckpointFiles) -> tuple[LastBatches, datetime | None]:
    """Return the last micro-batches, and the time when the last one was committed."""
    offsets, commits = checkpoint.batches("offsets"), checkpoint.batches("commits")
    if not offsets and not commits:
        raise OptionError(
            f"--checkpoint {without_password(checkpoint.location)}: this is not a streaming query's checkpoint, which has "
            "the offsets and commits folders with a file for each micro-batch. Use the query's checkpointLocation."
        )
    last = last_batches(offsets, commits)
    return last, commits[last.committed].mtime


def _partitions_of(admin: GroupAdmin, group: str) -> dict[TopicPartition, PartitionView]:
    try:
        return changeable(admin, group)
    except GroupNotFound:
        return {}  # the usual case: the commits will create the group


def _existing(admin: GroupAdmin, topics: set[str]) -> set[TopicPartition]:
    found: set[TopicPartition] = set()
    for topic in sorted(topics):
        try:
            found |= set(admin.partitions_of(topic))
        except TopicNotFound:
            continue
    if not found:
        raise OffsetError(
            f"None of the checkpoint's topics exists on these brokers: {', '.join(sorted(topics))}. Nothing was changed. Check "
            "that --bootstrap-server points to the cluster that the old query reads from."
        )
    return found


def _refuse_other_logs(
    carried: Mapping[TopicPartition, int], bounds: Mapping[TopicPartition, OffsetRange], deleted: Collection[TopicPartition]
) -> None:
    """Raise OffsetError if the offsets cannot belong to these logs. A topic's offsets and number of partitions only grow."""
    topics = {partition.topic for partition in carried}
    ahead = [
        f"{partition}: offset {offset}, the log ends at {bounds[partition].end}"
        for partition, offset in sorted(carried.items())
        if offset > bounds[partition].end
    ]
    ahead += [f"{partition}: the topic has no such partition" for partition in deleted if partition.topic in topics]
    if ahead:
        raise OffsetError(
            f"Nothing was changed. The checkpoint is ahead of the logs:{indented(ahead)}\n"
            "Either --bootstrap-server does not point to the cluster that the old query reads from, or a topic was deleted and "
            "recreated, or its log was truncated. Check --bootstrap-server. If it is correct, start the old query: it will "
            "report what was lost, and with failOnDataLoss=false it will continue. Then migrate."
        )


def refuse_to_replace(migration: Migration, *, overwrite: bool) -> None:
    """Refuse a migration that would delete the group's claims or replace its other offsets.

    Args:
        migration: what would be committed.
        overwrite: whether other offsets may be replaced. Claims never may.

    Raises:
        OffsetsInTheWay: The group has claims, commit records in another format, or other offsets that may not be replaced.
    """
    group = migration.group
    if unread := other_format_lines(reset.seen for reset in migration.resets):
        raise OffsetsInTheWay(
            f"Nothing was changed. The group {group} has commit records in formats that this version cannot read:"
            f"{indented(unread)}\n"
            "These records may contain claims. Follow the advice in these lines, or migrate into another group and start the new "
            "query in that group."
        )
    if claimed := [str(reset.seen.partition) for reset in migration.resets if reset.claims]:
        raise OffsetsInTheWay(
            f"Nothing was changed. Queries in the group {group} have claimed ranges in {', '.join(claimed)} but have not "
            "confirmed them (`groupkafka claims` lists them). Migrate into another group, and start the new query in that "
            "group. Or restart the queries that have these claims, and migrate when nothing is claimed."
        )
    replaced = [
        f"{reset.seen.partition}: {reset.seen.committed}, would become {reset.new}"
        for reset in migration.resets
        if reset.difference
    ]
    if replaced and not overwrite:
        raise OffsetsInTheWay(
            f"Nothing was changed. The group {group} has already committed other offsets:{indented(replaced)}\n"
            "Check that this is the right group. If so, replace these offsets with --overwrite."
        )


def execute_migration(admin: GroupAdmin, checkpoint: CheckpointFiles, migration: Migration) -> None:
    """Commit the offsets to the group.

    Raises:
        OffsetError: The checkpoint has changed since it was read, so its query is running.
        GroupActive: A member has joined since the group was described.
        OffsetsInTheWay: The group has committed since it was described.
        BrokerError: See `GroupAdmin`.
    """
    if _last_batches(checkpoint)[0] != migration.last:
        raise OffsetError(
            "Nothing was changed. The checkpoint has changed since this command read it, so the old query is still running. "
            "Stop the query, then migrate."
        )
    refuse_changed(migration.group, migration.resets, _partitions_of(admin, migration.group))
    if changed := {reset.seen.partition: reset.new for reset in migration.resets if reset.difference != 0}:
        admin.alter_offsets(migration.group, changed)


def json_shape(planned: Migration, *, executed: bool) -> Json:
    """Return the output of `groupkafka migrate --json`. Each offset is the first one that has not been processed."""
    return {
        "group": planned.group,
        "checkpoint": planned.checkpoint,
        "query": planned.query,
        "batch": planned.batch,
        "committed_batch": planned.last.committed,
        "planned_batch": planned.last.planned,
        "committed_at": None if planned.committed_at is None else iso(planned.committed_at),
        "source": planned.source,
        "partitions": [
            {
                **place(reset.seen.partition),
                "current": reset.seen.committed,
                "new": reset.new,
                "other_format": reset.seen.other_format,
                "added": reset.seen.partition in planned.added,
                "expired": planned.expired.get(reset.seen.partition, OffsetRange(0, 0)).size,
            }
            for reset in planned.resets
        ],
        "stateful": planned.stateful,
        "gone": [place(partition) for partition in planned.deleted],
        "executed": executed,
    }


def print_migration(migration: Migration, console: Console, now: datetime) -> None:
    """Print what `groupkafka migrate` would commit, and what the user should know about it."""
    last, committed_at = migration.last, migration.committed_at
    console.print(Text(f"checkpoint   {printable(migration.checkpoint)}, source {printable(migration.source)}"))
    console.print(Text(f"query        {migration.query or 'not known'}"))
    committed = "" if committed_at is None else f", committed {time_and_age(int(committed_at.timestamp()), now)}"
    console.print(Text(f"micro-batch  {last.committed}{committed}"))
    if last.planned != last.committed:
        fate = "read again" if migration.batch == last.committed else "skipped"
        console.print(Text(f"             {last.planned} was started but not committed: its records will be {fate}"))
    console.print(Text(f"group        {printable(migration.group)}"))
    console.print()
    print_moves(migration.resets, console)
    for partition in sorted(migration.added):
        console.print(Text(f"added after the checkpoint, so it will be read from the beginning: {printable(str(partition))}"))
    for partition, lost in migration.expired.items():
        expired = f"{printable(str(partition))} {lost} {lost.size} offsets"
        fate = "the new query will fail because of this loss, unless you set failOnDataLoss=false"
        console.print(Text(f"no longer in Kafka: {expired}; {fate}"))
    for partition in migration.deleted:
        console.print(Text(f"topic no longer in Kafka, so not migrated: {printable(str(partition))}"))
    if migration.stateful:
        console.print(Text(STATE_STAYS))
