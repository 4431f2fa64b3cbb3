"""`make pages`: writes the documentation's tables that are generated from the code.

These are the rows of docs/options.md, the tables in docs/metrics.md and docs/broker-codes.md (with the lists of errors with which
a query fails immediately), and the table of the sink's options in docs/sink.md.

Rows for settings of the Kafka client, such as `kafka.group.id`, are written by hand. An option without a row gets one at the end
of its section's table; other rows keep their order.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from textwrap import fill

from spark_groupsource.metrics.definitions import METRICS
from spark_groupsource.options.model import DESCRIBED
from spark_groupsource.options.sink_model import DESCRIBED_OF_SINK
from tools.handling import AT_ONCE, ENDS, Case, cases_of_queries, cases_of_tasks

DOCS = Path(__file__).parents[1] / "docs"
OPTIONS = DOCS / "options.md"
METRICS_PAGE = DOCS / "metrics.md"
BROKER_CODES = DOCS / "broker-codes.md"
SINK = DOCS / "sink.md"

TROUBLE_HEAD = "| what a broker or librdkafka reports | the query | for how long | then |\n|---|---|---|---|\n"
TASKS_HEAD = TROUBLE_HEAD.replace("the query", "the sink task")
AT_ONCE_HEAD = "These make a query fail immediately:\n\n"
TASKS_AT_ONCE_HEAD = AT_ONCE_HEAD.replace("a query", "a sink task")
SINK_HEAD = "| option | default | meaning |\n|---|---|---|\n"
METRICS_HEAD = "| metric | kind | labels | meaning |\n|---|---|---|---|\n"

_ROW = re.compile(r"\| `([^`]+)` \| ")


def main() -> int:
    """Write the pages; return the exit status."""
    OPTIONS.write_text(with_rows(OPTIONS.read_text(encoding="utf-8")), encoding="utf-8")
    METRICS_PAGE.write_text(with_metrics(METRICS_PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    BROKER_CODES.write_text(with_trouble(BROKER_CODES.read_text(encoding="utf-8")), encoding="utf-8")
    SINK.write_text(with_options_of_sink(SINK.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


def with_options_of_sink(page: str) -> str:
    """Return the page with the table of the sink's options."""
    rows = (f"| `{name}` | {about.default} | {about.meaning} |\n" for name, about in DESCRIBED_OF_SINK.items())
    return _with_table(page, SINK_HEAD, rows)


def with_metrics(page: str) -> str:
    """Return the page with the table of all metrics."""
    rows = (f"| `{one.name}` | {one.kind.value} | {', '.join(one.labels)} | {one.meaning} |\n" for one in METRICS)
    return _with_table(page, METRICS_HEAD, rows)


def with_trouble(page: str) -> str:
    """Return the page with the tables and lists of broker errors."""
    for head, list_head, found in (
        (TROUBLE_HEAD, AT_ONCE_HEAD, list(cases_of_queries())),
        (TASKS_HEAD, TASKS_AT_ONCE_HEAD, list(cases_of_tasks())),
    ):
        page = _with_table(page, head, (_row_of_trouble(case) for case in found if not _ends_at_once(case)))
        page = _with_lines(page, list_head, "- ", (_item_of_trouble(case) for case in found if _ends_at_once(case)))
    return page


def _ends_at_once(case: Case) -> bool:
    return (case.done.doing, case.done.for_how_long) == (ENDS, AT_ONCE)


def _item_of_trouble(case: Case) -> str:
    item = f"- [`{case.error}`](errors.md#{case.error.lower()}): {case.said}"
    return fill(item, 100, subsequent_indent="  ", break_on_hyphens=False) + "\n"


def _row_of_trouble(case: Case) -> str:
    option = f" (`{case.done.option}`)" if case.done.option else ""
    how = f"{case.done.doing} | {case.done.for_how_long}{option}"
    return f"| {case.said} | {how} | [`{case.error}`](errors.md#{case.error.lower()}) |\n"


def _with_table(page: str, head: str, rows: Iterable[str]) -> str:
    return _with_lines(page, head, "|", rows)


def _with_lines(page: str, head: str, begin: str, lines: Iterable[str]) -> str:
    """Return the page with these lines below a head. They replace the lines there that begin with `begin` or are indented."""
    before, _, rest = page.partition(head)
    return before + head + "".join(lines) + re.sub(rf"\A(({re.escape(begin)}|  ).*\n)*", "", rest)


def with_rows(page: str) -> str:
    """Return the page with a row for each option."""
    lines: list[str] = []
    section, last_row = "", {}
    for line in page.splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        option = match[1] if (match := _ROW.match(line)) else None
        if option is None or option in DESCRIBED or option.startswith("kafka."):
            lines.append(line if option is None or option not in DESCRIBED else _row(option))
        if line.startswith("|"):
            last_row[section] = lines[-1]
    there = {match[1] for line in lines if (match := _ROW.match(line))}
    for option in (name for name in DESCRIBED if name not in there):
        after = lines.index(last_row[DESCRIBED[option].section]) + 1
        lines.insert(after, _row(option))
        last_row[DESCRIBED[option].section] = _row(option)
    return "\n".join(lines) + "\n"


def _row(option: str) -> str:
    about = DESCRIBED[option]
    return f"| `{option}` | {about.default} | {about.use} | {about.meaning} |"


if __name__ == "__main__":
    sys.exit(main())
