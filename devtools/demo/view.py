"""Prints the output of the demo: a live view on a terminal, or plain lines in a file or a pipe."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from devtools.demo.count import Count
from spark_groupsource.brokers.group_view import GroupView
from spark_groupsource.cli.describe import lag_and_claims, partition_table
from spark_groupsource.cli.render import count, printable
from spark_groupsource.partition import TopicPartition

if TYPE_CHECKING:
    from typing_extensions import Self

PLAIN_LINE_EVERY_S = 2.0
"""How often a line is printed without a live view, in seconds."""

MOST_NUMBERS = 10
"""How many lost or duplicated records the result lists."""

NEXT_STEPS = (
    'README.md                 use format("groupkafka") in your own query',
    "make broker               run only the broker and print its address",
    "groupkafka describe -h    show any consumer group, as this demo did",
)


@dataclass(frozen=True)
class QueryScene:
    """A query at one moment. `generation` and `partitions` are those of its last plan. `lag` is in records, if known."""

    name: str
    status: str
    generation: int | None = None
    partitions: frozenset[TopicPartition] = frozenset()
    rows_per_second: float = 0.0
    rows: int = 0
    lag: int | None = 0


@dataclass(frozen=True)
class Scene:
    """Everything that the view shows at one moment. `group` is `None` until the group has been described."""

    queries: tuple[QueryScene, ...]
    produced: int = 0
    produced_per_second: float = 0.0
    group: GroupView | None = None


class View:
    """Shows scenes and events, with times in seconds since it was created. Only one thread may use it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._begin = time.monotonic()
        self._progress = ""
        self._next_line = 0.0
        self._scene: Scene | None = None
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=4) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def event(self, text: str, *, turn: bool = False) -> None:
        """Print an event, which stays on the screen. Turning points of the story are bold."""
        self._progress = ""
        time_s = (f"[{self._elapsed():5.1f} s] ", "dim")
        self._console.print(Text.assemble(time_s, (printable(text), "bold" if turn else "")), soft_wrap=True)

    def progress(self, text: str) -> None:
        """Show the progress of something that takes a long time."""
        self._progress = text
        if self._live is None and self._line_is_due():
            self._console.print(Text(f"[{self._elapsed():5.1f} s]   {printable(text)}"), soft_wrap=True)

    def show(self, scene: Scene) -> None:
        """Show the scene immediately in the live view, or as a line every two seconds."""
        self._scene = scene
        if self._live is None and self._line_is_due():
            self._console.print(Text(f"[{self._elapsed():5.1f} s]   {_line(scene)}"), soft_wrap=True)

    def _elapsed(self) -> float:
        return time.monotonic() - self._begin

    def _line_is_due(self) -> bool:
        due = self._elapsed() >= self._next_line
        if due:
            self._next_line = self._elapsed() + PLAIN_LINE_EVERY_S
        return due

    def _render(self) -> Group:
        parts: list[Text | Table] = [Text(f"\n{self._elapsed():5.0f} s  {printable(self._progress)}", style="dim")]
        if self._scene is not None:
            parts += [_queries(self._scene), Text(_totals(self._scene))]
            if self._scene.group is not None and self._scene.group.partitions:
                parts += [Text(), partition_table(self._scene.group, terminal=True)]
        return Group(*parts)


def _queries(scene: Scene) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("QUERY", "STATUS", "GENERATION", "ROWS/S", "ROWS", "LAG"):
        table.add_column(name, justify="left" if name in {"QUERY", "STATUS"} else "right")
    table.add_column("PARTITIONS")
    for query in scene.queries:
        rate = f"{query.rows_per_second:.0f}"
        table.add_row(
            query.name, query.status, _count(query.generation), rate, str(query.rows), _count(query.lag), listed(query.partitions)
        )
    return table


def _count(number: int | None) -> str:
    return "-" if number is None else str(number)


def _totals(scene: Scene) -> str:
    group = scene.group
    seen = "" if group is None else f"; group {group.state}, {count(len(group.members), 'member')}, {lag_and_claims(group)}"
    return f"producer {scene.produced_per_second:.0f}/s, {scene.produced} records{seen}"


def _line(scene: Scene) -> str:
    queries = [
        f"{query.name} {query.status}"
        + (f" generation {query.generation}" if query.generation is not None else "")
        + (
            f" [{listed(query.partitions)}] {query.rows_per_second:.0f} rows/s lag {_count(query.lag)}"
            if query.partitions
            else ""
        )
        for query in scene.queries
    ]
    return " | ".join([*queries, _totals(scene)])


def listed(partitions: Iterable[TopicPartition]) -> str:
    """Return the partitions on one line, sorted."""
    return " ".join(map(str, sorted(partitions)))


def print_count(count: Count, console: Console) -> None:
    """Print the numbers of records by query and partition, and the result."""
    names = sorted({name for name, _partition in count.rows})
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("PARTITION")
    for name in names:
        table.add_column(f"READ BY {name}", justify="right")
    table.add_column("READ", justify="right")
    for partition in sorted({partition for _name, partition in count.rows}):
        rows = [count.rows.get((name, partition), 0) for name in names]
        table.add_row(str(partition), *map(str, rows), str(sum(rows)))
    console.print()
    console.print(table)
    console.print()
    verdict = "every record counted once" if count.exactly_once else "NOT every record was counted once"
    console.print(
        Text(f"produced {count.produced}, read {count.read}, lost {len(count.lost)}, doubled {len(count.doubled)}: {verdict}"),
        style="bold green" if count.exactly_once else "bold red",
        soft_wrap=True,
    )
    for what, numbers in (("lost", count.lost), ("doubled", count.doubled), ("never produced", count.unknown)):
        if numbers:
            more = ", ..." if len(numbers) > MOST_NUMBERS else ""
            console.print(f"{what}: {', '.join(map(str, numbers[:MOST_NUMBERS]))}{more}", soft_wrap=True)


def print_next_steps(console: Console) -> None:
    """Print what to try next."""
    console.print()
    for line in NEXT_STEPS:
        console.print(Text(line), soft_wrap=True)
