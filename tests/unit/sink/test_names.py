"""Which names are those of a group of the sink, and whose."""

from __future__ import annotations

import pytest

from spark_groupsource.sink.names import REACHES, Names, open_group, reach_group, token_group

QUERY = "5e0bd5ce-5a4a-4d49-a9e1-f1d5a8f9a1d5"


@pytest.mark.parametrize("prefix", ["groupkafka", "a-b", "x-open", f"again-{QUERY}-3-open", "\x1b[2J", "1"])
def test_each_name_of_a_query_is_read_back_and_taken_for_no_other_kind(prefix: str) -> None:
    names = Names(prefix, QUERY)
    for task in (0, 7, 999_999):
        assert open_group(names.open(task)) == (names, task)
        assert token_group(names.open(task)) is None
        assert reach_group(names.open(task)) is None
        assert open_group(names.task(task)) is None
    for end in REACHES:
        assert reach_group(names.reach(end)) == (names, end)
        assert open_group(names.reach(end)) is None
    assert open_group(names.driver) is None


@pytest.mark.parametrize(
    "group",
    [
        "",
        "-open",
        "billing-open",
        f"{QUERY}-0-open",
        f"q-{QUERY}-open",
        f"q-{QUERY}-00-open",
        f"q-{QUERY}-1000000-open",
        f"q-{QUERY}-0-open-open",
        f"q-{QUERY}-0-OPEN",
        f"q-{QUERY.upper()}-0-open",
        f"q-{QUERY}-reach-{REACHES[0]}-open",
        f"q-{QUERY}-reach-{REACHES[0] + 1}",
        f"q-{QUERY}-0-reach-{REACHES[0]}",
        f"q-{QUERY}-reach-",
    ],
)
def test_other_names_are_of_no_mark(group: str) -> None:
    assert open_group(group) is None
    assert reach_group(group) is None
