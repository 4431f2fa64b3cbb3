"""Runs a command from this folder. This project's errors become messages on stderr, without a traceback."""

from __future__ import annotations

import logging
import sys

import click

from spark_groupsource.errors import GroupKafkaError


def run(command: click.Command, name: str) -> None:
    """Run the command with the arguments of this process, and exit.

    Args:
        command: the command.
        name: the name under which the user calls it, for its help.
    """
    # librdkafka's messages reach the user in errors. Without a handler, logging would also print them on stderr.
    logging.getLogger("spark_groupsource").addHandler(logging.NullHandler())
    try:
        command.main(prog_name=name)
    except GroupKafkaError as error:
        click.ClickException(str(error)).show()
        sys.exit(1)
