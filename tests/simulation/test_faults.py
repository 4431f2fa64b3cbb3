"""Each of these mistakes would lose, double or hold up records. The simulation notices every one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from spark_groupsource.handoff.owed_ranges import HOLD, OutstandingClaims
from tests.simulation.counterexamples import (
    CUT_RANGE,
    LATE_CONFIRMATION,
    OWED_TO_ONESELF,
    OWING_ITSELF,
    RESTORED_CHECKPOINT,
    TWO_DRIVERS,
)
from tests.simulation.faults import FAULTS, REREADING, UNLIKELY_FAULTS, Fault
from tests.simulation.history import explore, finish, quiet, run
from tests.simulation.world import Action, Setting, World

SEEDS = range(3000)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_simulation_notices(fault: Fault) -> None:
    with fault.seeded():
        assert any(run(seed, fault.world, fault.setting) for seed in SEEDS)


@pytest.mark.parametrize(("fault", "history"), UNLIKELY_FAULTS, ids=[fault.name for fault, _ in UNLIKELY_FAULTS])
def test_the_simulation_notices_in_an_unlikely_history(fault: Fault, history: Sequence[Action]) -> None:
    outstanding = fault.setting.outstanding if fault.setting else HOLD
    healthy = _outcome(history, World, outstanding)
    with fault.seeded():
        assert _outcome(history, fault.world, outstanding) != healthy


@pytest.mark.parametrize("name", ["no ownership check at claim", "no adoption", "confirmation before durable"])
def test_the_exhaustive_search_notices(name: str) -> None:
    [fault] = [fault for fault in FAULTS if fault.name == name]
    with fault.seeded():
        explored = explore(Setting(streams=2, partitions=1, records=1), {"move": 1, "let go": 1, "ask": 1}, fault.world)
    assert explored.failure is not None


def test_a_range_left_out_of_a_plan_is_read_in_a_later_plan_by_whoever_has_the_partition() -> None:
    assert _outcome(TWO_DRIVERS) == ("", [])


def test_a_driver_that_learns_of_a_newer_plan_of_its_own_stream_stops() -> None:
    assert _outcome(OWING_ITSELF) == ("", ["A.2"])


def test_a_restored_checkpoint_is_refused() -> None:
    assert _outcome(RESTORED_CHECKPOINT) == ("", ["A.2"])


def test_a_late_confirmation_does_not_take_a_later_claim_back() -> None:
    assert _outcome(LATE_CONFIRMATION) == ("", [])


def test_a_range_that_went_away_and_came_back_is_settled_without_new_records() -> None:
    assert _outcome(OWED_TO_ONESELF) == ("", [])


def test_the_rest_of_a_range_that_was_cut_is_read_by_the_stream_that_it_is_owed_to() -> None:
    assert _outcome(CUT_RANGE, outstanding=REREADING.outstanding) == ("", [])


def _outcome(
    history: Sequence[Action], world_type: type[World] = World, outstanding: OutstandingClaims = HOLD
) -> tuple[str, list[str]]:
    """What was violated, and which drivers have failed because their checkpoint is behind."""
    records = sum(action[0] == "append" for action in history)
    world = world_type(Setting(streams=2, partitions=1, records=records, second_drivers=True, outstanding=outstanding))
    violation = finish(world, history)
    return "" if violation is None else violation.name, world.refused
