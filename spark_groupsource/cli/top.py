"""`groupkafka top`: watch a group."""

from __future__ import annotations

import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from spark_groupsource.brokers.group_admin_process import GroupAdminProcess
from spark_groupsource.brokers.group_view import GroupView
from spark_groupsource.cli.as_json import Json, iso, json_text
from spark_groupsource.cli.describe import json_group
from spark_groupsource.cli.group_changes import Changes, GroupEvent, Rates
from spark_groupsource.cli.render import NUMBERS, console_for, held_back_lines, lag_of, make_table, number, printable
from spark_groupsource.cli.shared_options import client_settings, group_options, json_option
from spark_groupsource.cli.sink_groups import sink_lines
from spark_groupsource.errors import BrokerUnavailable, GroupNotFound

if TYPE_CHECKING:
    from typing_extensions import Self

MOST_EVENTS = 12
"""The number of events that the live view shows."""

MOST_HELD_BACK = 3
"""The number of partitions with a committed offset that is held back that the live view names."""


@click.command()
@group_options
@click.option(
    "--interval",
    type=click.FloatRange(0.2, 3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="The time between two looks.",
)
@json_option
def top(bootstrap_server: str, group: str, command_config: Path | None, interval: float, as_json: bool) -> None:
    """Watch a group until Ctrl-C: members, partitions, lag, rates and events.

    Events are members that join and leave, partitions that move, and claims that a query left behind. On a terminal the view is
    live. In a file or a pipe, each look is a line, after a line for each event. With --json each look is one JSON object on a
    line.

    If the brokers do not answer, top says so and asks again. While a group of the classic protocol rebalances, its coordinator
    does not return which member has which partition.

    \b
    PRODUCED/S   offsets per second by which the partition's end moves
    COMMITTED/S  offsets per second by which the committed offset moves
    The other columns are those of groupkafka describe.

    \b
    Example:
      groupkafka top --bootstrap-server localhost:9092 --group orders
    """
    console = console_for(sys.stdout)
    with suppress(KeyboardInterrupt), ExitStack() as ends:
        look = ends.enter_context(GroupAdminProcess(client_settings(bootstrap_server, command_config)))
        show: Show = JsonLines(click.echo) if as_json else PlainLines(click.echo)
        if console.is_terminal and not as_json:
            # So that the view restores the terminal on SIGTERM too.
            signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
            show = ends.enter_context(LiveView(console))
        watch(look.describe, group, show, interval)


@dataclass(frozen=True)
class Look:
    """One look at the group. If it failed, `trouble` says why, and the other fields are those of the last look."""

    group: str
    at: datetime
    view: GroupView | None = None
    rates: Rates = field(default_factory=Rates)
    events: tuple[GroupEvent, ...] = ()
    trouble: str | None = None


class Show(Protocol):
    """A form in which looks are shown."""

    def show(self, look: Look) -> None:
        """Show the next look."""


def watch(describe: Callable[[str], GroupView], group: str, show: Show, interval_s: float) -> None:
    """Look at the group every `interval_s` seconds, without end. A look that no broker answers is shown as failed.

    Raises:
        AuthenticationFailed: The brokers refuse the login.
        NotAuthorized: This user may not describe the group.
        OptionError: A client setting is wrong.
        KeyboardInterrupt: Ctrl-C, at any moment.
    """
    changes = Changes()
    look = Look(group, datetime.now(timezone.utc))
    seen_at = 0.0
    while True:
        begin = time.monotonic()
        try:
            view = describe(group)
        except (BrokerUnavailable, GroupNotFound) as failed:
            look = replace(look, trouble=str(failed), events=())
        else:
            now = time.monotonic()
            rates, events = changes.since_last(view, now - seen_at)
            look = Look(group, datetime.now(timezone.utc), view, rates, tuple(events))
            seen_at = now
        show.show(look)
        time.sleep(max(0.0, begin + interval_s - time.monotonic()))


class JsonLines:
    """One JSON object on one line for each look."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def show(self, look: Look) -> None:
        """Write the look as JSON."""
        if look.trouble is not None or look.view is None:
            shown = json_failure(datetime.now(timezone.utc), look.group, look.trouble or "")
        else:
            shown = json_look(look.at, look.view, look.rates, look.events)
        self._write(json_text(shown, lines=True))


class PlainLines:
    """One line for each look, and one for each event. The first look also has a line for each member and its partitions."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._members_shown = False

    def show(self, look: Look) -> None:
        """Write the look's events and a summary."""
        if look.trouble is not None or look.view is None:
            self._line(datetime.now(timezone.utc), f"no answer: {look.trouble}")
            return
        if not self._members_shown:
            self._members_shown = True
            for member in look.view.members:
                has = " ".join(map(str, sorted(member.partitions))) or "no partition"
                self._line(look.at, f"member {member.name}: {has}")
        for event in look.events:
            self._line(look.at, f"{event.kind} {event.text}")
        self._line(look.at, _summary(look.view, look.rates))

    def _line(self, at: datetime, text: str) -> None:
        self._write(f"{iso(at)} {printable(text)}")


class LiveView:
    """A view on the whole terminal, drawn twice a second and at each look. At the end the terminal's old content returns."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._look: Look | None = None
        self._events: deque[str] = deque(maxlen=MOST_EVENTS)
        self._live = Live(console=console, screen=True, get_renderable=self._render, refresh_per_second=2)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()

    def show(self, look: Look) -> None:
        """Add the look's events and draw the view."""
        self._events.extend(f"{look.at:%H:%M:%S} {event.kind} {event.text}" for event in look.events)
        self._look = look
        self._live.refresh()

    def _render(self) -> Group:
        if self._look is None:
            return Group(Text("looking at the group ..."))
        size = self._console.size
        return Group(*live_parts(self._look, list(self._events), size.width, size.height, datetime.now(timezone.utc)))


def live_parts(look: Look, events: list[str], width: int, height: int, now: datetime) -> list[Text | Table]:
    """Return what fills a terminal: the group, its members, the last events, and as many partitions and columns as fit."""
    age = (now - look.at).total_seconds()
    parts: list[Text | Table] = [
        Text(f"group {printable(look.group)}    {look.at:%Y-%m-%d %H:%M:%S} UTC, {age:.0f} s ago    Ctrl-C ends", style="bold")
    ]
    if look.trouble is not None:
        parts.append(Text(f"no answer: {printable(look.trouble)}", style="bold red", no_wrap=True, overflow="ellipsis"))
    view = look.view
    if view is None:
        return parts
    parts += [Text(_summary(view, look.rates)), Text(), _members(view, look.rates)]
    held_back = [Text(line, no_wrap=True, overflow="ellipsis") for line in held_back_lines(view.partitions, now)]
    if held_back:
        parts += [Text(), *held_back[:MOST_HELD_BACK]]
        if len(held_back) > MOST_HELD_BACK:
            parts.append(
                Text(f"and {len(held_back) - MOST_HELD_BACK} more that are held back; see groupkafka claims", style="dim")
            )
    if view.differences:
        line = f"members and coordinator differ in {_differing(view)}; see groupkafka describe"
        parts += [Text(), Text(line, no_wrap=True, overflow="ellipsis")]
    used = len(parts) + len(view.members)
    if events:
        # Only the newest events, if not all fit beside a few partitions.
        room = max(3, min(len(events), height - used - min(len(view.partitions), 8) - 4))
        parts += [Text(), *(Text(printable(event), no_wrap=True, overflow="ellipsis") for event in events[-room:])]
        used += 1 + min(room, len(events))
    parts += [Text(), *_partitions(view, look.rates, width, max(1, height - used - 3))]
    return parts


def _summary(view: GroupView, rates: Rates) -> str:
    members = f"{len(view.members)} {'member' if len(view.members) == 1 else 'members'}"
    produced, committed = number(rates.all_produced), number(rates.all_committed)
    summary = (
        f"{view.state}, {members}, partitions {len(view.partitions)}, {lag_of(view)}, "
        f"held {view.held}, produced {produced}/s, committed {committed}/s"
    )
    if sink_lines(view):
        summary += ", of a query that writes: no positions of a reader"
    if view.differences:
        summary += f", members and coordinator differ in {_differing(view)}"
    if others := view.other_formats:
        formats = ", ".join(str(version) for version in sorted(set(others.values())))
        summary += f", {len(others)} in format {formats}: not readable by this version; see groupkafka claims"
    return summary


def _differing(view: GroupView) -> str:
    return "1 partition" if len(view.differences) == 1 else f"{len(view.differences)} partitions"


def _members(view: GroupView, rates: Rates) -> Table:
    table = make_table(("MEMBER", "PARTITIONS", "LAG", "COMMITTED/S"), terminal=True, one_line=True)
    for member in view.members:
        mine = [one for one in view.partitions if one.partition in member.partitions]
        speed = [rates.committed[one.partition] for one in mine if one.partition in rates.committed]
        lag = None if any(one.lag_unknown for one in mine) else sum(one.lag or 0 for one in mine)
        cells = (len(mine), lag, round(sum(speed), 1) if speed else None)
        table.add_row(Text(printable(member.name)), *(Text(number(cell)) for cell in cells))
    return table


_COLUMNS = ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "HELD", "PRODUCED/S", "COMMITTED/S", "MEMBER")
_LEFT_OUT: Sequence[frozenset[str]] = (
    frozenset(),
    frozenset({"PRODUCED/S", "COMMITTED/S"}),
    frozenset({"PRODUCED/S", "COMMITTED/S", "MEMBER"}),
)
"""The columns that a narrow terminal has no room for."""

