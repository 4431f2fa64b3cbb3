"""`groupkafka check`: tests the options in a file against the brokers, step by step, and prints what each step finds."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from spark_groupsource.cli.check.findings import Finding, Level, error, ok, reach_brokers, run
from spark_groupsource.cli.check.group import (
    ask_for_protocol,
    compare_assignors,
    compare_instance_ids,
    compare_settings,
    count_members,
    describe_group,
)
from spark_groupsource.cli.check.sink import (
    Sink,
    ask_for_groups,
    compare_batch_size,
    describe_topic,
    find_transactions_in_topic,
    take_transactional_id,
)
from spark_groupsource.cli.check.source import (
    Source,
    describe_topics,
    fetch_records,
    find_open_transactions,
    find_start,
    list_claims,
    name_reader,
    read_checkpoint,
    read_formats,
)
from spark_groupsource.cli.render import Json, console_for, count, print_json, print_table, printable
from spark_groupsource.cli.shared_options import json_option
from spark_groupsource.errors import GroupKafkaError, OptionError
from spark_groupsource.options.model import Options
from spark_groupsource.options.properties_file import read_properties
from spark_groupsource.options.sink_model import SinkOptions

_LEVEL_WIDTH, _CHECK_WIDTH = 8, 11

_STYLES = {Level.OK: "green", Level.WARNING: "bold yellow", Level.ERROR: "bold red"}


@click.command()
@click.option(
    "--conf",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The source's options as a Java properties file: kafka.group.id=orders, one option per line.",
)
@click.option("--sink", "writes", is_flag=True, help="The file contains the sink's options (writeStream), not the source's.")
@json_option
def check(conf: Path, writes: bool, as_json: bool) -> None:
    """Test a query's options against the brokers, and report what is wrong and what to do.

    The command checks the options, the brokers, TLS and login, the topics, the group and the ACLs. It checks whether the group
    would accept the query: its assignor, the instance id of a static member, and KIP-848 if the options ask for that protocol. It
    reports where a query with a new checkpoint would start, and which ranges are held for other queries. It reads a few records.

    It also checks what matters in production: the session timeout against the brokers' bounds, how long the brokers keep the
    group's commits, whether there is a partition for each member, which reader this machine has, and whether the checkpoint can
    be read if the options have the writer's checkpointLocation.

    It joins no group and writes nothing. The exit code is 1 if there is an error, because the query cannot run then. It is 0 if
    there are only warnings.

    With --sink it checks the options of writeStream.format("groupkafka"): the brokers, TLS and login, the topic, and the ACLs
    that the delivery guarantee needs on the topic, the sink's groups and its transactional ids. It writes no record, but it uses
    a transactional id that no task has (the prefix and -check), because only that shows whether the id may be used.

    \b
    Example of a file:
      kafka.bootstrap.servers=localhost:9092
      kafka.group.id=orders
      subscribe=orders

    \b
    Example:
      groupkafka check --conf orders.properties
    """
    console = console_for(sys.stdout)
    found = []
    for finding in findings(conf, writes=writes):
        found.append(finding)
        if not as_json:
            print_finding(finding, console)
    if as_json:
        print_json(json_shape(str(conf), found))
    else:
        print_summary(found, console)
    if _number(Level.ERROR, found):
        sys.exit(1)


def findings(path: Path, *, writes: bool) -> Iterator[Finding]:
    """Check a file with a source's or a sink's options, and yield the findings in the order listed in docs/command-line.md."""
    try:
        given = read_properties(path)
        options = SinkOptions.parse(given, "stream") if writes else Options.parse(given, "stream")
    except OptionError as wrong:
        yield from (error("options", problem) for problem in wrong.problems)
        return
    fit = f"{path}: all options are known and compatible"
    yield from check_sink(options, fit) if isinstance(options, SinkOptions) else check_source(options, fit)


def check_source(options: Options, fit: str) -> Iterator[Finding]:
    """Check a source's options against the brokers. `fit` is the first finding's text."""
    yield ok("options", fit)
    source = Source(options)
    if not (yield from reach_brokers(options.kafka, lambda: source.topics)):
        return
    yield from run({"topics": describe_topics}, source)
    try:
        yield from describe_group(source)
    except GroupKafkaError as refused:
        yield error("group", str(refused))
        return
    yield from run(
        {
            "protocol": ask_for_protocol,
            "assignor": compare_assignors,
            "instance id": compare_instance_ids,
            "members": count_members,
            "settings": compare_settings,
            "reader": name_reader,
            "checkpoint": read_checkpoint,
            "start": find_start,
            "fetch": fetch_records,
            "isolation": find_open_transactions,
            "formats": read_formats,
            "claims": list_claims,
        },
        source,
    )


def check_sink(options: SinkOptions, fit: str) -> Iterator[Finding]:
    """Check a sink's options against the brokers. `fit` is the first finding's text."""
    sink = Sink(options.sink_settings("stream"))
    once = sink.settings.exactly_once
    yield ok("options", f"{fit}; deliveryGuarantee={'exactly-once' if once else 'at-least-once'}")
    if not (yield from reach_brokers(options.kafka, lambda: sink.topics)):
        return
    yield from run({"topics": describe_topic, "batches": compare_batch_size}, sink)
    if once:
        in_transactions = {
            "groups": ask_for_groups,
            "transaction": take_transactional_id,
            "isolation": find_transactions_in_topic,
        }
        yield from run(in_transactions, sink)


def json_shape(file: str, found: Sequence[Finding]) -> Json:
    """Return the output of `groupkafka check --json`, with the findings in step order."""
    return {
        "file": file,
        "errors": _number(Level.ERROR, found),
        "warnings": _number(Level.WARNING, found),
        "findings": [{"level": finding.level.value, "check": finding.check, "text": finding.text} for finding in found],
    }


def _number(level: Level, found: Sequence[Finding]) -> int:
    return sum(finding.level is level for finding in found)


def print_finding(finding: Finding, console: Console) -> None:
    """Print a finding. On a terminal, its text is in a separate column, so that wrapped lines are indented."""
    style = _STYLES[finding.level] if console.is_terminal else ""
    table = Table.grid(padding=(0, 1, 0, 0))
    for width in (_LEVEL_WIDTH, _CHECK_WIDTH):
        table.add_column(width=width, no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row(Text(finding.level.value, style=style), Text(finding.check), Text(printable(finding.text)))
    print_table(table, console)


def print_summary(found: Sequence[Finding], console: Console) -> None:
    """Print the number of errors and warnings, and whether the query can run."""
    errors, warnings = _number(Level.ERROR, found), _number(Level.WARNING, found)
    worst = Level.ERROR if errors else Level.WARNING if warnings else Level.OK
    numbers = f"{count(errors, 'error')}, {count(warnings, 'warning')}"
    text = f"{numbers}: the query {'cannot' if errors else 'can'} run"
    console.print()
    console.print(Text(text, style=_STYLES[worst] if console.is_terminal else ""))
