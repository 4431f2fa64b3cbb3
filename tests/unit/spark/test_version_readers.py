"""The position of Spark 4.0 and 4.1, which follows from the order of their calls, and the limit that later versions ask for."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_groupsource.checkpoint.offset_log import left_behind
from spark_groupsource.errors import OffsetError
from spark_groupsource.spark.version_readers import SparkPosition
from tests.support.options import parse


def offset(plan: int, stream: str = "s") -> dict[str, Any]:
    return {"v": 1, "stream": stream, "plan": plan}


def test_a_plan_from_before_the_checkpoint_was_read_is_refused() -> None:
    position = SparkPosition()
    position.planned(offset(0, "new"))
    with pytest.raises(OffsetError, match=r"triggerAvailableNowWrapper\.enabled"):
        position.to_claim(offset(7), offset(7))


class Died(Exception):
    """Spark is gone."""


class Checkpoint:
    """What Spark does with one: MicroBatchExecution's order of calls, which may end before any step."""

    def __init__(self, seed: int) -> None:
        self.logged: list[dict[str, Any]] = []
        self.committed = 0
        self.settled: set[int] = set()
        self._random = random.Random(seed)

    def run(self) -> None:
        """One run of the query, to where it dies."""
        position = SparkPosition()
        if self.logged:
            assert not position.to_claim(self.logged[-1], self.logged[-1])
        while True:
            if self.committed < len(self.logged):
                self._run_batch(position)
            self._plan(position)

    def _plan(self, position: SparkPosition) -> None:
        self._may_die()
        assert position.start == (self.logged[-1] if self.logged else None)
        start = position.start or self._initial()
        end = offset(start["plan"] + 1, start["stream"]) if self._random.random() < 0.7 else start
        position.planned(end)
        self._may_die()
        if end != start or not self.logged:
            self.logged.append(end)

    def _run_batch(self, position: SparkPosition) -> None:
        self._may_die()
        end = self.logged[-1]
        start = self.logged[-2] if len(self.logged) > 1 else self._initial()
        # Spark asks for no partitions when the optimizer has found that the query needs no rows.
        if self._random.random() < 0.1 or (position.to_claim(start, end) and position.to_claim(start, end)):  # it may ask twice
            self.settled.add(end["plan"])
        self._may_die()
        self.committed += 1

    def _initial(self) -> dict[str, Any]:
        return offset(-1, f"drawn-{self._random.random()}")

    def _may_die(self) -> None:
        if self._random.random() < 0.1:
            raise Died


@given(st.integers(0, 2**32))
def test_every_plan_starts_where_the_commit_log_ends_whenever_spark_dies(seed: int) -> None:
    checkpoint = Checkpoint(seed)
    for _ in range(8):
        with pytest.raises(Died):
            checkpoint.run()
    plans = [end["plan"] for end in checkpoint.logged]
    assert plans == sorted(set(plans)), "each plan is in the offset log once"
    assert {end["plan"] for end in checkpoint.logged[: checkpoint.committed]} <= checkpoint.settled
    assert len({end["stream"] for end in checkpoint.logged}) <= 1


@pytest.mark.parametrize(
    ("planned_to", "ends", "left"),
    [
        ({"0": [[0, 5]]}, {"t": {"0": 15}}, 10),
        ({"0": [[0, 5]], "1": [[3, 3]]}, {"t": {"0": 5, "1": 4}}, 1),
        ({"0": [[2, 3], [7, 9]]}, {"t": {"0": 9}}, 0),
        ({"0": [[0, 5]]}, {}, 0),
        ({"0": [[0, 5]]}, {"t": {"0": 5, "1": 9}}, 0),  # not owned any more
        ({"0": [[5, 5]]}, {"t": {"0": 4}}, 0),
    ],
)
def test_what_the_limit_leaves_is_counted(planned_to: dict[str, Any], ends: dict[str, Any], left: int) -> None:
    assert sum(left_behind({"ranges": {"t": planned_to}}, ends).values()) == left


def test_the_limit_is_the_most_offsets_of_a_trigger_or_else_the_least() -> None:
    limits = pytest.importorskip("pyspark.sql.streaming.datasource", reason="Spark before 4.2 passes no limit")
    from spark_groupsource.spark.version_readers import AdmissionControlReader

    def limit_of(**options: str) -> object:
        return AdmissionControlReader(parse(**options)).getDefaultReadLimit()

    assert limit_of() == limits.ReadAllAvailable()
    assert limit_of(minOffsetsPerTrigger="5") == limits.ReadMinRows(5)
    assert limit_of(maxOffsetsPerTrigger="10") == limits.ReadMaxRows(10)
    assert limit_of(maxOffsetsPerTrigger="10", minOffsetsPerTrigger="5") == limits.ReadMaxRows(10)
