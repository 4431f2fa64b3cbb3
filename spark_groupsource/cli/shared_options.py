"""Defines the options that several commands share, and turns them into client settings."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from spark_groupsource.kafka_settings.translation import translate
from spark_groupsource.options.properties_file import read_properties


def brokers_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for the brokers and for a client settings file. The command gets the client's settings as `settings`."""

    @click.option("--bootstrap-server", required=True, metavar="HOST:PORT[,...]", help="One or more of the cluster's brokers.")
    @click.option(
        "--command-config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="A Java properties file with client settings, such as security.protocol and sasl.jaas.config.",
    )
    @functools.wraps(command)
    def with_settings(bootstrap_server: str, command_config: Path | None, **given: Any) -> None:
        command(client_settings(bootstrap_server, command_config), **given)

    return with_settings


def name(_context: click.Context, _option: click.Parameter, name: str) -> str:
    """Refuse a name that no group or topic can have. If a name is not UTF-8, librdkafka would abort the process."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise click.BadParameter("the name is not valid UTF-8.") from None
    if not name.strip():
        raise click.BadParameter("the name is empty.")
    return name


group_option = click.option(
    "--group", required=True, metavar="GROUP", callback=name, help="The consumer group: kafka.group.id of its queries."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON. docs/command-line.md describes the fields.")
execute_option = click.option(
    "--execute", is_flag=True, help="Make the change. Without this option, the command only shows what it would do."
)


def client_settings(bootstrap_server: str, command_config: Path | None) -> dict[str, str]:
    """Return librdkafka settings for a client of these brokers, including the settings from the file.

    Raises:
        OptionError: The file cannot be read, or a setting is invalid.
    """
    given = {} if command_config is None else read_properties(command_config)
    return translate({"client.id": "groupkafka-tool", **given, "bootstrap.servers": bootstrap_server})
