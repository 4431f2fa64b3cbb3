"""How `groupkafka check` shows its findings."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from spark_groupsource.cli.check.command import print_finding, print_summary
from spark_groupsource.cli.check.findings import Finding, error, ok, warning


def printed(*findings: Finding, terminal: bool = False, width: int = 10_000) -> list[str]:
    written = io.StringIO()
    console = Console(file=written, width=width, force_terminal=terminal, color_system=None, highlight=False)
    for finding in findings:
        print_finding(finding, console)
    print_summary(findings, console)
    return [line.rstrip() for line in written.getvalue().splitlines()]


def test_without_a_terminal_a_finding_is_one_line_however_long() -> None:
    line, *_ = printed(ok("brokers", "answer " * 50))
    assert line == f"ok       brokers     {'answer ' * 50}".rstrip()


def test_on_a_terminal_what_is_wrapped_stays_below_the_text_and_no_brackets_are_markup() -> None:
    lines = printed(warning("fetch", "[bold]ten words " * 10), terminal=True, width=60)[:-2]
    assert lines[0].startswith("warning  fetch       [bold]ten words")
    assert len(lines) > 2
    assert all(line.startswith(" " * 21) and line[21] != " " for line in lines[1:])


@pytest.mark.parametrize(
    ("findings", "summary"),
    [
        ([ok("a", "a")], "0 errors, 0 warnings: the query can run"),
        ([warning("a", "a"), warning("b", "b")], "0 errors, 2 warnings: the query can run"),
        ([error("a", "a"), warning("b", "b"), error("c", "c")], "2 errors, 1 warning: the query cannot run"),
    ],
)
def test_the_last_line_says_whether_the_query_can_run(findings: list[Finding], summary: str) -> None:
    assert printed(*findings)[-2:] == ["", summary]
