"""What happens when: for every length of run, and every seed."""

from __future__ import annotations

import pytest

from tests.soak.schedule import LONG_LIVED, NODES, STRUCK, Kind, Plan

LENGTHS_S = (60.0, 300.0, 1200.0, 5400.0, 86400.0)
EACH_PLAN = pytest.mark.parametrize("plan", [Plan(run_s, seed) for run_s in LENGTHS_S for seed in range(20)])


@EACH_PLAN
def test_nothing_happens_to_the_long_lived_query_or_at_the_very_end(plan: Plan) -> None:
    happens = plan.disturbances()
    assert LONG_LIVED not in {one.target for one in happens}
    assert {one.target for one in happens} <= {*STRUCK, *map(str, NODES), "topic"}
    assert all(0 < one.at <= plan.run_s - plan.every_s for one in happens)
    assert [one.at for one in happens] == sorted(one.at for one in happens)


@EACH_PLAN
def test_a_query_that_is_taken_away_comes_back_long_before_its_records_expire(plan: Plan) -> None:
    away: dict[str, float] = {}
    for one in plan.disturbances():
        if one.kind is Kind.TAKE_AWAY:
            assert not away, "one at a time"
            away[one.target] = one.at
        elif one.kind is Kind.ADD:
            assert one.at - away.pop(one.target) <= plan.retention_s / 2
        else:
            assert one.target not in away, "what is not there cannot be struck"
            assert one.away_s < plan.retention_s / 4
    assert not away


def test_a_seed_repeats_a_run() -> None:
    assert Plan(1200, 7).disturbances() == Plan(1200, 7).disturbances()
    assert Plan(1200, 7).disturbances() != Plan(1200, 8).disturbances()
