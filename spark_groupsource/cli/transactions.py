"""`groupkafka transactions`: what open transactions of a sink hold back in a topic, and who has them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from spark_groupsource.brokers.group_admin_process import GroupAdminProcess
from spark_groupsource.cli.as_json import Json, iso_or_none, json_text, place
from spark_groupsource.cli.openers import Candidate, Openers, openers
from spark_groupsource.cli.render import console_for, make_table, number, print_table, printable, time_and_age
from spark_groupsource.cli.shared_options import client_settings, json_option, topic_options
from spark_groupsource.cli.visibility import Visibility, visibility_of
from spark_groupsource.options.client_settings import LONGEST_TRANSACTION_MS, TRANSACTION_TIMEOUT_MS
from spark_groupsource.partition import listed

ENDS = f"""\
What ends it:
  1. A query that runs: each task commits when it has written its rows. Run this command again. If STABLE has moved, all is well.
  2. A query that has stopped: start it again on its checkpoint. Its first micro-batch ends what it has left open.
  3. Or wait for kafka.transaction.timeout.ms of the query: {TRANSACTION_TIMEOUT_MS // 1000} s by default, and \
{LONGEST_TRANSACTION_MS // 1000} s for a task that was tried again.
     Then the brokers end it. Its rows are never visible; the query writes them when it is started again."""

KAFKAS_OWN = """\
A task leaves a mark before it writes, and the mark stays when the transaction has ended.
Kafka's own tool shows the transactions that are open:
  kafka-transactions.sh --bootstrap-server {servers} list
  kafka-transactions.sh --bootstrap-server {servers} describe --transactional-id ID"""

NOBODY = """\
No task of a sink has left a mark{prefix}. So another producer has the transaction, or this user may not see the mark:
Brokers show the groups only that this user may describe."""


@click.command()
@topic_options
@click.option("--prefix", metavar="PREFIX", help="Only queries with this transactionalIdPrefix.")
@json_option
def transactions(bootstrap_server: str, topic: str, command_config: Path | None, prefix: str | None, as_json: bool) -> None:
    """Show what a sink's open transactions hold back in a topic, who has them, and what ends them.

    Readers with isolation.level=read_committed see nothing behind an open
    transaction, of whoever wrote it.

    \b
    STABLE       the last stable offset: these readers get no further
    END          the end of the partition (high watermark)
    NOT VISIBLE  END minus STABLE

    If something is held back, the tasks of queries that may have a
    transaction open follow, the newest first: the transactional id, the run,
    the process, since when by the clock of its machine, and the newest
    micro-batch that the task has finished.

    \b
    Example:
      groupkafka transactions --bootstrap-server localhost:9092 --topic invoices
    """
    settings = client_settings(bootstrap_server, command_config)
    seen = visibility_of(settings, topic)
    found = Openers((), ())
    if any(visible.hidden for visible in seen):
        with GroupAdminProcess(settings) as groups:
            found = openers(groups, topic, prefix)
    if as_json:
        click.echo(json_text(json_shape(topic, seen, found)))
    else:
        _print(topic, seen, found, prefix, bootstrap_server, console_for(sys.stdout), datetime.now(timezone.utc))


def json_shape(topic: str, seen: Sequence[Visibility], found: Openers) -> Json:
    """Return the JSON of `groupkafka transactions`."""
    hidden = [visible.hidden for visible in seen]
    return {
        "topic": topic,
        "not_visible": None if None in hidden else sum(offsets or 0 for offsets in hidden),
        "partitions": [
            {**place(visible.partition), "stable": visible.stable, "end": visible.end, "not_visible": visible.hidden}
            for visible in seen
        ],
        "candidates": [_candidate(candidate) for candidate in found.candidates],
        "unreadable": list(found.unreadable),
    }


def _candidate(candidate: Candidate) -> Json:
    return {
        "transactional_id": candidate.transactional_id,
        "prefix": candidate.names.prefix,
        "query": candidate.names.query,
        "task": candidate.task,
        "run": candidate.run or None,
        "host": candidate.opener.host,
        "pid": candidate.opener.pid,
        "since": iso_or_none(candidate.opener.at),
        "batch": candidate.batch,
        "topic": candidate.topic,
    }


def _print(
    topic: str,
    seen: Sequence[Visibility],
    found: Openers,
    prefix: str | None,
    servers: str,
    console: Console,
    now: datetime,
) -> None:
    silent = [printable(str(visible.partition)) for visible in seen if visible.hidden is None]
    hiding = [visible for visible in seen if visible.hidden]
    name = printable(topic)
    if silent:
        console.print(Text(f"The leaders of {listed(silent)} do not answer, so nothing is known of these partitions."))
    if not hiding:
        where = " in the other partitions" if silent else f" in its {len(seen)} partitions"
        console.print(Text(f"topic {name}: no open transaction holds anything back{where}."))
        return
    table = make_table(("PARTITION", "STABLE", "END", "NOT VISIBLE"), terminal=console.is_terminal)
    for visible in hiding:
        table.add_row(
            *(Text(number(value)) for value in (visible.partition.partition, visible.stable, visible.end, visible.hidden))
        )
    print_table(table, console)
    count = sum(visible.hidden or 0 for visible in hiding)
    console.print(Text(f"topic {name}: {count} offsets are written, and not visible yet to readers of committed records"))
    _print_openers(topic, found, prefix, console, now)
    console.print()
    console.print(Text(ENDS))
    console.print()
    console.print(Text(KAFKAS_OWN.format(servers=shlex.quote(printable(servers)))))


def _print_openers(topic: str, found: Openers, prefix: str | None, console: Console, now: datetime) -> None:
    on_topic = [candidate for candidate in found.candidates if candidate.topic == topic]
    elsewhere = found.candidates[len(on_topic) :]
    console.print()
    if not found.candidates:
        console.print(Text(NOBODY.format(prefix="" if prefix is None else f" with the prefix {printable(prefix)}")))
    if on_topic:
        console.print("Who may have a transaction open, the newest first:")
        _print_candidates(on_topic, console, now)
    if elsewhere:
        console.print("Marks on other topics. These tasks have written here only if their rows name their topics:")
        _print_candidates(elsewhere, console, now)
    for group in found.unreadable:
        text = "another client, or another version of this package, has written there, so it says nothing here"
        console.print(Text(f"group {printable(group)}: {text}"))


def _print_candidates(candidates: Sequence[Candidate], console: Console, now: datetime) -> None:
    for candidate in candidates:
        batch = (
            "no micro-batch is known to be finished" if candidate.batch is None else f"micro-batch {candidate.batch} is finished"
        )
        console.print(Text(f"  {printable(candidate.transactional_id)}"))
        console.print(
            Text(f"    query {candidate.names.query}, run {candidate.run or 'not known'}, task {candidate.task}: {batch}")
        )
        host, since = candidate.opener.host or "a host without a name", time_and_age(candidate.opener.at, now)
        console.print(Text(f"    process {candidate.opener.pid} on {host}, since {since}"))
