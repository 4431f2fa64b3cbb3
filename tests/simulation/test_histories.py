"""What the hand-off promises, held against histories of crashes, pauses, rebalances and lost answers.

HANDOFF_HISTORIES=100000 runs that many random histories (1,500 when it is not set) and a larger exhaustive search;
HANDOFF_FIRST_SEED draws others. A failure prints its seed and the few steps that it takes.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import pytest

from spark_groupsource.handoff.rules import OutstandingClaims
from tests.simulation.account import Violation
from tests.simulation.group import Group
from tests.simulation.history import draw_setting, explore, quiet, replay, run, script, shrink
from tests.simulation.setting import Setting
from tests.simulation.world import World

HISTORIES = int(os.environ.get("HANDOFF_HISTORIES", "1500"))
FIRST_SEED = int(os.environ.get("HANDOFF_FIRST_SEED", "0"))
AT_A_TIME = 2500
NIGHTLY = HISTORIES >= 100_000


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


@pytest.mark.parametrize("first", range(FIRST_SEED, FIRST_SEED + HISTORIES, AT_A_TIME))
def test_every_record_reaches_a_sink_exactly_once_and_nothing_waits_for_ever(first: int) -> None:
    for seed in range(first, min(first + AT_A_TIME, FIRST_SEED + HISTORIES)):
        failure = run(seed)
        assert failure is None, f"seed {seed}: {shrink(failure)}"


SMALL = Setting(streams=2, partitions=1, records=1)


@pytest.mark.parametrize(
    "trouble",
    [
        {"move": 2, "let go": 1},
        {"move": 1, "crash": 1},
        {"move": 1, "throw out": 1},
        {"move": 1, "let go": 1, "report": 1},
        *([{"crash": 2}, {"move": 2, "let go": 1, "crash": 1}, {"move": 1, "crash": 1, "report": 1}] if NIGHTLY else []),
    ],
    ids=str,
)
def test_two_streams_hand_over_a_partition_in_every_order_of_steps(trouble: Mapping[str, int]) -> None:
    _holds(SMALL, trouble)


@pytest.mark.parametrize(
    "trouble",
    [{"move": 1}, {"crash": 1}, *([{"move": 1, "crash": 1}, {"move": 2, "let go": 1}] if NIGHTLY else [])],
    ids=str,
)
def test_two_streams_that_reread_lose_nothing_in_every_order_of_steps(trouble: Mapping[str, int]) -> None:
    _holds(replace(SMALL, outstanding=OutstandingClaims(reread_after_s=0)), trouble)


@pytest.mark.parametrize(
    ("streams", "partitions", "trouble"),
    [
        (1, 2, {"throw out": 1}),
        (2, 1, {"move": 1}),
        *([(2, 1, {"move": 1, "let go": 1}), (2, 1, {"move": 1, "crash": 1}), (1, 2, {"crash": 1})] if NIGHTLY else []),
    ],
    ids=str,
)
def test_epochs_that_rise_silently_in_every_order_of_steps(streams: int, partitions: int, trouble: Mapping[str, int]) -> None:
    setting = Setting(streams=streams, partitions=partitions, records=1, protocol="consumer", fencing="part")
    _holds(setting, trouble)


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
    assert in_part


def test_two_drivers_on_one_checkpoint_in_every_order_of_steps() -> None:
    trouble = {"second": 1, "move": 1, "let go": 1, "report": 1}
    _holds(Setting(streams=1, partitions=1, records=1, second_drivers=True), trouble)


@pytest.mark.parametrize(
    "trouble",
    [
        {"report": 2, "noise": 1, "crash": 1},
        {"report": 2, "noise": 1, "cut": 1},
        {"report": 2, "throw out": 1},
        {"report": 1, "second": 1},
        *([{"report": 2, "stop": 1, "cut": 1}] if NIGHTLY else []),
    ],
    ids=str,
)
def test_reports_of_two_plans_in_every_order_of_steps(trouble: Mapping[str, int]) -> None:
    _holds(Setting(streams=1, partitions=1, records=2, second_drivers="second" in trouble), trouble, limit=1)


def test_a_seed_draws_the_same_history_again() -> None:
    def after(seed: int) -> object:
        world = _Remembered(draw_setting(random.Random(seed)))
        run(seed, lambda _: world)
        return world.seen

    assert after(7) == after(7)
    assert after(7) != after(8)


def test_a_printed_history_can_be_replayed() -> None:
    lines = "append 0\nstart A\njoin A.1\nmove 0 A.1#1\nassign A.1\non_assign A.1\nplan A.1 None\nthrow out A.1#1\nlet go A.1"
    actions = script(lines)
    assert actions[3] == ("move", 0, "A.1#1")
    assert actions[6:] == [("plan", "A.1", None), ("throw out", "A.1#1"), ("let go", "A.1")]
    assert replay(Setting(streams=1, partitions=1, records=2), actions) is None


def test_a_failing_history_is_shrunk_to_the_steps_that_it_takes() -> None:
    failure = run(1, _Fragile)
    assert failure is not None
    assert [action[0] for action in shrink(failure, _Fragile).actions] == ["start", "crash"]


def _holds(setting: Setting, trouble: Mapping[str, int], limit: int | None = None) -> None:
    explored = explore(setting, trouble, limit=limit)
    assert explored.failure is None, str(explored.failure)
    assert explored.ends


class _Remembered(World):
    """Keeps what was done."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.seen: list[object] = []

    def apply(self, action: tuple[object, ...]) -> bool:
        self.seen.append(action)
        return super().apply(action)


class _Fragile(World):
    """Breaks at the first crash."""

    def apply(self, action: tuple[object, ...]) -> bool:
        done = super().apply(action)
        if action[0] == "crash" and done:
            raise Violation("crashed", str(action))
        return done
