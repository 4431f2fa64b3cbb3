"""The check of a query that reads: its steps, without joining the group.

Each request waits about ten seconds at most. Nothing is written, and the group's members are not disturbed: a request to join
would start a rebalance. So what the members would accept is read from the coordinator's description.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from spark_groupsource.cli.check.checkpoint import read_checkpoint
from spark_groupsource.cli.check.claims import list_claims, read_formats
from spark_groupsource.cli.check.connection import find_unreadable_files, reach_brokers
from spark_groupsource.cli.check.findings import Finding, Step, error, ok, take
from spark_groupsource.cli.check.group import compare_assignors, compare_instance_ids, count_members, describe_group
from spark_groupsource.cli.check.known import Source
from spark_groupsource.cli.check.protocol import ask_for_protocol
from spark_groupsource.cli.check.records import fetch_records, find_open_transactions, name_reader
from spark_groupsource.cli.check.settings import compare_settings
from spark_groupsource.cli.check.start import find_start
from spark_groupsource.cli.check.topics import describe_topics
from spark_groupsource.errors import OptionError
from spark_groupsource.options.model import Options
from spark_groupsource.options.properties_file import read_properties

STEPS: tuple[Step[Source], ...] = (
    Step(find_unreadable_files, needed=True),
    Step(reach_brokers, needed=True),
    Step(describe_topics),
    Step(describe_group, needed=True),
    Step(ask_for_protocol),
    Step(compare_assignors),
    Step(compare_instance_ids),
    Step(count_members),
    Step(compare_settings),
    Step(name_reader),
    Step(read_checkpoint),
    Step(find_start),
    Step(fetch_records),
    Step(find_open_transactions),
    Step(read_formats),
    Step(list_claims),
)
"""The steps after the options are read, in the order of docs/command-line.md."""


def check_source(path: Path) -> Iterator[Finding]:
    """Yield each finding on a file with a source's options."""
    try:
        options = Options.parse(read_properties(path), "stream")
    except OptionError as wrong:
        yield from (error("options", problem) for problem in wrong.problems)
        return
    yield ok("options", f"{path}: all options are known and fit together")
    yield from take(STEPS, Source(options))
