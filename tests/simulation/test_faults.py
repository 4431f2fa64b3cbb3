"""Each of these mistakes would lose, double or hold up records. The simulation notices every one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.simulation.counterexamples import (
    CAME_BACK,
    DRAINING_FOR_EACH_OTHER,
    LATE_CLOSE,
    LATE_CONFIRMATION,
    OWED_BY_THE_NEXT_VERSION,
    OWED_TO_ONESELF,
    OWING_ITSELF,
    PARTLY_ACCEPTED,
    RESTORED_CHECKPOINT,
    TWO_DRIVERS,
)
from tests.simulation.faults import ACCEPTED_IN_PART, FAULTS, UNLIKELY_FAULTS, Fault
from tests.simulation.history import explore, finish, quiet, run
from tests.simulation.setting import Setting
from tests.simulation.world import Action, World

SEEDS = range(3000)
ONE_PARTITION = Setting(streams=2, partitions=1, records=0)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_simulation_notices(fault: Fault) -> None:
    with fault.seeded():
        failures = (run(seed, fault.world, fault.setting, reports=fault.reports) for seed in SEEDS)
        assert any(failure and (not fault.shown_as or failure.violation.name in fault.shown_as) for failure in failures)


@pytest.mark.parametrize(("fault", "history"), UNLIKELY_FAULTS, ids=[fault.name for fault, _ in UNLIKELY_FAULTS])
def test_the_simulation_notices_in_an_unlikely_history(fault: Fault, history: Sequence[Action]) -> None:
    setting = fault.setting or ONE_PARTITION
    healthy = _outcome(history, World, setting)
    with fault.seeded():
        mistaken = _outcome(history, fault.world, setting)
    assert mistaken != healthy
    assert not fault.shown_as or mistaken[0] in fault.shown_as


@pytest.mark.parametrize("name", ["no ownership check at claim", "no adoption", "confirmation before durable"])
def test_the_exhaustive_search_notices(name: str) -> None:
    [fault] = [fault for fault in FAULTS if fault.name == name]
    with fault.seeded():
        explored = explore(Setting(streams=2, partitions=1, records=1), {"move": 1, "let go": 1, "ask": 1}, fault.world)
    assert explored.failure is not None


@pytest.mark.parametrize(
    "name", ["a report before the commit log", "a report is believed that came before the claims", "a report closes nothing"]
)
def test_the_exhaustive_search_notices_with_reports(name: str) -> None:
    [fault] = [fault for fault in FAULTS if fault.name == name]
    with fault.seeded():
        explored = explore(Setting(streams=1, partitions=1, records=2), {"report": 1, "noise": 1}, fault.world, limit=1)
    assert explored.failure is not None


def test_a_range_left_out_of_a_plan_is_read_in_a_later_plan_by_whoever_has_the_partition() -> None:
    assert _outcome(TWO_DRIVERS) == ("", [])


def test_a_driver_that_learns_of_a_newer_plan_of_its_own_stream_stops() -> None:
    assert _outcome(OWING_ITSELF) == ("", ["A.2"])


def test_a_restored_checkpoint_is_refused() -> None:
    assert _outcome(RESTORED_CHECKPOINT) == ("", ["A.2"])


def test_a_late_confirmation_does_not_take_a_later_claim_back() -> None:
    assert _outcome(LATE_CONFIRMATION) == ("", [])


def test_a_late_close_does_not_take_a_later_claim_back() -> None:
    assert _outcome(LATE_CLOSE) == ("", [])


def test_a_report_closes_the_record_that_a_partition_came_back_with() -> None:
    assert _outcome(CAME_BACK) == ("", [])


def test_a_range_that_went_away_and_came_back_is_settled_without_new_records() -> None:
    assert _outcome(OWED_TO_ONESELF) == ("", [])


def test_claims_that_were_accepted_in_part_are_made_again() -> None:
    assert _outcome(PARTLY_ACCEPTED, setting=ACCEPTED_IN_PART) == ("", [])
    assert _outcome(PARTLY_ACCEPTED, setting=replace(ACCEPTED_IN_PART, fencing="whole")) == ("", [])


def test_members_that_drain_for_each_other_release_what_they_drain() -> None:
    [fault] = [fault for fault, _ in UNLIKELY_FAULTS if fault.name == "two members drain for each other"]
    assert fault.setting is not None
    assert _outcome(DRAINING_FOR_EACH_OTHER, setting=fault.setting) == ("", [])


def test_a_driver_that_is_owed_a_range_in_a_record_of_the_next_version_stops_until_it_is_upgraded() -> None:
    assert _outcome(OWED_BY_THE_NEXT_VERSION, setting=replace(ONE_PARTITION, upgrades=True)) == ("", ["A.2"])


def test_the_page_has_the_number_of_seeded_mistakes() -> None:
    page = (Path(__file__).parents[2] / "docs" / "handoff.md").read_text(encoding="utf-8")
    assert f"**{len(FAULTS) + len(UNLIKELY_FAULTS)} mistakes**" in page


def _outcome(
    history: Sequence[Action], world_type: type[World] = World, setting: Setting = ONE_PARTITION
) -> tuple[str, list[str]]:
    """What was violated, and which drivers have stopped because of their checkpoint or their version."""
    records = sum(action[0] == "append" for action in history)
    world = world_type(replace(setting, records=records, second_drivers=True))
    violation = finish(world, history)
    return "" if violation is None else violation.name, world.refused
