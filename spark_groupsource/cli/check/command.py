"""`groupkafka check`: an options file, tried against its brokers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from spark_groupsource.cli.as_json import Json, json_text
from spark_groupsource.cli.check.findings import Finding, Level
from spark_groupsource.cli.check.sink import check_sink
from spark_groupsource.cli.check.source import check_source
from spark_groupsource.cli.render import console_for, printable
from spark_groupsource.cli.shared_options import json_option

_STYLES = {Level.OK: "green", Level.WARNING: "bold yellow", Level.ERROR: "bold red"}


@click.command()
@click.option(
    "--conf",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The source's options as a Java properties file: kafka.group.id=orders, one option on each line.",
)
@click.option("--sink", "writes", is_flag=True, help="The file has the options of the sink (writeStream), not of the source.")
@json_option
def check(conf: Path, writes: bool, as_json: bool) -> None:
    """Try an options file as a query would use it. Report what is wrong and what to do.

    It checks the options, the brokers, TLS and login, the topics, the group and the ACLs. It checks that the group's members
    would accept the query: its assignor, and the instance id of a static member. It reports whether the brokers have the group
    protocol of KIP-848, where a query with a new checkpoint would start, and what other queries have claimed and not confirmed.
    It reads some records.

    It also checks habits of production: the session timeout against the brokers' bounds, how long the group's commits are kept,
    whether there are partitions for all members, which reader this machine has, and whether the checkpoint can be read if the
    options have the writer's checkpointLocation.

    It joins no group and writes nothing. The exit code is 1 if there is an error, and 0 if there are only warnings. With an
    error the query cannot run.

    With --sink it checks the options of writeStream.format("groupkafka"): the brokers, TLS and login, the topic, and the ACLs of
    the guarantee on the topic, the sink's groups and its transactional ids. It writes no record, but it takes a transactional
    id that no task has (the prefix and -check), because nothing else shows whether that is allowed.

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
    for finding in check_sink(conf) if writes else check_source(conf):
        found.append(finding)
        if not as_json:
            print_finding(finding, console)
    if as_json:
        click.echo(json_text(json_shape(str(conf), found)))
    if any(finding.level is Level.ERROR for finding in found):
        sys.exit(1)


def json_shape(file: str, found: Sequence[Finding]) -> Json:
    """`groupkafka check --json`; the findings in the order of the steps."""
    return {
        "file": file,
        "errors": sum(finding.level is Level.ERROR for finding in found),
        "warnings": sum(finding.level is Level.WARNING for finding in found),
        "findings": [{"level": finding.level.value, "check": finding.check, "text": finding.text} for finding in found],
    }


def print_finding(finding: Finding, console: Console) -> None:
    """Print one line of `groupkafka check`."""
    text = Text(f"{finding.level.value:<8} ", style=_STYLES[finding.level] if console.is_terminal else "")
    console.print(text.append(Text(f"{finding.check:<11} {printable(finding.text)}", style="default")))
