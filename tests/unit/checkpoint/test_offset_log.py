"""What a file of Spark's offset log says, and what is not an offset of this package."""

from __future__ import annotations

import json

import pytest

from spark_groupsource.checkpoint.offset_log import offsets_by_stream, plan_of, plans, source_lines
from spark_groupsource.errors import OffsetError

OFFSET = {"v": 1, "stream": "0123456789abcdef", "plan": 7, "group": "billing", "ranges": {}}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_each_source_has_a_line_in_either_format(end: str) -> None:
    assert source_lines(end.join(["v1", "{}", "-", "", " a "])) == {"0": "-", "1": "a"}
    assert source_lines(end.join(["v2", "{}", "first:-", "", "second.1:{a:b}"])) == {"first": "-", "second.1": "{a:b}"}
    assert source_lines(end.join(["v1", "{}"])) == {}


@pytest.mark.parametrize("text", ["", "v", "v3\n{}\na", "1\n{}\na", "v2\n{}\na:b\nno id", "v2\n{}\n:a"])
def test_another_format_is_refused(text: str) -> None:
    with pytest.raises(OffsetError, match="A newer version of Spark"):
        source_lines(text)


def test_the_plan_of_each_stream_is_found_among_other_offsets() -> None:
    other = {**OFFSET, "stream": "another", "plan": -1, "later": "a field"}
    lines = ["-", '{"orders":{"0":7}}', json.dumps(OFFSET), "[" * 100_000, json.dumps(OFFSET)[:-1], json.dumps(other)]
    assert plans(lines) == {"0123456789abcdef": 7, "another": -1}
    assert offsets_by_stream(lines) == {"0123456789abcdef": OFFSET, "another": other}


@pytest.mark.parametrize(
    "offset",
    [
        None,
        7,
        ["group", "ranges"],
        {name: value for name, value in OFFSET.items() if name != "group"},
        {name: value for name, value in OFFSET.items() if name != "ranges"},
        {name: value for name, value in OFFSET.items() if name != "stream"},
        {**OFFSET, "stream": 7},
        {**OFFSET, "stream": "a b"},
        {**OFFSET, "stream": ""},
        {**OFFSET, "stream": "../a"},
        {**OFFSET, "stream": "a\n"},
        {**OFFSET, "plan": True},
        {**OFFSET, "plan": 7.0},
        {**OFFSET, "plan": "7"},
    ],
    ids=str,
)
def test_what_is_not_exactly_an_offset_of_this_package_has_no_plan(offset: object) -> None:
    assert plan_of(offset) is None
    assert plan_of(OFFSET) == ("0123456789abcdef", 7)
