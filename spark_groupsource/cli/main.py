"""The command `groupkafka`, which finds its subcommands."""

from __future__ import annotations

import logging
from difflib import get_close_matches
from importlib import import_module

import click

from spark_groupsource.errors import GroupKafkaError
from spark_groupsource.version import __version__

COMMANDS = {
    "check": ("check.command:check", "Try an options file: brokers, login, ACLs, assignor, records."),
    "claims": ("claims:claims", "List the ranges of a group that are claimed and not confirmed, and what to do."),
    "clean-up": ("clean_up:clean_up", "Delete the groups of a query that writes, once it never runs again."),
    "describe": ("describe:describe", "Show a group's members, partitions, offsets and lag."),
    "leave": ("leave:leave", "Print the startingOffsets with which Spark's own Kafka source continues after a group."),
    "migrate": ("migrate:migrate", "Copy the offsets of a checkpoint of Spark's own Kafka source into a group."),
    "reset-offsets": ("reset_offsets:reset_offsets", "Set the committed offsets of a stopped group."),
    "top": ("top:top", "Watch a group: members, partitions, rates, rebalances."),
    "transactions": ("transactions:transactions", "Show what a sink's open transactions hold back in a topic, and who has them."),
}
"""The subcommands, each with its module in `cli`, the function in the module, and its line in `groupkafka --help`."""


class _Commands(click.Group):
    """Finds the subcommands, and imports a module only when its command is used: importing all takes half a second.

    An error of this package becomes one message on stderr and exit code 1, without a traceback.
    """

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        # click suggests options, and since 8.4 also commands, but not commands that are imported only when they are used.
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

            # The text may contain names that clients chose.
            raise click.ClickException("\n".join(map(printable, str(error).split("\n")))) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="groupkafka")
def main() -> None:
    """Tools for Spark queries that are members of a Kafka consumer group: show a group, test a query's options, move offsets."""
    # librdkafka's messages reach the user in errors. Without this handler, logging would print them to stderr as well.
    logging.getLogger("spark_groupsource").addHandler(logging.NullHandler())
