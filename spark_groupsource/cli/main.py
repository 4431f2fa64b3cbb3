"""The `groupkafka` command, with a table of its subcommands."""

from __future__ import annotations

import logging
from difflib import get_close_matches
from importlib import import_module

import click

from spark_groupsource.errors import GroupKafkaError
from spark_groupsource.version import __version__

COMMANDS = {
    "check": ("check.command:check", "Test a query's options: brokers, login, ACLs, assignor, records."),
    "claims": ("claims:claims", "List the ranges that queries have claimed but not confirmed, and what to do."),
    "clean-up": ("clean_up:clean_up", "Delete the groups of a query's sink, once the query will never run again."),
    "describe": ("describe:describe", "Show a group's members, partitions, offsets and lag."),
    "leave": ("leave:leave", "Print the startingOffsets for Spark's own Kafka source to continue where a group stopped."),
    "migrate": ("migrate:migrate", "Commit the offsets from a checkpoint of Spark's own Kafka source to a group."),
    "reset-offsets": ("reset_offsets:reset_offsets", "Set the committed offsets of a stopped group."),
    "top": ("top:top", "Watch a group: members, partitions, rates, rebalances."),
    "transactions": ("transactions:transactions", "Show which records open transactions hide, and which tasks have them open."),
}
"""Each subcommand's module in `cli`, the function in that module, and the subcommand's line in `groupkafka --help`."""


class _Commands(click.Group):
    """Imports a subcommand's module only when the command is used, because importing all of them takes half a second.

    This package's errors are printed to stderr without a traceback, and the exit code is 1.
    """

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        # click's own suggestions do not cover commands that are imported only when they are used.
        close = get_close_matches(args[0], COMMANDS, 1) if args[0] not in COMMANDS else []
        if close and not ctx.resilient_parsing:
            ctx.fail(f"There is no command {args[0]!r}. Did you mean {close[0]!r}?")
        return super().resolve_command(ctx, args)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, function = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(f"spark_groupsource.cli.{module}"), function)
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except GroupKafkaError as error:
            from spark_groupsource.cli.render import printable

            # The text may contain names that clients chose, with characters that could control the terminal.
            raise click.ClickException("\n".join(map(printable, str(error).split("\n")))) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="groupkafka")
def main() -> None:
    """Tools for Spark queries that are members of a Kafka consumer group: show a group, test a query's options, move offsets."""
    # librdkafka's messages reach the user in errors. Without this handler, logging would also print them to stderr.
    logging.getLogger("spark_groupsource").addHandler(logging.NullHandler())
