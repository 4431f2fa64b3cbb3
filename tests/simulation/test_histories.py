"""Checks the hand-off's promises against histories of crashes, pauses, rebalances and lost responses.

HANDOFF_HISTORIES=100000 runs that many random histories (150 if it is not set) and a larger exhaustive search. HANDOFF_FIRST_SEED
selects other histories. A failure prints its seed and the few steps that reproduce it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from unittest.mock import patch

import pytest

from spark_groupsource.handoff.rules import HOLD, HeldClaims
from tests.simulation.account import Violation
from tests.simulation.group import Group
from tests.simulation.history import draw_setting, explore, run, shrink
from tests.simulation.setting import Setting
from tests.simulation.world import World

HISTORIES = int(os.environ.get("HANDOFF_HISTORIES", "150"))
FIRST_SEED = int(os.environ.get("HANDOFF_FIRST_SEED", "0"))
AT_A_TIME = 2500
NIGHTLY = HISTORIES >= 100_000


@pytest.mark.parametrize("first", range(FIRST_SEED, FIRST_SEED + HISTORIES, AT_A_TIME))
def test_every_record_reaches_a_sink_exactly_once_and_nothing_waits_for_ever(first: int) -> None:
    for seed in range(first, min(first + AT_A_TIME, FIRST_SEED + HISTORIES)):
        failure = run(seed)
        assert failure is None, f"seed {seed}: {shrink(failure)}"


@pytest.mark.parametrize("held_claims", [HOLD, HeldClaims(reread_after_s=0)], ids=["held", "reread"])
def test_every_record_of_a_log_that_falls_back_reaches_a_sink_exactly_once(held_claims: HeldClaims) -> None:
    """Every record that is in the log at the end. Truncated records may or may not have reached a sink."""
    for seed in range(FIRST_SEED, FIRST_SEED + HISTORIES // 4):
        setting = Setting(streams=1 + seed % 3, partitions=1 + seed % 2, records=5, falls=3, held_claims=held_claims)
        failure = run(seed, setting=setting)
        assert failure is None, f"seed {seed}: {shrink(failure)}"


SMALL = Setting(streams=2, partitions=1, records=1)


@pytest.mark.parametrize(
    "trouble",
    [
        {"move": 2, "let go": 1},
        {"crash": 1},
        {"throw out": 1},
        *(
            [
                {"move": 1, "crash": 1},
                {"move": 1, "throw out": 1},
                {"move": 1, "let go": 1, "report": 1},
                {"crash": 2},
                {"move": 2, "let go": 1, "crash": 1},
                {"move": 1, "crash": 1, "report": 1},
            ]
            if NIGHTLY
            else []
        ),
    ],
    ids=str,
)
def test_two_streams_hand_over_a_partition_in_every_order_of_steps(trouble: Mapping[str, int]) -> None:
    _holds(SMALL, trouble)


@pytest.mark.parametrize(
    "trouble",
    [{"move": 1}, *([{"crash": 1}, {"move": 1, "crash": 1}, {"move": 2, "let go": 1}] if NIGHTLY else [])],
    ids=str,
)
def test_two_streams_that_reread_lose_nothing_in_every_order_of_steps(trouble: Mapping[str, int]) -> None:
    _holds(replace(SMALL, held_claims=HeldClaims(reread_after_s=0)), trouble)


@pytest.mark.parametrize(
    ("streams", "partitions", "trouble"),
    [
        (2, 1, {"move": 1}),
        *(
            [
                (1, 2, {"throw out": 1}),
                (2, 1, {"move": 1, "let go": 1}),
                (2, 1, {"move": 1, "crash": 1}),
                (1, 2, {"crash": 1}),
            ]
            if NIGHTLY
            else []
        ),
    ],
    ids=str,
)
def test_epochs_that_rise_silently_in_every_order_of_steps(streams: int, partitions: int, trouble: Mapping[str, int]) -> None:
    setting = Setting(streams=streams, partitions=partitions, records=1, protocol="consumer", fencing="part")
    _holds(setting, trouble)


@pytest.mark.parametrize(
    "trouble",
    [{"move": 1, "lose answer": 1}, *([{"move": 1, "lose answer": 1, "let go": 1}] if NIGHTLY else [])],
    ids=str,
)
def test_a_lost_answer_of_the_coordinator_in_every_order_of_steps(trouble: Mapping[str, int]) -> None:
    _holds(replace(SMALL, protocol="consumer", lost_answers=True), trouble)


def test_commits_are_accepted_in_part_in_some_histories(monkeypatch: pytest.MonkeyPatch) -> None:
    in_part = 0

    def noted(group: Group, member: str | None, epoch: int, numbers: Iterable[int]) -> frozenset[int]:
        nonlocal in_part
        asked = frozenset(numbers)
        refused = fence(group, member, epoch, asked)
        in_part += bool(refused) and refused != asked
        return refused

    fence = Group.fence
    monkeypatch.setattr(Group, "fence", noted)
    for seed in range(200):
        run(seed, setting=Setting(streams=2, partitions=4, records=5, protocol="consumer", fencing="part"))
        if in_part:
            return
    pytest.fail("no commit was accepted in part")


def test_two_drivers_on_one_checkpoint_in_every_order_of_steps() -> None:
    trouble = {"second": 1, "move": 1, "let go": 1, "report": 1}
    _holds(Setting(streams=1, partitions=1, records=1, second_drivers=True), trouble)


@pytest.mark.parametrize(
    "trouble",
    [
        {"report": 2, "noise": 1, "cut": 1},
        {"report": 2, "throw out": 1},
        {"report": 1, "second": 1},
        *([{"report": 2, "noise": 1, "crash": 1}, {"report": 2, "stop": 1, "cut": 1}] if NIGHTLY else []),
    ],
    ids=str,
)
def test_reports_of_two_plans_in_every_order_of_steps(trouble: Mapping[str, int]) -> None:
    _holds(Setting(streams=1, partitions=1, records=2, second_drivers="second" in trouble), trouble, limit=1)


def test_a_seed_draws_the_same_history_again() -> None:
    def after(seed: int) -> object:
        world = World(draw_setting(random.Random(seed)))
        with patch.object(world, "apply", wraps=world.apply) as applied:
            run(seed, lambda _: world)
        return applied.call_args_list

    assert after(7) == after(7)
    assert after(7) != after(8)


def test_a_failing_history_is_shrunk_to_the_steps_that_it_takes() -> None:
    failure = run(1, _Fragile)
    assert failure is not None
    assert [action[0] for action in shrink(failure, _Fragile).actions] == ["start", "crash"]


def _holds(setting: Setting, trouble: Mapping[str, int], limit: int | None = None) -> None:
    failure = explore(setting, trouble, limit=limit)
    assert failure is None, str(failure)


class _Fragile(World):
    """An account that fails at the first crash."""

    def apply(self, action: tuple[object, ...]) -> bool:
        done = super().apply(action)
        if action[0] == "crash" and done:
            raise Violation("crashed", str(action))
        return done
