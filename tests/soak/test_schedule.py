"""What happens when: for every length of run, and every seed."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.soak.schedule import LONG_LIVED, NODES, STRUCK, Kind, Plan

LENGTHS_S = [60.0, 300.0, 1200.0, 5400.0, 86400.0]


@pytest.mark.parametrize("run_s", LENGTHS_S)
@pytest.mark.parametrize("seed", range(20))
def test_nothing_happens_to_the_long_lived_query_or_at_the_very_end(run_s: float, seed: int) -> None:
    plan = Plan(run_s, seed)
    happens = plan.disturbances()
    assert LONG_LIVED not in {one.target for one in happens}
    assert {one.target for one in happens} <= {*STRUCK, *map(str, NODES), "topic"}
    assert all(0 < one.at <= run_s - plan.every_s for one in happens)
    assert [one.at for one in happens] == sorted(one.at for one in happens)


@pytest.mark.parametrize("run_s", LENGTHS_S)
@pytest.mark.parametrize("seed", range(20))
def test_a_query_that_is_taken_away_comes_back_long_before_its_records_expire(run_s: float, seed: int) -> None:
    plan = Plan(run_s, seed)
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


def test_a_run_of_twenty_minutes_has_every_kind() -> None:
    assert {one.kind for one in Plan(1200, 7).disturbances()} == set(Kind)


def test_strikes_leave_each_other_time_and_the_topic_grows_in_the_first_half() -> None:
    plan = Plan(5400, 7)
    strikes = [one.at for one in plan.disturbances() if one.kind is not Kind.GROW]
    assert all(later - earlier >= plan.every_s * 0.999 for earlier, later in pairwise(strikes))
    assert all(one.at < plan.half_s for one in plan.disturbances() if one.kind is Kind.GROW)


def test_a_seed_repeats_a_run() -> None:
    assert Plan(1200, 7).disturbances() == Plan(1200, 7).disturbances()
    assert Plan(1200, 7).disturbances() != Plan(1200, 8).disturbances()


@pytest.mark.parametrize(("run_s", "sample_s"), [(300.0, 2.0), (1200.0, 5.0), (86400.0, 60.0)])
def test_a_short_run_is_looked_at_more_often(run_s: float, sample_s: float) -> None:
    assert Plan(run_s, 1).sample_s == sample_s
