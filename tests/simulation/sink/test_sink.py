"""Random histories of the sink: tries that overlap, processes that die, answers that are lost, transactions that time out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain

import pytest

from tests.simulation.sink.faults import FAULTS, Fault
from tests.simulation.sink.world import every_trouble, run, simulated

HISTORIES = int(os.environ.get("HANDOFF_HISTORIES", "900")) // 3
"""How many each test draws."""
AT_A_TIME = 1_000
NIGHTLY = HISTORIES >= 33_333
SEEDS = 1500
in_parts = pytest.mark.parametrize("first", range(0, HISTORIES, AT_A_TIME))
"""Several processes share them."""


def seeds(first: int) -> range:
    """Return the seeds of one part."""
    return range(first, min(first + AT_A_TIME, HISTORIES))


@pytest.fixture(autouse=True)
def _simulated() -> Iterator[None]:
    with simulated():
        yield


@in_parts
def test_every_row_is_there_once(first: int) -> None:
    for seed in seeds(first):
        assert run(seed) is None


@in_parts
def test_every_row_is_there_once_where_nearly_everything_goes_wrong(first: int) -> None:
    for seed in seeds(first):
        assert run(seed, trouble=0.3, tasks=1, batches=2) is None


@in_parts
def test_every_row_is_there_once_where_rows_name_their_topics(first: int) -> None:
    for seed in seeds(first):
        assert run(seed, trouble=0.15, name_topics=True) is None


@in_parts
def test_nothing_is_doubled_after_the_tokens_have_expired(first: int) -> None:
    for seed in seeds(first):
        assert run(seed, trouble=0.15, expiry=True) is None


@in_parts
def test_rows_that_a_replay_has_in_other_tasks_are_not_doubled_without_an_error(first: int) -> None:
    for seed in seeds(first):
        assert run(seed, trouble=0.15, batches=2, uneven=True) is None


@in_parts
def test_rows_that_a_replay_has_in_fewer_tasks_are_not_doubled_without_an_error(first: int) -> None:
    for seed in seeds(first):
        assert run(seed, trouble=0.15, tasks=3, batches=2, fewer=True) is None


def test_exhaustive_every_single_trouble_at_every_step() -> None:
    found = list(every_trouble(1))
    assert [one for one in found if one is not None] == []
    assert len(found) > 100


def test_exhaustive_every_two_troubles_of_one_task() -> None:
    found = list(every_trouble(2, steps=30 if NIGHTLY else 10, tasks=1, batches=1, rows=1))
    assert [one for one in found if one is not None] == []
    assert len(found) > 1000


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_simulation_notices(fault: Fault) -> None:
    with fault.seeded():
        seeds = chain(range(fault.seed, SEEDS), range(fault.seed))
        assert any(run(seed, trouble=0.15, **fault.setting) for seed in seeds)
