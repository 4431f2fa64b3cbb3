"""A range of offsets to read."""

from __future__ import annotations

import pickle

import pytest

from spark_groupsource.fetch.contract import FetchRange


def test_it_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(FetchRange("t", 0, 1, 2))) == FetchRange("t", 0, 1, 2)  # noqa: S301


@pytest.mark.parametrize(("start", "end"), [(5, 4), (-1, 4)])
def test_what_is_no_range_is_refused(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="not a range"):
        FetchRange("t", 0, start, end)
