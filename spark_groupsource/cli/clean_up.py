"""`groupkafka clean-up`: deletes the groups in which the sink kept a query's progress, once the query will never run again.

The brokers also delete these groups, but only `offsets.retention.minutes` after the last commit. Until then, lag tools show them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

import click
from rich.console import Console
from rich.text import Text

from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.brokers.group_view import GroupView, refuse_active
from spark_groupsource.checkpoint.files import CheckpointFiles, without_password
from spark_groupsource.cli.render import DRY_RUN, Json, console_for, count, iso, place, print_json, printable, time_and_age
from spark_groupsource.cli.shared_options import brokers_options, execute_option, json_option
from spark_groupsource.cli.sink_groups import json_transaction, sink_batch, sink_lines
from spark_groupsource.errors import GroupActive, GroupNotFound, OptionError
from spark_groupsource.options.client_settings import LONGEST_TRANSACTION_MS
from spark_groupsource.sink.names import is_query, open_group, reach_group, token_group
from spark_groupsource.sink.token import kind_of, own_mark
from spark_groupsource.sink.token_store import MARK_AGAIN_S

QUIET_S = MARK_AGAIN_S + LONGEST_TRANSACTION_MS / 1000
"""How old a query's newest mark can be while one of its tasks is writing. A task that begins to write renews an older mark."""

COST = """\
Without these groups the sink cannot tell what the query has written. Delete them only if the query will never run again, and no
query uses a copy of its checkpoint, because a copy has the same id."""


@click.command("clean-up")
@brokers_options
@click.option("--query", metavar="ID", help="The query's id, from the metadata file in its checkpoint.")
@click.option("--checkpoint", metavar="PATH", help="Instead of --query: the checkpointLocation, a path or a URI such as s3://...")
@execute_option
@json_option
def clean_up(settings: Mapping[str, str], query: str | None, checkpoint: str | None, execute: bool, as_json: bool) -> None:
    """Delete the groups in which the exactly-once sink kept a query's progress. The query must never run again.

    Without its groups, the sink cannot tell what the query has written. The brokers also delete them, but only 7 days after the
    query last wrote (offsets.retention.minutes). The command refuses if a task noted less than 25 minutes ago that it was about
    to write, because the query may still be running. It cannot detect a query that is running but waiting for data.

    \b
    Example:
      groupkafka clean-up --bootstrap-server localhost:9092 \\
        --checkpoint /data/checkpoints/invoices --execute
    """
    query = chosen_query(query, checkpoint)
    admin = GroupAdmin(settings)
    left = left_by(admin, query)
    now = datetime.now(timezone.utc)
    if not as_json:
        print_left(query, left, console_for(sys.stdout))
    refuse_running(query, left.groups, now)
    if execute:
        for view in left.groups:
            admin.delete(view.group)
    if as_json:
        print_json(json_shape(query, left, executed=execute))
    elif left.groups:
        click.echo("done" if execute else DRY_RUN)


class Left(NamedTuple):
    """The groups that a query has left behind on the brokers."""

    groups: tuple[GroupView, ...]
    """The groups of the query's sink, in the order in which the command deletes them."""
    others: tuple[str, ...]
    """Other groups with the query's id in their names, which are not deleted. Never print them raw."""


def chosen_query(query: str | None, checkpoint: str | None) -> str:
    """Return the id of the query that the options name.

    Raises:
        OptionError: Neither or both options are set, the id is malformed, or the checkpoint has no id.
        CheckpointUnreadable: The checkpoint's location cannot be read.
    """
    if (query is None) == (checkpoint is None):
        raise OptionError("Name the query with either --query or --checkpoint.")
    if checkpoint is not None:
        if (found := CheckpointFiles(checkpoint).query_id()) is not None:
            return found
        raise OptionError(
            f"--checkpoint {without_password(checkpoint)}: there is no metadata file that contains a query's id. Use the "
            "query's checkpointLocation. If the checkpoint was deleted, use --query: the id is in the names of the query's "
            "groups (kafka-consumer-groups.sh --list), in Spark's log, and in the query's progress."
        )
    if query is None or not is_query(query):
        raise OptionError(
            f"--query {query!r} is not a query id. An id looks like 5e0bd5ce-5a4a-4d49-a9e1-f1d5a8f9a1d5, and is in the "
            "metadata file of the query's checkpoint."
        )
    return query


