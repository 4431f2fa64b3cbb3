"""Options that several commands have, and the client settings that they lead to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from spark_groupsource.kafka_settings.translation import translate
from spark_groupsource.options.properties_file import read_properties

Command = TypeVar("Command", bound=Callable[..., None])


def group_options(command: Command) -> Command:
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


def json_option(command: Command) -> Command:
    """The option `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="As JSON; docs/command-line.md has the fields.")(command)


def execute_option(command: Command) -> Command:
    """The option `--execute`."""
    return click.option("--execute", is_flag=True, help="Do it. Without this the plan is shown, and nothing is changed.")(command)


def client_settings(bootstrap_server: str, command_config: Path | None) -> dict[str, str]:
    """librdkafka's settings of a client for these brokers, with those of the file."""
    given = {} if command_config is None else read_properties(command_config)
    return translate({"client.id": "groupkafka-tool", **given, "bootstrap.servers": bootstrap_server})
