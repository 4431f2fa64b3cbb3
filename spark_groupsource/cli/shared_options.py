"""Defines the options that several commands share, and turns them into client settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from spark_groupsource.kafka_settings.translation import translate
from spark_groupsource.options.properties_file import read_properties

Command = TypeVar("Command", bound=Callable[..., None])


def group_options(command: Command) -> Command:
    """Add the options for a command about a group: the brokers, the group, and a client settings file."""
    return _about(
        click.option(
            "--group", required=True, metavar="GROUP", callback=_name, help="The consumer group: kafka.group.id of its queries."
        ),
        command,
    )


def topic_options(command: Command) -> Command:
    """Add the options for a command about a topic: the brokers, the topic, and a client settings file."""
    return _about(click.option("--topic", required=True, metavar="TOPIC", callback=_name, help="The topic."), command)


def query_options(command: Command) -> Command:
    """Add the options for a command about a query's sink: the brokers, the query, and a client settings file."""
    query = click.option("--query", metavar="ID", help="The query's id, from the metadata file in its checkpoint.")
    checkpoint = click.option(
        "--checkpoint", metavar="PATH", help="Instead of --query: the checkpointLocation, a path or a URI such as s3://..."
    )
    return _about(lambda command: query(checkpoint(command)), command)


def _about(name_option: Callable[[Command], Command], command: Command) -> Command:
    options = (
        click.option("--bootstrap-server", required=True, metavar="HOST:PORT[,...]", help="One or more brokers of the cluster."),
        name_option,
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


def _name(_context: click.Context, _option: click.Parameter, name: str) -> str:
    """Refuse a name that no group or topic can have. If a name is not UTF-8, librdkafka would abort the process."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise click.BadParameter("the name is not valid UTF-8.") from None
    if not name.strip():
        raise click.BadParameter("the name is empty.")
    return name


def json_option(command: Command) -> Command:
    """Add the `--json` option."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON. docs/command-line.md describes the fields.")(command)


def execute_option(command: Command) -> Command:
    """Add the `--execute` option."""
    return click.option(
        "--execute", is_flag=True, help="Make the change. Without this option, the command only shows what it would do."
    )(command)


def client_settings(bootstrap_server: str, command_config: Path | None) -> dict[str, str]:
    """Return librdkafka's settings for a client of these brokers, including the settings from the file.

    Raises:
        OptionError: The file cannot be read, or a setting is invalid.
    """
    given = {} if command_config is None else read_properties(command_config)
    return translate({"client.id": "groupkafka-tool", **given, "bootstrap.servers": bootstrap_server})
