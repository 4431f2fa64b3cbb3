"""Each of these mistakes would lose, duplicate or delay records. The simulation detects every one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from tests.simulation.counterexamples import (
    LOST_COMMIT,
    LOST_COMMIT_OF_AN_EARLIER_OWNER,
    OWED_BY_THE_NEXT_VERSION,
    OWING_ITSELF,
    PARTLY_ACCEPTED,
    RESTORED_CHECKPOINT,
)
from tests.simulation.faults import ACCEPTED_IN_PART, FAULTS, UNLIKELY_FAULTS, Fault
from tests.simulation.history import explore, finish, run
from tests.simulation.setting import Setting
from tests.simulation.world import Action, World

SEEDS = 3000
ONE_PARTITION = Setting(streams=2, partitions=1, records=0)
ONE_STREAM = Setting(streams=1, partitions=1, records=2)
TWO_STREAMS = Setting(streams=2, partitions=1, records=1)
STOPS_A_DRIVER = (
    OWING_ITSELF,
    RESTORED_CHECKPOINT,
    LOST_COMMIT,
    LOST_COMMIT_OF_AN_EARLIER_OWNER,
    OWED_BY_THE_NEXT_VERSION,
)
"""It learns that its checkpoint is behind the group, or of a record that only the next version can read."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_simulation_notices(fault: Fault) -> None:
    with fault.seeded():
        seeds = chain(range(fault.seed, max(SEEDS, fault.seed + 1)), range(fault.seed))
        failures = (run(seed, fault.world, fault.setting, reports=fault.reports) for seed in seeds)
        assert any(failure and (not fault.shown_as or failure.violation.name in fault.shown_as) for failure in failures)


@pytest.mark.parametrize("fault", UNLIKELY_FAULTS, ids=lambda fault: fault.name)
def test_an_unlikely_history_ends_well_and_the_simulation_notices_the_mistake_in_it(fault: Fault) -> None:
    setting = fault.setting or ONE_PARTITION
    healthy = ("", ["A.2"] if fault.history in STOPS_A_DRIVER else [])
    assert _outcome(fault.history, World, setting) == healthy
    with fault.seeded():
        mistaken = _outcome(fault.history, fault.world, setting)
    assert mistaken != healthy
    assert not fault.shown_as or mistaken[0] in fault.shown_as


@pytest.mark.parametrize(
    ("name", "setting", "trouble"),
    [
        ("no ownership check at claim", TWO_STREAMS, {"move": 1, "let go": 1, "ask": 1}),
        ("no adoption", TWO_STREAMS, {"move": 1, "let go": 1, "ask": 1}),
        ("confirmation before durable", TWO_STREAMS, {"move": 1, "let go": 1, "ask": 1}),
        ("a report before the commit log", ONE_STREAM, {"report": 1, "noise": 1}),
        ("a report is believed that came before the claims", ONE_STREAM, {"report": 1, "noise": 1}),
        ("a report closes nothing", ONE_STREAM, {"report": 1, "noise": 1}),
    ],
)
def test_the_exhaustive_search_notices(name: str, setting: Setting, trouble: Mapping[str, int]) -> None:
    [fault] = [fault for fault in FAULTS if fault.name == name]
    with fault.seeded():
        assert explore(setting, trouble, fault.world, limit=1) is not None


def test_claims_that_were_accepted_in_part_are_made_again_by_a_coordinator_that_then_refuses_all() -> None:
    assert _outcome(PARTLY_ACCEPTED, setting=replace(ACCEPTED_IN_PART, fencing="whole")) == ("", [])


def test_the_page_has_the_number_of_seeded_mistakes() -> None:
    page = (Path(__file__).parents[2] / "docs" / "handoff.md").read_text(encoding="utf-8")
    assert f"**{len(FAULTS) + len(UNLIKELY_FAULTS)} mistakes**" in page


def _outcome(
    history: Sequence[Action], world_type: type[World] = World, setting: Setting = ONE_PARTITION
) -> tuple[str, list[str]]:
    """Return what was violated, and which drivers have failed because of their checkpoint or version."""
    records = sum(action[0] == "append" for action in history)
    world = world_type(replace(setting, records=records, second_drivers=True))
    violation = finish(world, history)
    return "" if violation is None else violation.name, world.refused
