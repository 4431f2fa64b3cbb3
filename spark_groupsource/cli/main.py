"""`groupkafka`: the command line."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from spark_groupsource.dev_broker.command import broker
from spark_groupsource.errors import GroupKafkaError
from spark_groupsource.version import __version__

if TYPE_CHECKING:
    from spark_groupsource.brokers.group_admin import GroupAdmin
    from spark_groupsource.cli.group_look import GroupLook


class _Commands(click.Group):
    """Errors of this package are one message on stderr and exit code 1, without a traceback."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except GroupKafkaError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="groupkafka")
def main() -> None:
    """Spark queries as members of a Kafka consumer group: looks at a group, a try of a query's options, a development broker."""
    # What librdkafka complains of reaches the user in an error; without a handler it would stand on stderr, too.
    logging.getLogger("spark_groupsource").addHandler(logging.NullHandler())


F = TypeVar("F", bound=Callable[..., None])


def _of_a_group(command: F) -> F:
    """The options that every command about a group has."""
    options = (
        click.option("--bootstrap-server", required=True, metavar="HOST:PORT[,...]", help="One or more brokers of the cluster."),
        click.option("--group", required=True, metavar="GROUP", help="The consumer group: kafka.group.id of its queries."),
        click.option(
            "--command-config",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            metavar="FILE",
            help="A Java properties file with client settings, such as security.protocol and sasl.jaas.config.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _as_json(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="As JSON; docs/command-line.md has the fields.")(command)


def _client_settings(bootstrap_server: str, command_config: Path | None) -> dict[str, str]:
    from spark_groupsource.kafka_settings.translation import translate
    from spark_groupsource.options.properties_file import read_properties

    given = {} if command_config is None else read_properties(command_config)
    return translate({"client.id": "groupkafka-tool", **given, "bootstrap.servers": bootstrap_server})


def _describer(bootstrap_server: str, command_config: Path | None) -> GroupAdmin:
    from spark_groupsource.brokers.group_admin import GroupAdmin

    return GroupAdmin(_client_settings(bootstrap_server, command_config))


def _look(bootstrap_server: str, command_config: Path | None) -> GroupLook:
    from spark_groupsource.cli.group_look import GroupLook

    return GroupLook(_client_settings(bootstrap_server, command_config))


@main.command()
@_of_a_group
@_as_json
def describe(bootstrap_server: str, group: str, command_config: Path | None, as_json: bool) -> None:
    """Show a group's members, partitions, offsets and lag.

    \b
    COMMITTED  the first offset not known to be durably processed
    END        the partition's end (high watermark)
    LAG        offsets between the two
    HELD       offsets that a stream has claimed and not yet confirmed: its
               micro-batch in flight, or owed to a query that was stopped in
               the middle of one and reads them when it restarts
    MEMBER     client id, instance id of a static member, host
    STREAM     the query that wrote the commit; - for another client

    \b
    Example:
      groupkafka describe --bootstrap-server localhost:9092 --group orders
    """
    from spark_groupsource.cli import as_json as shapes
    from spark_groupsource.cli.render import console_for, print_group

    with _look(bootstrap_server, command_config) as look:
        view = look.describe(group)
    if as_json:
        click.echo(shapes.text(shapes.group(view)))
    else:
        print_group(view, console_for(sys.stdout))


@main.command(short_help="List what is claimed in a group and not yet confirmed.")
@_of_a_group
@_as_json
def claims(bootstrap_server: str, group: str, command_config: Path | None, as_json: bool) -> None:
    """List the ranges that streams have claimed and not yet confirmed, since when, and what can be done.

    \b
    KIND    in flight: the micro-batch of the stream that has the partition
            owed: its query stopped, or lost the partition, before it
            confirmed the range; only that query reads it, when it restarts
    STREAM  the query's name; it stands in each file of CHECKPOINT/offsets
    PLAN    the stream's micro-batch
    SINCE   when it was claimed, by the clock of that query's driver

    \b
    Example:
      groupkafka claims --bootstrap-server localhost:9092 --group orders
    """
    from spark_groupsource.cli import as_json as shapes
    from spark_groupsource.cli.render import console_for, print_claims

    with _look(bootstrap_server, command_config) as look:
        view = look.describe(group)
    if as_json:
        click.echo(shapes.text(shapes.claims(view)))
    else:
        print_claims(view, console_for(sys.stdout), datetime.now(timezone.utc))


@main.command("reset-offsets", short_help="Move the committed offsets of a group that is stopped.")
@_of_a_group
@click.option("--topic", "topics", multiple=True, metavar="NAME[:0,1]", help="A topic, or some of its partitions; repeatable.")
@click.option("--to-earliest", is_flag=True, help="To the first record that is there.")
@click.option("--to-latest", is_flag=True, help="To the end: only records that are still to come.")
@click.option("--to-datetime", metavar="ISO8601", help="To the first record of that time or later; without a zone, UTC.")
@click.option("--to-offset", type=int, metavar="N", help="To this offset, or to the nearest that is there.")
@click.option("--execute", is_flag=True, help="Do it. Without this the plan is shown, and nothing is changed.")
@click.option("--drop-claims", is_flag=True, help="Also forget ranges that are claimed and not confirmed.")
@_as_json
def reset_offsets(
    bootstrap_server: str,
    group: str,
    command_config: Path | None,
    topics: tuple[str, ...],
    to_earliest: bool,
    to_latest: bool,
    to_datetime: str | None,
    to_offset: int | None,
    execute: bool,
    drop_claims: bool,
    as_json: bool,
) -> None:
    """Move the committed offsets of a group whose members are all stopped.

    The options are those of kafka-consumer-groups.sh --reset-offsets. Ranges that are claimed and not confirmed (see
    groupkafka claims) are in the way: restart their queries first, or give --drop-claims.

    \b
    Example:
      groupkafka reset-offsets --bootstrap-server localhost:9092 --group orders \\
        --topic orders:0,1 --to-datetime 2026-11-21T16:00:00Z --execute
    """
    from spark_groupsource.cli import as_json as shapes
    from spark_groupsource.cli.offset_reset import execute_reset, plan_reset, target
    from spark_groupsource.cli.render import DRY_RUN, console_for, print_resets

    to = target(to_earliest=to_earliest, to_latest=to_latest, to_datetime=to_datetime, to_offset=to_offset)
    describer = _describer(bootstrap_server, command_config)
    resets = plan_reset(describer, group, topics, to)
    if not as_json:
        print_resets(resets, console_for(sys.stdout))
    if execute:
        execute_reset(describer, group, resets, drop_claims=drop_claims)
    if as_json:
        click.echo(shapes.text(shapes.resets(group, resets, executed=execute)))
    else:
        click.echo("done" if execute else DRY_RUN)


@main.command(short_help="Watch a group: members, partitions, rates, rebalances.")
@_of_a_group
@click.option(
    "--interval", type=click.FloatRange(0.2, 3600), default=2.0, show_default=True, metavar="SECONDS", help="Between looks."
)
@_as_json
def top(bootstrap_server: str, group: str, command_config: Path | None, interval: float, as_json: bool) -> None:
    """Watch a group until Ctrl-C: members, partitions, lag, rates, and what happens: joins, leaves, moves, claims left behind.

    On a terminal the view is live. Elsewhere each look is a line, and each change is one before it; with --json each look is
    one JSON object on a line. Brokers that do not answer are told, and asked again. While a group of the classic protocol
    rebalances, its coordinator does not tell who has what.

    \b
    PRODUCED/S   offsets per second that the partition's end moves
    COMMITTED/S  offsets per second that the group's committed offset moves
    The other columns are those of groupkafka describe.

    \b
    Example:
      groupkafka top --bootstrap-server localhost:9092 --group orders
    """
    import signal
    from contextlib import ExitStack, suppress

    from spark_groupsource.cli.render import console_for
    from spark_groupsource.cli.top import JsonLines, LiveView, PlainLines, Show, watch

    console = console_for(sys.stdout)
    with suppress(KeyboardInterrupt), ExitStack() as ends:
        look = ends.enter_context(_look(bootstrap_server, command_config))
        show: Show = JsonLines(click.echo) if as_json else PlainLines(click.echo)
        if console.is_terminal and not as_json:
            # Also for whoever is told to end: the view gives the terminal back as it was.
            signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
            show = ends.enter_context(LiveView(console))
        watch(look.describe, group, show, interval)


@main.command(short_help="Try an options file: brokers, login, ACLs, assignor, records.")
@click.option(
    "--conf",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The source's options as a Java properties file: kafka.group.id=orders, one a line.",
)
@_as_json
def check(conf: Path, as_json: bool) -> None:
    """Try an options file as a query would use it, and tell what is wrong and what to do.

    It looks at the options, the brokers, TLS and login, topics, group, ACLs, the assignor beside the group's members, a static
    member's name, where a query with a new checkpoint would start, claims that other queries left behind, and reads a record.
    It joins no group and writes nothing. The exit code is 1 when there is an error, which keeps the query from running.

    \b
    Example of a file:
      kafka.bootstrap.servers=localhost:9092
      kafka.group.id=orders
      subscribe=orders

    \b
    Example:
      groupkafka check --conf orders.properties
    """
    from spark_groupsource.cli import as_json as shapes
    from spark_groupsource.cli.check import check as findings_of
    from spark_groupsource.cli.findings import Level
    from spark_groupsource.cli.render import console_for, print_finding

    console = console_for(sys.stdout)
    found = []
    for finding in findings_of(conf):
        found.append(finding)
        if not as_json:
            print_finding(finding, console)
    if as_json:
        click.echo(shapes.text(shapes.findings(str(conf), found)))
    if any(finding.level is Level.ERROR for finding in found):
        sys.exit(1)


@main.command(short_help="Carry a checkpoint of Spark's own Kafka source over into a group.")
@_of_a_group
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
@click.option("--execute", is_flag=True, help="Do it. Without this the plan is shown, and nothing is changed.")
@_as_json
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
    from spark_groupsource.cli import as_json as shapes
    from spark_groupsource.cli.migrate import Checkpoint, execute_migration, plan_migration, refuse_to_replace
    from spark_groupsource.cli.render import console_for, print_migration, print_next

    files = Checkpoint(checkpoint)
    describer = _describer(bootstrap_server, command_config)
    migration = plan_migration(describer, group, files, source=source, uncommitted=uncommitted)
    if not as_json:
        console = console_for(sys.stdout)
        print_migration(migration, console, datetime.now(timezone.utc))
    refuse_to_replace(migration, overwrite=overwrite)
    if execute:
        execute_migration(describer, files, migration)
    if as_json:
        click.echo(shapes.text(shapes.migration(migration, executed=execute)))
    else:
        print_next(group, console, executed=execute)


@main.command(short_help="Watch two Spark queries share a topic, and one take over.")
def demo() -> None:
    """Two Spark queries share a topic as one consumer group, on this machine, in about a minute.

    A broker, a live producer and two queries are started, each in a process of its own. One query is stopped in the
    middle of its work: the other takes its partitions over, the first comes back, and in the end every record is
    counted. Nothing is left behind. The first run downloads Apache Kafka's jars (less than a minute).

    \b
    Example:
      groupkafka demo
    """
    from spark_groupsource.cli.demo.story import run

    run()


main.add_command(broker)
