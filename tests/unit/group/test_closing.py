"""Which report that a plan is durable is believed, and until when its claims are to be closed."""

from __future__ import annotations

import pytest

from spark_groupsource.group.closing import Report, believed
from spark_groupsource.handoff.rules import Stream

CLAIMED = Stream("me", logged=4, durable=3)


@pytest.mark.parametrize(
    ("report", "claimed", "expected"),
    [
        (("me", 4), 4, True),
        (("me", 5), 4, False),
        (("me", 3), 4, False),
        (("them", 4), 4, False),
        (("me", 4), None, False),
        (None, 4, False),
        (("me", 3), 3, False),
    ],
    ids=["newest claim", "next plan", "plan before", "another stream", "still being claimed", "no report", "already known"],
)
def test_only_a_report_of_this_streams_newest_claimed_plan_is_believed(
    report: Report | None, claimed: int | None, expected: bool
) -> None:
    assert believed(report, CLAIMED, claimed) is expected
