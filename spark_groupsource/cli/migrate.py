"""`groupkafka migrate`: the offsets of a checkpoint of Spark's own Kafka source become the committed offsets of a group.

The group then stands where the old query stood, and a groupkafka query with a checkpoint of its own goes on there. The checkpoint
is only read: as long as the new query has not started, the old one can go on instead.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import click
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]
from rich.console import Console
from rich.text import Text

from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.brokers.group_view import PartitionView, refuse_active
from spark_groupsource.cli.as_json import Json, iso, json_text, place
from spark_groupsource.cli.checkpoint_files import Checkpoint, without_password
from spark_groupsource.cli.render import DRY_RUN, console_for, printable, time_and_age
from spark_groupsource.cli.reset_offsets import OffsetReset, print_moves
from spark_groupsource.cli.shared_options import client_settings, execute_option, group_options, json_option
from spark_groupsource.cli.spark_checkpoint import LastBatches, batch_to_carry, choose_source
from spark_groupsource.errors import GroupNotFound, OffsetError, OffsetsInTheWay, TopicNotFound
from spark_groupsource.partition import OffsetRange, TopicPartition

STATE_STAYS = """\
The old query keeps state (aggregation, deduplication, join): it stays behind, and the new query begins without any."""

STOP_FIRST = """\
The old query has to be stopped: Spark's source joins no group, so nothing here can tell whether it still runs."""

NEXT = """\
done. Start the groupkafka query with kafka.group.id={group}, a checkpoint of its own, startingOffsets=earliest for partitions and
topics that are created before its first micro-batch, and an output that does not know its micro-batches yet: they count from 0
again, and a sink that ignores the ids that it has (files, Delta Lake's txnVersion) would ignore these. The old query is not to
run again."""


@click.command()
@group_options
@click.option(
    "--checkpoint", required=True, metavar="PATH", help="checkpointLocation of the old query: a path, or a URI such as s3://..."
)
@click.option("--source", metavar="ID", help="Which source, when the query has several that read Kafka.")
@click.option(
    "--uncommitted",
    type=click.Choice(["reread", "skip"]),
    help="What becomes of a last micro-batch that was not committed; without this it is an error.",
)
@click.option("--overwrite", is_flag=True, help="Also replace other offsets that the group has committed.")
@execute_option
@json_option
def migrate(
    bootstrap_server: str,
    group: str,
    command_config: Path | None,
    checkpoint: str,
    source: str | None,
    uncommitted: str | None,
    overwrite: bool,
    execute: bool,
    as_json: bool,
) -> None:
    """Commit the offsets of a checkpoint of Spark's own Kafka source in a group, for a groupkafka query to go on there.

    The checkpoint is only read. The old query has to be stopped, with its last micro-batch committed; the group may have no
    members. Partitions that were added to the topics later start at their beginning, as they would in Spark.

    \b
    Example:
      groupkafka migrate --checkpoint /data/checkpoints/billing \\
        --bootstrap-server localhost:9092 --group billing --execute
    """
    files = Checkpoint(checkpoint)
    describer = GroupAdmin(client_settings(bootstrap_server, command_config))
    migration = plan_migration(describer, group, files, source=source, uncommitted=uncommitted)
    if not as_json:
        console = console_for(sys.stdout)
        print_migration(migration, console, datetime.now(timezone.utc))
    refuse_to_replace(migration, overwrite=overwrite)
    if execute:
        execute_migration(describer, files, migration)
    if as_json:
        click.echo(json_text(json_shape(migration, executed=execute)))
    else:
        print_next(group, console, executed=execute)


@dataclass(frozen=True)
class Migration:
    """What would be committed, and what to know of it."""

    group: str
    checkpoint: str
    query: str | None
    last: LastBatches
    batch: int
    """The micro-batch at whose end the group is to stand."""
    committed_at: datetime | None
    source: str
    resets: tuple[OffsetReset, ...]
    """Every partition: those of the checkpoint, and those of its topics that were added after it."""
    added: frozenset[TopicPartition]
    """Not in the checkpoint: they start at their log's start, as Spark's source would have them."""
    expired: Mapping[TopicPartition, OffsetRange]
    """Records between the checkpoint's offset and the log's start, which nobody can read any more."""
    gone: tuple[TopicPartition, ...]
    """In the checkpoint, of topics that are no longer in Kafka."""
    stateful: bool
    """Whether the old query keeps state, which no group can hold."""


