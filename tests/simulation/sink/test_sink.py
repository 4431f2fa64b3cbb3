"""Random histories of the sink: tries that overlap, processes that die, answers that are lost, transactions that time out."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from unittest.mock import patch

import pytest

from spark_groupsource.sink import finishing
from spark_groupsource.sink.token import Token
from tests.simulation.sink.faults import FAULTS, Fault
from tests.simulation.sink.processes import FakeTokens
from tests.simulation.sink.world import every_trouble, run, simulated

HISTORIES = int(os.environ.get("HANDOFF_HISTORIES", "1500")) // 3
"""How many each test draws."""
AT_A_TIME = 1_000
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
    found = list(every_trouble(2, steps=30, tasks=1, batches=1, rows=1))
    assert [one for one in found if one is not None] == []
    assert len(found) > 1000


def test_the_simulation_notices_that_brokers_pass_over_an_open_transaction_on_a_new_topic() -> None:
    of_task = FakeTokens.of_task

    def of_all_topics(tokens: FakeTokens, task: int, topics: Collection[str] = ()) -> Token | None:
        return of_task(tokens, task)

    with patch.object(FakeTokens, "of_task", of_all_topics):
        assert any(run(seed, trouble=0.15, name_topics=True) for seed in range(1500))


def test_the_simulation_notices_that_nobody_asks_for_tasks_without_rows() -> None:
    with patch.object(finishing, "check_batch", lambda *_: None):
        assert any(run(seed, trouble=0.15, batches=2, uneven=True) for seed in range(1500))


def test_the_simulation_notices_that_nobody_asks_for_tasks_behind_one_that_has_not_written() -> None:
    everything = FakeTokens.of_tasks_from

    def up_to_the_first_gap(tokens: FakeTokens, first: int, topics: Collection[str]) -> dict[int, Token]:
        found = everything(tokens, first, topics)
        return {number: token for number, token in found.items() if all(one in found for one in range(first, number))}

    with patch.object(FakeTokens, "of_tasks_from", up_to_the_first_gap):
        assert any(run(seed, trouble=0.15, tasks=3, batches=2, fewer=True) for seed in range(1500))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_simulation_notices(fault: Fault) -> None:
    with fault.seeded():
        assert any(run(seed, trouble=0.15, expiry=True) for seed in range(1500))
