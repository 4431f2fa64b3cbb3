"""`groupkafka top`: watches a group and shows its members, partitions, rates and events."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import NoReturn

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from spark_groupsource.brokers.group_admin_process import GroupAdminProcess
from spark_groupsource.brokers.group_view import GroupView
from spark_groupsource.cli.claimed import claim_line, claimed_in
from spark_groupsource.cli.describe import claimed_sizes, json_group, lag_and_claims
from spark_groupsource.cli.group_changes import Changes, GroupEvent, Rates
from spark_groupsource.cli.render import NUMBERS, cell, console_for, count, iso, make_table, member_names, name_in, printable
from spark_groupsource.cli.shared_options import brokers_options, group_option, json_option
from spark_groupsource.cli.sink_groups import as_read
from spark_groupsource.errors import BrokerUnavailable, GroupNotFound

MOST_EVENTS = 12
"""The maximum number of events in the live view."""

MOST_DELAYING = 3
"""The maximum number of claims in the live view that hold back a committed offset."""


@click.command()
@brokers_options
@group_option
@click.option(
    "--interval",
    type=click.FloatRange(0.2, 3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to ask the brokers.",
)
@json_option
def top(settings: Mapping[str, str], group: str, interval: float, as_json: bool) -> None:
    """Watch a group until Ctrl-C: members, partitions, lag, rates and events.

    Events are members that join or leave, partitions that move, and claims that a query leaves behind. On a terminal the view is
    live. In a file or a pipe, top writes a line for each event and a line for the group every --interval seconds. With --json it
    writes one JSON object on each line.

    If the brokers do not answer, top shows that and asks again. While a group with the classic protocol rebalances, its
    coordinator does not show which member has which partition.

    \b
    PRODUCED/S   offsets per second by which the partition's end moves
    COMMITTED/S  offsets per second by which the committed offset moves
    The other columns are those of groupkafka describe.

    \b
    Example:
      groupkafka top --bootstrap-server localhost:9092 --group orders
    """
    console = console_for(sys.stdout)
    with suppress(KeyboardInterrupt), GroupAdminProcess(settings) as groups:
        if console.is_terminal and not as_json:
            # Exit through an exception, so that the view restores the terminal on SIGTERM, too.
            signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
            view = LiveView(console)
            with view:
                watch(groups.describe, group, view.show, interval)
        text_of = json_line if as_json else plain_text
        watch(groups.describe, group, lambda snapshot: click.echo(text_of(snapshot)), interval)


@dataclass(frozen=True)
class Snapshot:
    """The group at one moment. If the brokers did not answer, `trouble` is the reason, and the other fields are out of date."""

    group: str
    at: datetime
    view: GroupView | None = None
    rates: Rates = field(default_factory=Rates)
    events: tuple[GroupEvent, ...] = ()
    trouble: str | None = None
    is_first: bool = False
    """Whether this is the first snapshot with an answer."""


def watch(describe: Callable[[str], GroupView], group: str, show: Callable[[Snapshot], None], interval_s: float) -> NoReturn:
    """Describe the group every `interval_s` seconds, forever, and show each answer or failure to answer.

    Raises:
        AuthenticationFailed: The brokers refuse the login.
        NotAuthorized: This user may not describe the group.
        OptionError: A client setting is invalid.
        KeyboardInterrupt: The user pressed Ctrl-C.
    """
    changes = Changes()
    snapshot = Snapshot(group, datetime.now(timezone.utc))
    described_at = 0.0
    while True:
        began_at = time.monotonic()
        try:
            view = describe(group)
        except (BrokerUnavailable, GroupNotFound) as failed:
            snapshot = replace(snapshot, trouble=str(failed), events=())
        else:
            now = time.monotonic()
            rates, events = changes.since_last(view, now - described_at)
            snapshot = Snapshot(group, datetime.now(timezone.utc), view, rates, tuple(events), is_first=snapshot.view is None)
            described_at = now
        show(snapshot)
        time.sleep(max(0.0, began_at + interval_s - time.monotonic()))


def json_line(snapshot: Snapshot) -> str:
    """Return one line of `groupkafka top --json`: the `describe` JSON, with the rates and events since the previous line."""
    view, rates = snapshot.view, snapshot.rates
    if view is None or snapshot.trouble is not None:
        return json.dumps({"at": iso(datetime.now(timezone.utc)), "group": snapshot.group, "error": snapshot.trouble})
    shown = json_group(view)
    for fields, of_partition in zip(shown["partitions"], view.partitions, strict=True):
        fields["produced_per_second"] = rates.produced.get(of_partition.partition)
        fields["committed_per_second"] = rates.committed.get(of_partition.partition)
    shown |= {
        "produced_per_second": rates.all_produced,
        "committed_per_second": rates.all_committed,
        "events": [{"event": event.kind, "text": event.text} for event in snapshot.events],
    }
    return json.dumps({"at": iso(snapshot.at), **shown})


def plain_text(snapshot: Snapshot) -> str:
    """Return a line for each event and one for the group. The first answer also has one for each member and its partitions."""
    view, at = snapshot.view, snapshot.at
    if view is None or snapshot.trouble is not None:
        at, texts = datetime.now(timezone.utc), [f"no answer: {snapshot.trouble}"]
    else:
        names = member_names(view)
        owned = {member.member_id: " ".join(map(str, sorted(member.partitions))) for member in view.members if snapshot.is_first}
        texts = [f"member {names[member_id]}: {partitions or 'no partition'}" for member_id, partitions in owned.items()]
        texts += [f"{event.kind} {event.text}" for event in snapshot.events]
        texts.append(_summary(view, snapshot.rates))
    return "\n".join(f"{iso(at)} {printable(text)}" for text in texts)


class LiveView(Live):
    """Fills the terminal with a live view, redraws it twice a second and for each snapshot, and restores the terminal on exit."""

    def __init__(self, console: Console) -> None:
        self._snapshot: Snapshot | None = None
        self._events: deque[str] = deque(maxlen=MOST_EVENTS)
        super().__init__(console=console, screen=True, refresh_per_second=2)

    def show(self, snapshot: Snapshot) -> None:
        """Add the events and redraw the view."""
        self._events.extend(f"{snapshot.at:%H:%M:%S} {event.kind} {event.text}" for event in snapshot.events)
        self._snapshot = snapshot
        self.refresh()

    def get_renderable(self) -> Group:
        """Return what the terminal shows now. Also called between snapshots."""
        if self._snapshot is None:
            return Group(Text("describing the group ..."))
        size = self.console.size
        return Group(*live_parts(self._snapshot, list(self._events), size.width, size.height, datetime.now(timezone.utc)))


def live_parts(snapshot: Snapshot, events: list[str], width: int, height: int, now: datetime) -> list[Text | Table]:
    """Return the live view: the group, its members, the last events, and as many partitions and columns as fit."""
    time_and_age = f"{snapshot.at:%Y-%m-%d %H:%M:%S} UTC, {(now - snapshot.at).total_seconds():.0f} s ago"
    parts: list[Text | Table] = [Text(f"group {printable(snapshot.group)}    {time_and_age}    Ctrl-C to quit", style="bold")]
    if snapshot.trouble is not None:
        parts.append(Text(f"no answer: {printable(snapshot.trouble)}", style="bold red", no_wrap=True, overflow="ellipsis"))
    view = snapshot.view
    if view is None:
        return parts
    parts += [Text(_summary(view, snapshot.rates)), Text(), _members(view, snapshot.rates)]
    delaying = [claimed for claimed in claimed_in(view) if claimed.delays]
    if delaying:
        lines = (claim_line(claimed, now) for claimed in delaying[:MOST_DELAYING])
        parts += [Text(), *(Text(line, no_wrap=True, overflow="ellipsis") for line in lines)]
        if len(delaying) > MOST_DELAYING:
            more = len(delaying) - MOST_DELAYING
            parts.append(Text(f"and {count(more, 'more such range')}; see groupkafka claims", style="dim"))
    if view.differences:
        line = f"members and coordinator disagree about {count(len(view.differences), 'partition')}; see groupkafka describe"
        parts += [Text(), Text(line, no_wrap=True, overflow="ellipsis")]
    used = len(parts) + len(view.members)
    if events:
        # Leave room for a few partitions: show only the newest events that fit.
        room = max(3, min(len(events), height - used - min(len(view.partitions), 8) - 4))
        parts += [Text(), *(Text(printable(event), no_wrap=True, overflow="ellipsis") for event in events[-room:])]
        used += 1 + min(room, len(events))
    parts += [Text(), *_partitions(view, snapshot.rates, width, max(1, height - used - 3))]
    return parts


def _summary(view: GroupView, rates: Rates) -> str:
    produced, committed = cell(rates.all_produced), cell(rates.all_committed)
    summary = (
        f"{view.state}, {count(len(view.members), 'member')}, partitions {len(view.partitions)}, {lag_and_claims(view)}, "
        f"produced {produced}/s, committed {committed}/s"
    )
    if view.differences:
        summary += f", members and coordinator disagree about {count(len(view.differences), 'partition')}"
    if unread := view.other_formats:
        formats = ", ".join(str(version) for version in sorted(set(unread.values())))
        summary += f", {len(unread)} in format {formats}, which this version cannot read; see groupkafka claims"
    return summary


def _members(view: GroupView, rates: Rates) -> Table:
    names = member_names(view)
    rows = []
    for member in view.members:
        owned = [as_read(partition) for partition in view.partitions if partition.partition in member.partitions]
        speed = [rates.committed[partition.partition] for partition in owned if partition.partition in rates.committed]
        lag = None if any(partition.lag_unknown for partition in owned) else sum(partition.lag or 0 for partition in owned)
        rows.append((names[member.member_id], len(owned), lag, round(sum(speed), 1) if speed else None))
    return make_table(("MEMBER", "PARTITIONS", "LAG", "COMMITTED/S"), rows, terminal=True, one_line=True)


_RATES = ("PRODUCED/S", "COMMITTED/S")
_COLUMNS = ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "IN FLIGHT", "HELD", *_RATES, "MEMBER")
_LEFT_OUT = ((), _RATES, (*_RATES, "MEMBER"), (*_RATES, "MEMBER", "IN FLIGHT", "HELD"))
"""Which columns to drop on a narrow terminal, smallest set first."""

_NAME_WIDTH = 12
"""The width to which names may be shortened before another column is dropped."""


def _columns(rows: Sequence[Sequence[str]], width: int) -> dict[int, int]:
    """Return the width of each column that fits, by its index in _COLUMNS."""
    longest = [max(map(len, column)) for column in zip(_COLUMNS, *rows, strict=True)]
    widths = [most if name in NUMBERS else min(most, _NAME_WIDTH) for name, most in zip(_COLUMNS, longest, strict=True)]
    for left_out in _LEFT_OUT:
        shown = {place: widths[place] for place, name in enumerate(_COLUMNS) if name not in left_out}
        room = width + 2 - sum(needed + 2 for needed in shown.values())
        if room >= 0:
            break
    # Give the remaining width to the shortened names.
    for place, needed in shown.items():
        more = max(0, min(longest[place] - needed, room))
        shown[place] += more
        room -= more
    return shown


def _cut(text: str, width: int) -> str:
    """Shorten the text in the middle if it is too long, because names usually differ at their ends."""
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}\u2026{text[-end:]}"


def _partitions(view: GroupView, rates: Rates, width: int, room: int) -> list[Text | Table]:
    """Return a partition table. If not all partitions fit, show those with an unknown lag first, then those with the most lag."""
    shown = list(view.partitions)
    if len(shown) > room:
        shown = sorted(shown, key=lambda seen: (not as_read(seen).lag_unknown, -(as_read(seen).lag or 0)))[: room - 1]
    names = member_names(view)
    rows = []
    for row in shown:
        speeds = (rates.produced.get(row.partition), rates.committed.get(row.partition))
        offsets = (row.committed, row.end, as_read(row).lag, *claimed_sizes(view, row))
        rows.append([cell(value) for value in (*row.partition, *offsets, *speeds, name_in(names, row.member, "-"))])
    columns = _columns(rows, width)
    texts = [[_cut(row[place], needed) for place, needed in columns.items()] for row in rows]
    table = make_table((_COLUMNS[place] for place in columns), texts, terminal=True, one_line=True)
    for column, needed in zip(table.columns, columns.values(), strict=True):
        column.width = needed  # otherwise rich would truncate numbers as well
    hidden = len(view.partitions) - len(shown)
    return [table, Text(f"and {hidden} more, with the same lag or less", style="dim")] if hidden else [table]
