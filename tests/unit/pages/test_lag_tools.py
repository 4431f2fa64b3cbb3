"""docs/sink.md: the settings with which lag tools leave out the sink's groups, and nobody else's."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_groupsource.sink.names import DEFAULT_PREFIX, REACHES, Names

PAGE = (Path(__file__).parents[3] / "docs" / "sink.md").read_text(encoding="utf-8")
QUERY = "5e0bd5ce-5a4a-4d49-a9e1-f1d5a8f9a1d5"
READERS = ("billing", "groupkafka", "groupkafka-billing", "billing-groupkafka", f"spark-kafka-source-{QUERY}-1-driver-0")

HOW: dict[str, Callable[[str, str], object]] = {
    "kafka_exporter": re.search,
    "Strimzi": re.search,
    "Burrow": re.search,
    "kminion": re.search,
    "kafka-lag-exporter": re.fullmatch,
    "Prometheus": re.fullmatch,
    "kafka-consumer-groups.sh": re.search,
}
"""Whether a tool looks for its pattern in a group's name, or takes it for the whole name: from the tools' own sources."""


def pattern_of(tool: str) -> str:
    """Return the pattern in the tool's line of the table."""
    (line,) = (line for line in PAGE.splitlines() if line.startswith("| ") and "{36}" in line and tool in line.split(" | ")[0])
    (setting,) = re.findall(r"`([^`]+)` \|$", line)
    pattern: str
    (pattern,) = re.findall(r"""["'](/?\^?groupkafka[^"']+)["']""", setting)
    if tool == "kminion":  # it takes what is between slashes for a pattern, and anything else for a name
        assert pattern.startswith("/")
        assert pattern.endswith("/")
        pattern = pattern[1:-1]
    return pattern


def groups(prefix: str) -> list[str]:
    made = (Names.of(prefix, QUERY, topic) for topic in ("invoices", None))
    return [group for names in made for group in (names.driver, names.task(63), names.open(0), names.reach(REACHES[0]))]


def test_the_table_has_a_line_for_each_of_these_tools() -> None:
    assert len([line for line in PAGE.splitlines() if line.startswith("| ") and "{36}" in line]) == len(HOW)


@pytest.mark.parametrize("tool", HOW)
def test_a_tool_leaves_out_the_groups_of_the_sink_and_no_others(tool: str) -> None:
    pattern = pattern_of(tool)
    assert [group for group in groups(DEFAULT_PREFIX) if not HOW[tool](pattern, group)] == []
    assert [group for group in READERS if HOW[tool](pattern, group)] == []
    own = pattern.replace(DEFAULT_PREFIX, "own")
    assert [group for group in groups("own") if not HOW[tool](own, group)] == []
