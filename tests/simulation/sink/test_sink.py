"""Random histories of the sink: tries that overlap, processes that die, answers that are lost, transactions that time out."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.simulation.sink.faults import FAULTS, Fault
from tests.simulation.sink.world import run, simulated

HISTORIES = int(os.environ.get("HANDOFF_HISTORIES", "1500"))


@pytest.fixture(autouse=True)
def _simulated() -> Iterator[None]:
    with simulated():
        yield


def test_every_row_is_there_once() -> None:
    for seed in range(HISTORIES // 3):
        assert run(seed) is None


def test_every_row_is_there_once_where_nearly_everything_goes_wrong() -> None:
    for seed in range(HISTORIES // 3):
        assert run(seed, trouble=0.3, tasks=1, batches=2) is None


def test_nothing_is_doubled_after_the_tokens_have_expired() -> None:
    for seed in range(HISTORIES // 3):
        assert run(seed, trouble=0.15, expiry=True) is None


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_simulation_notices(fault: Fault) -> None:
    with fault.seeded():
        assert any(run(seed, trouble=0.15, expiry=True) for seed in range(1500))
