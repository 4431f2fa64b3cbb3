"""`groupkafka transactions`: shows the records in a topic that open transactions hide, and the tasks that may have them open."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone

import click
from rich.console import Console
from rich.text import Text

from spark_groupsource.brokers.group_admin_process import GroupAdminProcess
from spark_groupsource.cli.open_transactions import Candidate, Openers, Visibility, openers, topics_by_name, visibility
from spark_groupsource.cli.render import (
    Json,
    console_for,
    iso_or_none,
    make_table,
    place,
    print_json,
    print_section,
    print_table,
    printable,
    time_and_age,
)
from spark_groupsource.cli.shared_options import brokers_options, json_option, name
from spark_groupsource.errors import GroupKafkaError
from spark_groupsource.options.client_settings import LONGEST_TRANSACTION_MS, TRANSACTION_TIMEOUT_MS
from spark_groupsource.partition import listed

ENDS = f"""\
How an open transaction is closed:
  1. If the query is running: each task commits when it has written its rows. Run this command again. If STABLE has moved, there
     is nothing left to do.
  2. If the query has stopped: restart it from its checkpoint. Its first micro-batch aborts the transactions that it left open.
  3. Or wait for the query's kafka.transaction.timeout.ms: {TRANSACTION_TIMEOUT_MS // 1000} s by default, and \
{LONGEST_TRANSACTION_MS // 1000} s for a task that Spark has retried.
     Then the brokers abort the transaction. Its rows never become visible; the query writes them again after you restart it."""

KAFKAS_OWN = """\
Each task records that it is starting to write, and the record remains after its transaction, so this list may include
tasks that have none open.
Kafka's own tool shows which transactions are open:
  kafka-transactions.sh --bootstrap-server {servers} list
  kafka-transactions.sh --bootstrap-server {servers} describe --transactional-id ID"""

NOBODY = """\
No sink task{prefix} has recorded that it is writing. Another producer has the transaction open, or this user may not describe
the sink's groups, so the brokers do not show them."""


@click.command()
@brokers_options
@click.option("--topic", required=True, metavar="TOPIC", callback=name, help="The topic.")
@click.option("--prefix", metavar="PREFIX", help="Only queries with this transactionalIdPrefix.")
@json_option
def transactions(settings: Mapping[str, str], topic: str, prefix: str | None, as_json: bool) -> None:
    """Show which records in a topic are hidden by open transactions, which tasks may have them open, and how to close them.

    Consumers with isolation.level=read_committed see no record after an open
    transaction, no matter which producer wrote it.

    \b
    STABLE       the last stable offset, up to which these consumers can read
    END          the end of the partition (high watermark)
    NOT VISIBLE  END minus STABLE

    If records are hidden, the command lists the tasks of sinks that may have a
    transaction open, the newest first: the transactional id, the run, the
    process, when it began by the clock of its machine, and the last
    micro-batch that the task finished.

    \b
    Example:
      groupkafka transactions --bootstrap-server localhost:9092 --topic invoices
    """
    described = topics_by_name(settings).describe([topic])[topic]
    if isinstance(described, GroupKafkaError):
        raise described
    seen = visibility(settings, described.partitions)
    found = Openers((), ())
    if any(visible.hidden for visible in seen):
        with GroupAdminProcess(settings) as groups:
            found = openers(groups, topic, prefix)
    if as_json:
        print_json(json_shape(topic, seen, found))
    else:
        _print(topic, seen, found, prefix, settings["bootstrap.servers"], console_for(sys.stdout), datetime.now(timezone.utc))


def json_shape(topic: str, seen: Sequence[Visibility], found: Openers) -> Json:
    """Return the output of `groupkafka transactions --json`."""
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
        console.print(Text(f"The leaders of {listed(silent)} did not answer, so these partitions are not shown."))
    if not hiding:
        where = " in the other partitions" if silent else f" in its {len(seen)} partitions"
        console.print(Text(f"topic {name}: no open transaction hides any record{where}."))
        return
    rows = [(visible.partition.partition, visible.stable, visible.end, visible.hidden) for visible in hiding]
    print_table(make_table(("PARTITION", "STABLE", "END", "NOT VISIBLE"), rows, terminal=console.is_terminal), console)
    count = sum(visible.hidden or 0 for visible in hiding)
    console.print(Text(f"topic {name}: {count} offsets have been written, but are not visible to read_committed consumers yet"))
    _print_openers(topic, found, prefix, console, now)
    console.print()
    console.print(Text(ENDS))
    console.print()
    console.print(Text(KAFKAS_OWN.format(servers=shlex.quote(printable(servers)))))


def _print_openers(topic: str, found: Openers, prefix: str | None, console: Console, now: datetime) -> None:
    on_topic = [candidate for candidate in found.candidates if candidate.topic == topic]
    elsewhere = found.candidates[len(on_topic) :]
    if not found.candidates:
        console.print()
        console.print(Text(NOBODY.format(prefix="" if prefix is None else f" with the prefix {printable(prefix)}")))
    print_section("These tasks may have a transaction open, newest first:", _lines(on_topic, now), console)
    heading = "These tasks started with another topic. They have written to this one only if their rows name their topics:"
    print_section(heading, _lines(elsewhere, now), console)
    for group in found.unreadable:
        text = "written by another client or another version of this package, so this version cannot read it"
        console.print(Text(f"group {printable(group)}: {text}"))


def _lines(candidates: Sequence[Candidate], now: datetime) -> list[str]:
    lines = []
    for candidate in candidates:
        batch = "no finished micro-batch is known" if candidate.batch is None else f"micro-batch {candidate.batch} is finished"
        host, since = candidate.opener.host or "an unnamed host", time_and_age(candidate.opener.at, now)
        lines += [
            printable(candidate.transactional_id),
            f"  query {candidate.names.query}, run {candidate.run or 'not known'}, task {candidate.task}: {batch}",
            f"  process {candidate.opener.pid} on {host}, since {since}",
        ]
    return lines
