"""Which names are those of a group of the sink, and whose."""

from __future__ import annotations

import pytest

from spark_groupsource.sink.names import REACHES, Names, is_query, open_group, reach_group, reaches_of, token_group

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


@pytest.mark.parametrize("prefix", ["groupkafka", "a-b", f"x-{QUERY}", "billing-7"])
def test_names_say_whose_token_a_group_holds(prefix: str) -> None:
    for topic in (None, "invoices"):
        names = Names.of(prefix, QUERY, topic)
        assert token_group(names.driver) == (names, None)
        assert token_group(names.task(12)) == (names, 12)
        assert token_group(names.open(12)) is None
        assert token_group(names.reach(128)) is None


@pytest.mark.parametrize("group", ["", QUERY, f"-{QUERY}", f"q-{QUERY}-007", f"q-{QUERY}-x", "q-3", f"q-{QUERY[:-1]}"])
def test_other_names_are_of_no_token(group: str) -> None:
    assert token_group(group) is None


def test_names_of_reaches_cover_every_task_without_a_gap() -> None:
    assert reaches_of(3) == ()
    assert reaches_of(4) == reaches_of(7) == (8,)
    assert reaches_of(8) == (8, 16)
    for number in (4, 127, 128, 200, 1023, 1024, 999_999):
        *below, last = reaches_of(number)
        assert number < last <= 2 * number
        assert below == list(REACHES[: len(below)])


def test_a_query_is_known_by_its_id() -> None:
    assert is_query(QUERY)
    assert not is_query(QUERY + "0")
    assert not is_query("../" + QUERY)
