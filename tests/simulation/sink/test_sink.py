"""Random histories of the sink, with overlapping attempts, crashed processes, lost responses, and transactions that time out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import pytest

from tests.simulation.sink.faults import FAULTS, KEPT, Fault
from tests.simulation.sink.world import every_trouble, renamed_and_back, run, simulated

HISTORIES = int(os.environ.get("HANDOFF_HISTORIES", "150")) // 3
"""How many are drawn of each setting."""
AT_A_TIME = 1_000
NIGHTLY = HISTORIES >= 33_333
SEEDS = 1500


@pytest.fixture(autouse=True)
def _simulated() -> Iterator[None]:
    with simulated():
        yield


@pytest.mark.parametrize("first", range(0, HISTORIES, AT_A_TIME))  # several processes share them
@pytest.mark.parametrize(
    "setting",
    [
        pytest.param({}, id="as a rule"),
        pytest.param({"trouble": 0.3, "tasks": 1, "batches": 2}, id="where nearly everything goes wrong"),
        pytest.param({"trouble": 0.15, "name_topics": True, "cancels": True}, id="where rows name their topics"),
        pytest.param({"trouble": 0.15, "expiry": True, "steps": 300}, id="after the tokens have expired, or an error"),
        pytest.param({"trouble": 0.15, "batches": 2, "uneven": True}, id="where a replay has rows in other tasks, or an error"),
        pytest.param(
            {"trouble": 0.15, "tasks": 3, "batches": 2, "fewer": True, "cancels": True},
            id="where it has fewer tasks, or an error",
        ),
        pytest.param({"trouble": 0.2, "cancels": True}, id="of tasks that are cancelled"),
        pytest.param({"queries": 2, "cancels": True, "trouble": 0.1, "batches": 2}, id="of two queries that share a prefix"),
        pytest.param(
            {"trouble": 0.12, "renames": True, "cancels": True, "steps": 500, "batches": 4},
            id="where prefix and topic are changed, or an error",
        ),
        pytest.param({"trouble": 0.15, "restores": True, "batches": 4, "tasks": 1}, id="of checkpoints that are restored"),
        pytest.param({**KEPT, "cancels": True, "queries": 2}, id="of workers that keep their producers"),
        pytest.param({**KEPT, "cancels": True, "remembers": False}, id="of workers that keep them and remember few rows"),
        pytest.param({**KEPT, "expiry": True}, id="of workers that keep them for longer than tokens and ids live"),
        pytest.param({"trouble": 0.1, "recreates": True}, id="into a topic that is deleted and created again"),
    ],
)
def test_every_row_is_there_once(first: int, setting: Mapping[str, Any]) -> None:
    for seed in range(first, min(first + AT_A_TIME, HISTORIES)):
        assert run(seed, **setting) is None


def test_a_name_that_is_changed_back_hides_nothing() -> None:
    assert [found for seed in range(20) if (found := renamed_and_back(seed)) is not None] == []


def test_exhaustive_every_single_trouble_at_every_step() -> None:
    found = list(every_trouble(1))
    assert [one for one in found if one is not None] == []
    assert len(found) > 100


def test_exhaustive_every_two_troubles_of_one_task() -> None:
    found = list(every_trouble(2, steps=30 if NIGHTLY else 7, tasks=1, batches=1, rows=1))
    assert [one for one in found if one is not None] == []
    assert len(found) > 500


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_simulation_notices(fault: Fault) -> None:
    setting = {"trouble": 0.15, **fault.setting} if fault.history is run else {}

    def shows(seed: int) -> bool:
        with fault.seeded():
            found = fault.history(seed, **setting)
        return found is not None and fault.history(seed, **setting) is None

    assert any(map(shows, chain(range(fault.seed, SEEDS), range(fault.seed))))