def left_by(admin: GroupAdmin, query: str) -> Left:
    """Return the groups that a query has left behind, as far as this user may see them.

    Raises:
        GroupActive: One of its sink's groups has members.
        BrokerError: See `GroupAdmin`.
    """
    groups, others = [], []
    for group in admin.groups_that_move_too(query, ()):
        with suppress(GroupNotFound):  # the group has expired since the brokers listed it
            view = admin.describe(group)
            if is_of_sink(view, query):
                refuse_active(view)
                groups.append(view)
            else:
                others.append(group)
    return Left(tuple(sorted(groups, key=lambda view: (not _is_drivers(view), view.group))), tuple(others))


def is_of_sink(view: GroupView, query: str) -> bool:
    """Return whether the sink created this group for the query, judging by its name and all of its commits."""
    found = token_group(view.group) or open_group(view.group) or reach_group(view.group)
    committed = [seen for seen in view.partitions if seen.committed is not None]
    return found is not None and found[0].query == query and all(kind_of(seen.metadata) for seen in committed)


def _is_drivers(view: GroupView) -> bool:
    """Return whether this is the group with the driver's token.

    This group is deleted first. If the query starts when only some of its groups have been deleted, it then finds no driver's
    token and fails with BatchUnknown, rather than writing rows again.
    """
    found = token_group(view.group)
    return found is not None and found[1] is None


def refuse_running(query: str, groups: Iterable[GroupView], now: datetime) -> None:
    """Refuse to delete a query's groups if it has committed a mark recently.

    Raises:
        GroupActive: The query may still be running.
    """
    marks = [own_mark(seen.metadata) for view in groups for seen in view.partitions]
    openers = [mark.open for mark in marks if mark is not None and mark.open is not None]
    # Also accept a time in the future, because the host's clock may be ahead. A time far in the future proves nothing.
    recent = [opener for opener in openers if abs(now.timestamp() - opener.at) < QUIET_S]
    if recent:
        newest = max(recent, key=lambda opener: opener.at)
        after = datetime.fromtimestamp(newest.at, timezone.utc) + timedelta(seconds=QUIET_S)
        raise GroupActive(
            f"Nothing was deleted, because query {query} may still be running: process {newest.pid} on {newest.host} recorded "
            f"at {time_and_age(newest.at, now)} that it was starting to write. While a query is writing, its last such record "
            f"is at most {QUIET_S / 60:.0f} minutes old. Without its groups, a running query could write rows twice after a "
            f"crash. Stop the query, and run this command again at {iso(after)} or later."
        )


def json_shape(query: str, left: Left, *, executed: bool) -> Json:
    """Return the output of `groupkafka clean-up --json`."""
    return {
        "query": query,
        "executed": executed,
        "groups": [
            {
                "group": view.group,
                "partitions": [
                    {**place(seen.partition), "sink_batch": sink_batch(seen), "sink_transaction": json_transaction(seen)}
                    for seen in view.partitions
                ],
            }
            for view in left.groups
        ],
        "others": list(left.others),
    }


def print_left(query: str, left: Left, console: Console) -> None:
    """Print the groups that `groupkafka clean-up` deletes, and what each one contains."""
    for view in left.groups:
        console.print(Text(f"{printable(view.group)}  {'; '.join(sink_lines(view))}".rstrip()))
    if left.groups:
        console.print(Text(f"{count(len(left.groups), 'group')} of query {query}"))
        console.print(Text(COST))
    else:
        console.print(Text(f"query {query} has no group left that this user may describe"))
    for group in left.others:
        console.print(Text(f"not deleted, because it contains offsets that the sink did not write: {printable(group)}"))
