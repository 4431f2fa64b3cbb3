"""Helpers that `make chaos` and `make soak` share: their start, and the tables in their reports."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from tests.harness.classes import make_archives, quick_spark
from tests.support.processes import CAN_LOOK


@contextmanager
def prepared(name: str, console: Console, output: Path) -> Iterator[Path]:
    """Make the folder for reports, and yield another one for everything else, which is deleted at the end."""
    # Brokers are down often, on purpose. The verdicts have what matters.
    logging.getLogger("spark_groupsource").addHandler(logging.NullHandler())
    if not CAN_LOOK:
        raise SystemExit("The runs look for processes in /proc: Linux is needed.")
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"groupkafka-{name}-", ignore_cleanup_errors=True) as folder:
        make_archives(console.print)
        os.environ.update(quick_spark())
        yield Path(folder)


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = False) -> str:
    """Return a table in Markdown. With `numbers`, all columns except the first are aligned to the right."""
    line = ["---", *["---:" if numbers else "---"] * (len(header) - 1)]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |\n" for cells in [header, line, *rows])
