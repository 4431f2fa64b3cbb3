"""`groupkafka leave`: prints the offsets from which Spark's own Kafka source can take over from a group. It writes nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

import click
from rich.text import Text

from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.brokers.group_view import GroupView
from spark_groupsource.cli.claimed import claim_text, claimed_in
from spark_groupsource.cli.render import Json, console_for, indented, other_format_lines, place, print_json, printable
from spark_groupsource.cli.shared_options import brokers_options, group_option, json_option
from spark_groupsource.cli.sink_groups import refuse_changes
from spark_groupsource.errors import OffsetError, OffsetsInTheWay, TopicNotFound
from spark_groupsource.handoff.commit_record import CommitRecord
from spark_groupsource.handoff.losses import topic_gone
from spark_groupsource.options.values import EARLIEST
from spark_groupsource.partition import TopicPartition, by_topic, listed

NEXT = """\
Start the query with Spark's own source: format("kafka"), without kafka.group.id, and with
  - the startingOffsets below
  - a new checkpoint
  - a new output if the sink remembers micro-batch ids (Spark's file sink, Delta Lake's txnVersion). With a new checkpoint the ids
    start at 0 again, and such a sink skips the ids that it already has
Do not start a query in this group again."""


@click.command()
@brokers_options
@group_option
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    help="Only this topic. Can be repeated. Default: all of the group's topics.",
)
@json_option
def leave(settings: Mapping[str, str], group: str, topics: tuple[str, ...], as_json: bool) -> None:
    """Print the startingOffsets with which Spark's own Kafka source continues where a group's queries stopped.

    The command writes nothing. Stop all of the group's queries first. The command refuses if any range is claimed. Partitions
    without a committed offset are read from the beginning.

    \b
    Example:
      groupkafka leave --bootstrap-server localhost:9092 --group billing
    """
    admin = GroupAdmin(settings)
    starts = plan_leaving(admin, admin.describe(group), frozenset(topics))
    if as_json:
        print_json(json_shape(group, starts))
        return
    console = console_for(sys.stdout)
    for partition in _without_commit(starts):
        console.print(Text(f"no committed offset, so it will be read from the beginning: {printable(str(partition))}"))
    console.print(Text(NEXT))
    click.echo(json.dumps(by_topic(starts)))


def plan_leaving(admin: GroupAdmin, view: GroupView, topics: frozenset[str]) -> dict[TopicPartition, int]:
    """Return the offsets from which Spark's own source can take over from this group, for all partitions of the topics.

    Args:
        admin: the client for looking up the topics' partitions.
        view: the group.
        topics: the topics for Spark's own source. If empty, all topics in which the group has committed offsets.

    Raises:
        GroupActive: The group has members.
        OffsetsInTheWay: The group belongs to a sink, or a range is or may be claimed.
        TopicNotFound: The group has no committed offsets, or none in one of `topics`, or a topic does not exist.
        OffsetError: An offset is beyond the end of its log, or belongs to another topic with this name.
        BrokerError: See `GroupAdmin`.
    """
    refuse_changes(view)
    _refuse_claims(view, topics)
    committed = {found.partition: found.committed for found in view.partitions if found.committed is not None}
    known = {partition.topic for partition in committed}
    if not known:
        raise TopicNotFound(f"The group {view.group} has no committed offsets. Check its name (--group).")
    if missing := sorted(topics - known):
        raise TopicNotFound(
            f"The group {view.group} has no committed offsets in {', '.join(missing)} (--topic). "
            f"Its topics are {listed(sorted(known))}."
        )
    _refuse_other_logs(view, {topic: admin.topic_id(topic) for topic in sorted(topics or known)})
    existing = {partition for topic in topics or known for partition in admin.partitions_of(topic)}
    return {partition: committed.get(partition, EARLIEST) for partition in sorted(existing)}


def _without_commit(starts: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    return [partition for partition, start in starts.items() if start == EARLIEST]


def _refuse_claims(view: GroupView, topics: frozenset[str]) -> None:
    chosen = [claimed for claimed in claimed_in(view) if not topics or claimed.partition.topic in topics]
    if unread := other_format_lines(view.partitions):
        raise OffsetsInTheWay(
            f"The group {view.group} has commit records that this version cannot read. They may contain claims:{indented(unread)}"
        )
    if chosen:
        ranges = indented(claim_text(claimed.partition, claimed.claim) for claimed in chosen)
        raise OffsetsInTheWay(
            f"Queries in the group {view.group} have claimed ranges but have not confirmed them:{ranges}\n"
            "These records may or may not have reached the output. Spark's own source would read them again, and every finished "
            "record after them. Restart the query of each stream from its checkpoint with trigger(availableNow=True), so that "
            "it finishes its ranges. Then run this command again. `groupkafka claims` shows how to find the checkpoint, and "
            "what to do if it was deleted."
        )


def _refuse_other_logs(view: GroupView, ids: Mapping[str, str]) -> None:
    """Refuse offsets that cannot belong to the topics' current logs.

    Args:
        view: the group.
        ids: the ids of the topics for Spark's own source, from `GroupAdmin.topic_id`.
    """
    wrong = []
    for found in view.partitions:
        topic = found.partition.topic
        if topic not in ids or found.committed is None:
            continue
        if isinstance(found.commit, CommitRecord) and topic_gone(found.commit.topic_id, ids[topic]):
            wrong.append(f"{found.partition}: offset {found.committed} is from another topic with this name")
        elif found.end is not None and found.committed > found.end:
            wrong.append(f"{found.partition}: offset {found.committed}, the log ends at {found.end}")
    if wrong:
        raise OffsetError(
            f"The group {view.group} has committed offsets that do not match the logs:{indented(wrong)}\n"
            "A topic was deleted and recreated, its log was truncated, or the offset was copied from another cluster. Restart "
            "the group's queries: they will report what was lost, and with failOnDataLoss=false they will continue in the new "
            "log. Then run this command again."
        )


def json_shape(group: str, starts: Mapping[TopicPartition, int]) -> Json:
    """Return the output of `groupkafka leave --json`."""
    return {
        "group": group,
        "startingOffsets": by_topic(starts),
        "without_commit": [place(partition) for partition in _without_commit(starts)],
    }