def plan_migration(
    describer: GroupAdmin, group: str, checkpoint: Checkpoint, *, source: str | None, uncommitted: str | None
) -> Migration:
    """What would be committed; nothing is written.

    Args:
        source: the id of the Kafka source, when the query has several.
        uncommitted: see spark_checkpoint.batch_to_carry.

    Raises:
        OptionError, OffsetError, UncommittedBatch: see spark_checkpoint; OffsetError also when an offset is beyond the end of
            its log, or a topic has fewer partitions: it is another cluster's, or was made anew.
        GroupActive: the group has members.
        BrokerError: see GroupAdmin.
    """
    last, committed_at = checkpoint.last_batches()
    batch = batch_to_carry(last, uncommitted)
    name, offsets = choose_source(checkpoint.offsets(batch), source)
    known = _partitions_of(describer, group)
    there = _existing(describer, {partition.topic for partition in offsets})
    starts = describer.offsets_at(there, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
    ends = describer.offsets_at(there, OffsetSpec.latest())  # type: ignore[no-untyped-call]
    carried = {partition: offsets.get(partition, starts[partition]) for partition in there}
    gone = tuple(sorted(offsets.keys() - there))
    _refuse_other_logs(carried, ends, gone)
    resets = []
    for partition, new in sorted(carried.items()):
        one = known.get(partition)
        claims = () if one is None else one.in_flight + one.owed
        resets.append(OffsetReset(partition, None if one is None else one.committed, new, claims))
    return Migration(
        group=group,
        checkpoint=without_password(checkpoint.location),
        query=checkpoint.query_id(),
        last=last,
        batch=batch,
        committed_at=committed_at,
        source=name,
        resets=tuple(resets),
        added=frozenset(there - offsets.keys()),
        expired={one: OffsetRange(new, starts[one]) for one, new in sorted(carried.items()) if new < starts[one]},
        gone=gone,
        stateful=checkpoint.has_state(),
    )


def _partitions_of(describer: GroupAdmin, group: str) -> dict[TopicPartition, PartitionView]:
    try:
        view = describer.describe(group)
    except GroupNotFound:
        return {}  # the usual case: the commit makes the group
    refuse_active(view)
    return {one.partition: one for one in view.partitions}


def _existing(describer: GroupAdmin, topics: set[str]) -> set[TopicPartition]:
    there: set[TopicPartition] = set()
    for topic in sorted(topics):
        try:
            there |= set(describer.partitions_of(topic))
        except TopicNotFound:
            continue
    if not there:
        raise OffsetError(
            f"None of the checkpoint's topics exists on these brokers: {', '.join(sorted(topics))}. Is --bootstrap-server the "
            "cluster that the old query reads from?"
        )
    return there


def _refuse_other_logs(
    carried: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], gone: Collection[TopicPartition]
) -> None:
    """Refuse logs that cannot be those the offsets are of; a topic's offsets and partitions only grow."""
    topics = {one.topic for one in carried}
    ahead = [f"\n  {one}: offset {new}, the log ends at {ends[one]}" for one, new in sorted(carried.items()) if new > ends[one]]
    ahead += [f"\n  {one}: the topic has no such partition" for one in gone if one.topic in topics]
    if ahead:
        raise OffsetError(
            f"The checkpoint is ahead of the logs:{''.join(ahead)}\n"
            "Either --bootstrap-server is not the cluster that the old query reads from, or a topic was deleted and created "
            "again, or its log was cut. Start the old query: it says what is lost, and goes on with failOnDataLoss=false."
        )


def refuse_to_replace(migration: Migration, *, overwrite: bool) -> None:
    """Refuse what would make the group forget something.

    Args:
        overwrite: the group may have committed other offsets, but not claims.

    Raises:
        OffsetsInTheWay: it has.
    """
    group = migration.group
    if claimed := [str(reset.partition) for reset in migration.resets if reset.claims]:
        raise OffsetsInTheWay(
            f"Queries of the group {group} have claimed ranges of {', '.join(claimed)} and not confirmed them (`groupkafka "
            "claims` lists them). Migrate into another group, which the new query then joins; or restart those queries until "
            "nothing is claimed. Nothing was changed."
        )
    other = [reset for reset in migration.resets if reset.current is not None and reset.current != reset.new]
    if other and not overwrite:
        listed = "".join(f"\n  {reset.partition}: {reset.current}, to be {reset.new}" for reset in other)
        raise OffsetsInTheWay(
            f"The group {group} has committed other offsets:{listed}\nIs it the right group? If so, --overwrite replaces them. "
            "Nothing was changed."
        )


def execute_migration(describer: GroupAdmin, checkpoint: Checkpoint, migration: Migration) -> None:
    """Commit the offsets in the group.

    Raises:
        OffsetError: the checkpoint has changed since it was read: its query is running.
        GroupActive: a member has joined meanwhile.
        BrokerError: see GroupAdmin.
    """
    if checkpoint.last_batches()[0] != migration.last:
        raise OffsetError("The checkpoint has changed since it was read: its query is running. Stop it, then migrate.")
    _partitions_of(describer, migration.group)
    changed = {reset.partition: reset.new for reset in migration.resets if reset.new != reset.current}
    if changed:
        describer.alter_offsets(migration.group, changed)


def json_shape(planned: Migration, *, executed: bool) -> Json:
    """`groupkafka migrate --json`: offsets are the first ones that are not processed."""
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
                **place(reset.partition),
                "current": reset.current,
                "new": reset.new,
                "added": reset.partition in planned.added,
                "expired": planned.expired[reset.partition].size if reset.partition in planned.expired else 0,
            }
            for reset in planned.resets
        ],
        "stateful": planned.stateful,
        "gone": [place(partition) for partition in planned.gone],
        "executed": executed,
    }


def print_migration(migration: Migration, console: Console, now: datetime) -> None:
    """Print the plan of `groupkafka migrate`, and what to know of it."""
    last, when = migration.last, migration.committed_at
    console.print(Text(f"checkpoint   {printable(migration.checkpoint)}, source {printable(migration.source)}"))
    console.print(Text(f"query        {migration.query or 'not known'}"))
    committed = "" if when is None else f", committed {time_and_age(int(when.timestamp()), now)}"
    console.print(Text(f"micro-batch  {last.committed}{committed}"))
    if last.planned != last.committed:
        what = "read again" if migration.batch == last.committed else "skipped"
        console.print(Text(f"             {last.planned} was planned and not committed: its records are {what}"))
    console.print(Text(f"group        {printable(migration.group)}"))
    console.print()
    print_moves(migration.resets, console)
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
