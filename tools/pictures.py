"""`make pictures`: draws docs/pictures/demo.svg and top.svg from a real run of the demo, watched by a real `groupkafka top`.

The pictures show what these programs print. This program only chooses the moments, by events rather than by time.
"""

from __future__ import annotations

import html
import io
import re
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI

from devtools.demo.story import GROUP, Story
from devtools.demo.view import Scene, View, print_count
from spark_groupsource.brokers.group_admin_process import GroupAdminProcess
from spark_groupsource.cli.top import LiveView, Snapshot, watch

if TYPE_CHECKING:
    from typing_extensions import Self

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"

WIDTH = 100
"""The number of columns. A line of this length is still legible if a page shows the picture 800 pixels wide."""

TOP_HEIGHT = 30
TOP_INTERVAL_S = 1.0
ADDRESS_EVERY_S = 0.1

CELL_WIDTH = 12.2
"""The width of a character in rich's SVG."""

_CELLS = re.compile(
    r'<text class="(?P<style>[^"]+)" x="(?P<x>[^"]+)" y="(?P<y>[^"]+)" textLength="[^"]+"(?P<clip>[^>]*)>(?P<text>[^<]*)</text>'
)

FONT = 'ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace'


class Terminal(Console):
    """A terminal that records its output and wraps long lines, because an export would truncate them."""

    def __init__(self) -> None:
        super().__init__(
            file=io.StringIO(), record=True, width=WIDTH, force_terminal=True, color_system="truecolor", highlight=False
        )

    def print(self, *objects: Any, soft_wrap: bool | None = None, **how: Any) -> None:  # noqa: ARG002 -- see the class
        """Print, and wrap long lines."""
        super().print(*objects, soft_wrap=False, **how)


class DemoRecorder(View):
    """The demo's view: its events, and its live table at the moment when ranges are held for the stopped query."""

    def __init__(self, console: Terminal) -> None:
        super().__init__(console)
        self.has_table = False

    def __enter__(self) -> Self:
        return self  # do not draw the live view again and again

    def __exit__(self, *_error: object) -> None:
        """Nothing was started."""

    def event(self, text: str, *, turn: bool = False) -> None:
        """Print the event on the recorded terminal, and on stderr for the person who is waiting for the picture."""
        super().event(text, turn=turn)
        print(text, file=sys.stderr)

    def progress(self, text: str) -> None:
        """Do nothing, because the picture shows no progress."""

    def show(self, scene: Scene) -> None:
        """Draw the table once, when one query has all partitions and ranges are held for the other query."""
        super().show(scene)
        partitions = scene.group.partitions if scene.group is not None else ()
        members = {one.member for one in partitions}
        if not self.has_table and len(members) == 1 and None not in members and any(one.owed for one in partitions):
            self.has_table = True
            self._console.print(self._render())
            self._console.print()


class _Ended(Exception):
    """The demo has ended, so there is nothing more to watch."""


class TopRecorder(LiveView):
    """The view of `groupkafka top`. The picture is its last snapshot with members and rates after a complete hand-over."""

    def __init__(self, console: Terminal) -> None:
        super().__init__(console)
        self.ended = threading.Event()
        self.has_picture = False
        self._kinds: set[str] = set()

    def show(self, look: Snapshot) -> None:
        """Show the snapshot, and keep the terminal's content if it is the best picture so far."""
        if self.ended.is_set():
            raise _Ended
        super().show(look)
        self._kinds.update(event.kind for event in look.events)
        members = look.view.members if look.view is not None else ()
        shared = len(members) == 2 and all(member.partitions for member in members)
        moving = bool(look.rates.all_produced and look.rates.all_committed)
        if {"joined", "left", "moved"} <= self._kinds and shared and moving:
            self.has_picture = True
            self.console.export_text(clear=True)
            self.console.print(self.get_renderable())


def main() -> int:
    """Run the demo and watch it. Return the exit status, which is 1 if the run had nothing to show."""
    folder = Path(tempfile.mkdtemp(prefix="groupkafka-pictures-"))
    screen, top_screen = Terminal(), Terminal()
    top_screen.height = TOP_HEIGHT
    view, top = DemoRecorder(screen), TopRecorder(top_screen)
    try:
        with view, Story(view, folder) as story:
            watching = threading.Thread(target=_watch, args=(story, top), name="top")
            watching.start()
            try:
                result = story.run()
            finally:
                top.ended.set()
                watching.join()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print_count(result, screen)
    if not (view.has_table and top.has_picture and result.exactly_once):
        print("This run held nothing for the stopped query, or ended too soon. Run it again.", file=sys.stderr)
        return 1
    for name, console, title in (("demo", screen, "make demo"), ("top", top_screen, f"groupkafka top --group {GROUP}")):
        (PICTURES / f"{name}.svg").write_text(_svg(console, name, title), encoding="utf-8")
        print(PICTURES / f"{name}.svg", file=sys.stderr)
    return 0


def _watch(story: Story, top: TopRecorder) -> None:
    while story.bootstrap_servers is None:
        if top.ended.wait(ADDRESS_EVERY_S):
            return
    try:
        with GroupAdminProcess({"bootstrap.servers": story.bootstrap_servers, "client.id": "top"}) as look:
            watch(look.describe, GROUP, top.show, TOP_INTERVAL_S)
    except _Ended:
        return


def _svg(console: Console, name: str, title: str) -> str:
    """Return the picture with fonts that the reader has, because rich's own template loads one from another server."""
    template = re.sub(r"@font-face \{\{.*?\}\}|<!--.*?-->", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    template = template.replace("Fira Code, monospace", FONT).replace("font-family: arial", "font-family: sans-serif")
    svg = console.export_svg(title=title, theme=MONOKAI, code_format=template, unique_id=name)
    svg = _CELLS.sub(_without_padding, svg)
    return "\n".join(line.rstrip() for line in svg.splitlines() if line.strip()) + "\n"


def _without_padding(cells: re.Match[str]) -> str:
    """Return the text without the spaces with which rich aligns it, because some viewers drop them."""
    text = cells["text"].replace("&#160;", "\N{NO-BREAK SPACE}").rstrip()
    left = text.lstrip()
    if not left:
        return ""
    x = float(cells["x"]) + CELL_WIDTH * (len(text) - len(left))
    length = CELL_WIDTH * len(html.unescape(left))
    shown = left.replace("\N{NO-BREAK SPACE}", "&#160;")
    return f'<text class="{cells["style"]}" x="{x:.1f}" y="{cells["y"]}" textLength="{length:.1f}"{cells["clip"]}>{shown}</text>'


if __name__ == "__main__":
    begin = time.monotonic()
    status = main()
    print(f"{time.monotonic() - begin:.0f} s", file=sys.stderr)
    sys.exit(status)
