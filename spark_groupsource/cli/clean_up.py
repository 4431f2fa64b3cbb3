"""`groupkafka clean-up`: delete the groups in which the sink has kept what a query wrote, once the query never runs again.

Brokers do it by themselves, `offsets.retention.minutes` after the last commit. Until then lag tools show these groups.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import NamedTuple

import click
from rich.console import Console
from rich.text import Text

from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.brokers.group_view import GroupView, refuse_active
from spark_groupsource.cli.as_json import Json, iso, json_text, place
from spark_groupsource.cli.checkpoint_files import Checkpoint
from spark_groupsource.cli.render import DRY_RUN, console_for, count, printable, time_and_age
from spark_groupsource.cli.shared_options import client_settings, execute_option, json_option, query_options
from spark_groupsource.cli.sink_groups import json_mark, sink_batch, sink_lines
from spark_groupsource.errors import GroupActive, GroupNotFound, OptionError
from spark_groupsource.options.client_settings import LONGEST_TRANSACTION_MS
from spark_groupsource.sink.names import is_query, open_group, reach_group, token_group
from spark_groupsource.sink.token import kind_of, own_mark
from spark_groupsource.sink.token_store import MARK_AGAIN_S

QUIET_S = MARK_AGAIN_S + LONGEST_TRANSACTION_MS / 1000
"""How old the newest mark of a query is at most while a task of it writes: it was renewed, or was new enough, when that began."""

COST = """\
Without these groups the sink does not know what the query has written. Delete them only if the query never runs again, and no
query runs on a copy of its checkpoint, which has the same id."""


@click.command("clean-up")
@query_options
@execute_option
@json_option
def clean_up(
    bootstrap_server: str, query: str | None, checkpoint: str | None, command_config: Path | None, execute: bool, as_json: bool
) -> None:
    """Delete the groups in which the sink has kept what a query wrote exactly once. The query must never run again.

    Without its groups the sink does not know what the query has written. Brokers delete them by themselves, 7 days after the
    query has written for the last time (offsets.retention.minutes). The command refuses while the query may still run, as far as
    the groups show it: while a query writes, they have a sign that is at most 25 minutes old. A query that waits for data looks
    like one that was stopped.

    \b
    Example:
      groupkafka clean-up --bootstrap-server localhost:9092 \\
        --checkpoint /data/checkpoints/invoices --execute
    """
    query = chosen_query(query, checkpoint)
    admin = GroupAdmin(client_settings(bootstrap_server, command_config))
    left = left_by(admin, query)
    now = datetime.now(timezone.utc)
    if not as_json:
        print_left(query, left, console_for(sys.stdout))
    refuse_running(query, left.groups, now)
    if execute:
        for view in left.groups:
            admin.delete(view.group)
    if as_json:
        click.echo(json_text(json_shape(query, left, executed=execute)))
    elif left.groups:
        click.echo("done" if execute else DRY_RUN)


class Left(NamedTuple):
    """What a query has left."""

    groups: tuple[GroupView, ...]
    """The groups of its sink, in the order in which they are deleted."""
    others: tuple[str, ...]
    """Other groups with its id in their names. They stay. Not to be printed raw."""


def chosen_query(query: str | None, checkpoint: str | None) -> str:
    """Return the id of the query that the options name.

    Raises:
        OptionError: They name none or two, or it is no id, or the checkpoint has none.
    """
    if (query is None) == (checkpoint is None):
        raise OptionError("Name the query with one of --query and --checkpoint.")
    if checkpoint is not None:
        return Checkpoint(checkpoint).query_id()
    if query is None or not is_query(query):
        raise OptionError(
            f"--query {query!r} is not the id of a query. Spark writes it into the file metadata of the checkpoint, in the form "
            "5e0bd5ce-5a4a-4d49-a9e1-f1d5a8f9a1d5."
        )
    return query


def left_by(admin: GroupAdmin, query: str) -> Left:
    """Return what a query has left, as far as the user may see it.

    Raises:
        GroupActive: A group of its sink has members.
        BrokerError: As `GroupAdmin` does.
    """
    groups, others = [], []
    for group in admin.groups_that_move_too(query, ()):
        with suppress(GroupNotFound):  # it has expired since it was listed
            view = admin.describe(group)
            if is_of_sink(view, query):
                refuse_active(view)
                groups.append(view)
            else:
                others.append(group)
    return Left(tuple(sorted(groups, key=lambda view: (not _is_drivers(view), view.group))), tuple(others))


def is_of_sink(view: GroupView, query: str) -> bool:
    """Return whether the sink has made this group for the query: its name says so, and all that is committed there."""
    found = token_group(view.group) or open_group(view.group) or reach_group(view.group)
    committed = [seen for seen in view.partitions if seen.committed is not None]
    return found is not None and found[0].query == query and all(kind_of(seen.metadata) for seen in committed)


def _is_drivers(view: GroupView) -> bool:
    """Return whether this is the group of a driver's token.

    It is deleted before the others. A query that comes back when only a part is deleted misses it, and ends with BatchUnknown.
    """
    found = token_group(view.group)
    return found is not None and found[1] is None


def refuse_running(query: str, groups: Iterable[GroupView], now: datetime) -> None:
    """Refuse to delete the groups of a query that has left a mark lately.

    Raises:
        GroupActive: It may still run.
    """
    marks = [own_mark(seen.metadata) for view in groups for seen in view.partitions]
    openers = [mark.open for mark in marks if mark is not None and mark.open is not None]
    # Of a host whose clock is ahead, as well. One that is far ahead is no sign of anything.
    recent = [opener for opener in openers if abs(now.timestamp() - opener.at) < QUIET_S]
    if recent:
        newest = max(recent, key=lambda opener: opener.at)
        after = datetime.fromtimestamp(newest.at, timezone.utc) + timedelta(seconds=QUIET_S)
        raise GroupActive(
            f"Nothing was deleted, because query {query} may still run: process {newest.pid} on {newest.host} noted at "
            f"{time_and_age(newest.at, now)} that it writes. While a query writes, its newest note is at most {QUIET_S / 60:.0f} "
            "minutes old. If its groups were deleted, it could write rows twice after a crash. Stop the query, and run this "
            f"command again at {iso(after)} or later."
        )


def json_shape(query: str, left: Left, *, executed: bool) -> Json:
    """Return the JSON of `groupkafka clean-up`."""
    return {
        "query": query,
        "executed": executed,
        "groups": [
            {
                "group": view.group,
                "partitions": [
                    {**place(seen.partition), "sink_batch": sink_batch(seen), "sink_mark": json_mark(seen)}
                    for seen in view.partitions
                ],
            }
            for view in left.groups
        ],
        "others": list(left.others),
    }


def print_left(query: str, left: Left, console: Console) -> None:
    """Print the groups that `groupkafka clean-up` deletes, and what they hold."""
    for view in left.groups:
        console.print(Text(f"{printable(view.group)}  {'; '.join(sink_lines(view))}".rstrip()))
    if left.groups:
        console.print(Text(f"{count(len(left.groups), 'group')} of query {query}"))
        console.print(Text(COST))
    else:
        console.print(Text(f"query {query} has left no group that this user may see"))
    for group in left.others:
        console.print(Text(f"stays, because it holds something else than the sink has written: {printable(group)}"))
