"""Partitions, ranges of offsets, and how messages name many of them."""

from __future__ import annotations

from spark_groupsource.partition import listed


def test_long_lists_are_cut() -> None:
    assert listed(range(5)) == "0, 1, 2, 3, 4"
    assert listed(range(8)) == "0, 1, 2, 3, 4 and 3 more"
