"""Which offsets of a range are lost, by the bounds of the log, and how that is reported."""

from __future__ import annotations

import logging

import pytest

from spark_groupsource.errors import DataLossError
from spark_groupsource.fetch.contract import FetchRange
from spark_groupsource.fetch.lost_ranges import LogBounds, lost_ranges, remaining, report


@pytest.mark.parametrize(
    ("bounds", "lost", "left"),
    [
        (LogBounds(0, 100), [], (10, 20)),
        (LogBounds(10, 20), [], (10, 20)),
        (LogBounds(12, 100), [(10, 12)], (12, 20)),
        (LogBounds(20, 100), [(10, 20)], (20, 20)),
        (LogBounds(50, 100), [(10, 20)], (20, 20)),
        (LogBounds(0, 15), [(15, 20)], (10, 15)),
        (LogBounds(0, 10), [(10, 20)], (20, 20)),
        (LogBounds(0, 0), [(10, 20)], (20, 20)),
        (LogBounds(12, 15), [(10, 12), (15, 20)], (12, 15)),
        (LogBounds(15, 15), [(10, 15), (15, 20)], (20, 20)),
        (None, [(10, 20)], (20, 20)),
    ],
)
def test_what_is_lost_and_what_is_left(bounds: LogBounds | None, lost: list[tuple[int, int]], left: tuple[int, int]) -> None:
    found = lost_ranges(10, 20, bounds)

    assert [(loss.start, loss.end) for loss in found] == lost
    assert remaining(found, 10, 20) == left


def test_a_loss_is_an_error_or_a_warning_that_names_the_offsets_and_nothing_is_neither(caplog: pytest.LogCaptureFixture) -> None:
    what, found = FetchRange("orders", 3, 10, 20), lost_ranges(10, 20, LogBounds(12, 15))
    with pytest.raises(DataLossError, match=r"orders-3 are lost: offsets \[10, 12\): the log starts at 12 .*; \[15, 20\): "):
        report(what, found, fail=True)
    with caplog.at_level(logging.WARNING):
        report(what, [], fail=True)
        assert not caplog.text
        report(what, found, fail=False)
    assert "offsets [10, 12): the log starts at 12" in caplog.text
