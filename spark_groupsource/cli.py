"""`groupkafka`: the command line."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import click

from .broker.command import broker
from .errors import GroupKafkaError
from .version import __version__


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
    """Spark queries as members of a Kafka consumer group: a look at a group, a demonstration, a development broker."""
    # What librdkafka complains of reaches the user in an error; without a handler it would stand on stderr, too.
    logging.getLogger("spark_groupsource").addHandler(logging.NullHandler())


@main.command()
@click.option("--bootstrap-server", required=True, metavar="HOST:PORT[,...]", help="One or more brokers of the cluster.")
@click.option("--group", required=True, metavar="GROUP", help="The consumer group: kafka.group.id of its queries.")
@click.option(
    "--command-config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A Java properties file with client settings, such as security.protocol and sasl.jaas.config.",
)
def describe(bootstrap_server: str, group: str, command_config: Path | None) -> None:
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
    from .command_config import read_properties
    from .group_view import GroupDescriber
    from .kafka_settings import translate
    from .render import console_for, print_group

    given = {} if command_config is None else read_properties(command_config)
    settings = translate({"client.id": "groupkafka-describe", **given, "bootstrap.servers": bootstrap_server})
    print_group(GroupDescriber(settings).describe(group), console_for(sys.stdout))


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
    from .demo.story import run

    run()


main.add_command(broker)