_NAME_WIDTH = 12
"""A name may be cut to so many columns before another column is left out."""


def _columns(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the columns that fit, by their places in _COLUMNS."""
    longest = [max(map(len, column)) for column in zip(_COLUMNS, *rows, strict=True)]
    needed = [most if name in NUMBERS else min(most, _NAME_WIDTH) for name, most in zip(_COLUMNS, longest, strict=True)]
    for left_out in _LEFT_OUT:
        shown = [place for place, name in enumerate(_COLUMNS) if name not in left_out]
        if sum(needed[place] + 2 for place in shown) <= width + 2:
            break
    return shown


def _partitions(view: GroupView, rates: Rates, width: int, room: int) -> list[Text | Table]:
    """Return a table of as many partitions as fit. If not all fit, those whose lag is not known, and those with the most."""
    shown = list(view.partitions)
    if len(shown) > room:
        shown = sorted(shown, key=lambda one: (not one.lag_unknown, -(one.lag or 0)))[: room - 1]
    rows = []
    for one in shown:
        speeds = (rates.produced.get(one.partition), rates.committed.get(one.partition))
        cells = (one.partition.partition, one.committed, one.end, one.lag, one.held, *speeds)
        member = "-" if one.member is None else printable(one.member.name)
        rows.append((printable(one.partition.topic), *map(number, cells), member))
    columns = _columns(rows, width)
    table = make_table((_COLUMNS[place] for place in columns), terminal=True, one_line=True)
    for row in rows:
        table.add_row(*(Text(row[place]) for place in columns))
    left = len(view.partitions) - len(shown)
    return [table, Text(f"and {left} more, with no more lag", style="dim")] if left else [table]


def json_look(at: datetime, view: GroupView, rates: Rates, events: Iterable[GroupEvent]) -> Json:
    """Return one line of `groupkafka top --json`: the JSON of `describe`, with the rates and events since the last look."""
    shown = json_group(view)
    for partition, one in zip(shown["partitions"], view.partitions, strict=True):
        partition["produced_per_second"] = rates.produced.get(one.partition)
        partition["committed_per_second"] = rates.committed.get(one.partition)
    return {
        "at": iso(at),
        **shown,
        "produced_per_second": rates.all_produced,
        "committed_per_second": rates.all_committed,
        "events": [{"event": event.kind, "text": event.text} for event in events],
    }


def json_failure(at: datetime, group_id: str, why: str) -> Json:
    """Return the line of `groupkafka top --json` for a look that failed."""
    return {"at": iso(at), "group": group_id, "error": why}
