"""The line, its interval, and what it says of a limit."""

from __future__ import annotations

import math
from random import Random

import pytest

from tests.soak.slope import T_95, Verdict, slope, student_t


def test_an_exact_line_has_its_slope_and_no_margin() -> None:
    found = slope([(60.0 * minute, 100 + 2.5 * minute / 60) for minute in range(30)])
    assert found.per_hour == pytest.approx(2.5)
    assert found.margin == pytest.approx(0.0, abs=1e-6)
    assert found.intercept == pytest.approx(100)
    assert found.verdict(1.0) is Verdict.GROWS


def test_the_interval_of_a_known_example() -> None:
    # Worked out by hand: slope 0.6 a second, 2.4 squares left over, spread 10, 3 degrees of freedom.
    found = slope([(0.0, 2.0), (1.0, 4.0), (2.0, 5.0), (3.0, 4.0), (4.0, 5.0)])
    assert found.per_hour / 3600 == pytest.approx(0.6)
    assert found.effective == 5.0, "the residuals change their signs: there is nothing to take off"
    assert found.margin / 3600 == pytest.approx(T_95[3] * math.sqrt(2.4 / 3 / 10))


def test_the_interval_is_wider_for_samples_that_resemble_their_neighbours() -> None:
    random = Random(2)
    independent, correlated, missed, naively_missed = [], [], 0, 0
    for _ in range(200):
        level, walk, noise = 0.0, [], []
        for one in range(120):
            level = 0.8 * level + random.gauss(0, 1)
            walk.append((10.0 * one, level))
            noise.append((10.0 * one, random.gauss(0, 1 / 0.6)))
        found, other = slope(walk), slope(noise)
        correlated.append(found.margin)
        independent.append(other.margin)
        missed += abs(found.per_hour) > found.margin
        naively_missed += abs(found.per_hour) > found.margin * math.sqrt(found.effective / found.samples)
    assert sum(correlated) > 2 * sum(independent)
    assert missed <= 30 < naively_missed, "without the effective number of samples the interval is far too narrow"


@pytest.mark.parametrize("points", [[], [(0.0, 1.0)], [(0.0, 1.0), (0.0, 2.0)], [(0.0, 1.0), (1.0, 9.0), (2.0, 1.0)]])
def test_too_few_samples_say_nothing(points: list[tuple[float, float]]) -> None:
    assert slope(points).verdict(1.0) is Verdict.TOO_SHORT


def test_student_t_is_never_too_small_between_the_rows_of_its_table() -> None:
    assert student_t(0.3) == T_95[1]
    assert student_t(3.9) == T_95[3]
    assert student_t(25) == T_95[20]
    assert student_t(10_000) == T_95[120]
