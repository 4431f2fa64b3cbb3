"""Which report that a plan is durable is believed, and until when its claims are to be closed."""

from __future__ import annotations

import pytest

from spark_groupsource.group.closing import Closing, Report, believed
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.partition import TopicPartition
from spark_groupsource.timeouts import RETRY_LATER_S

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


class TestClosing:
    @pytest.fixture
    def now(self) -> list[float]:
        return [0.0]

    @pytest.fixture
    def closing(self, now: list[float]) -> Closing:
        return Closing(clock=lambda: now[0])

    def test_is_due_from_the_report_on_until_it_has_succeeded(self, closing: Closing) -> None:
        closing.claimed(4)
        assert closing.believe(CLAIMED) == CLAIMED
        assert not closing.due
        closing.report("me", 4)
        assert closing.believe(CLAIMED) == Stream("me", logged=4, durable=4)
        assert closing.due
        partition = TopicPartition("deleted", 0)
        closing.succeeded(4, {partition})
        assert not closing.due
        assert (closing.closed, closing.unclosable) == (4, {partition})

    def test_ignores_a_report_that_came_before_all_claims_were_made(self, closing: Closing) -> None:
        closing.claimed(4)
        closing.claiming()
        closing.report("me", 4)
        assert closing.believe(CLAIMED) == CLAIMED
        closing.claimed(4)
        assert closing.believe(CLAIMED) == CLAIMED

    def test_is_tried_again_later_if_it_failed_and_that_passes(self, closing: Closing, now: list[float]) -> None:
        closing.claimed(4)
        closing.report("me", 4)
        closing.believe(CLAIMED)
        closing.failed(4, passing=True)
        assert not closing.due
        now[0] = RETRY_LATER_S
        assert closing.due
        assert closing.given_up == -1
        closing.failed(4, passing=False)
        now[0] = 100.0
        assert not closing.due, "the next commit closes it"
        assert (closing.closed, closing.given_up) == (-1, 4)

    def test_is_over_when_the_next_plan_is_claimed(self, closing: Closing) -> None:
        closing.claimed(4)
        closing.report("me", 4)
        closing.believe(CLAIMED)
        closing.claimed(5)
        assert not closing.due
