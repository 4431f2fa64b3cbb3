"""The slope of a series by least squares, its 95 % interval, and what it says of a limit. Pure.

Samples of one process's memory resemble their neighbours: a step up stays. The usual interval treats them as independent,
and is too narrow. So n samples are reduced to an effective number, n (1 - r) / (1 + r). Here r is the correlation of neighbouring
residuals (an autoregression of order 1). Variance and Student's t use the effective number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from statistics import StatisticsError, linear_regression, pvariance

MOST_CORRELATED = 0.99
"""Keeps the effective number above zero."""

FEWEST_EFFECTIVE = 4.0
"""With fewer effective samples there is no interval."""

T_95 = {
    1: 12.706,
    2: 4.303,
    3: 3.182,
    4: 2.776,
    5: 2.571,
    6: 2.447,
    7: 2.365,
    8: 2.306,
    9: 2.262,
    10: 2.228,
    12: 2.179,
    15: 2.131,
    20: 2.086,
    30: 2.042,
    60: 2.000,
    120: 1.980,
}
"""Student's t for a two-sided interval of 95 %, by degrees of freedom."""


class Verdict(str, Enum):
    """What an interval says of a limit."""

    FLAT = "flat"
    """It lies below the limit."""
    GROWS = "grows"
    """It lies above the limit: a failure."""
    TOO_SHORT = "too short to say"
    """The limit lies within it, or there are too few samples."""


@dataclass(frozen=True)
class Slope:
    """A slope per hour. Its 95 % interval is `per_hour` plus and minus `margin`."""

    per_hour: float
    margin: float
    samples: int
    effective: float
    """This many independent samples would say as much."""
    intercept: float
    """The line's value at time 0."""

    @property
    def low(self) -> float:
        return self.per_hour - self.margin

    @property
    def high(self) -> float:
        return self.per_hour + self.margin

    def verdict(self, limit: float) -> Verdict:
        """Compare the whole interval with a limit per hour."""
        if self.low > limit:
            return Verdict.GROWS
        return Verdict.FLAT if self.high <= limit else Verdict.TOO_SHORT

    def __str__(self) -> str:
        return f"{self.per_hour:+.2f}" if math.isinf(self.margin) else f"{self.per_hour:+.2f} ± {self.margin:.2f}"


def slope(points: Sequence[tuple[float, float]]) -> Slope:
    """Fit a line through (seconds, value) by least squares. The points are in the order of time."""
    count = len(points)
    times = [at for at, _ in points]
    try:
        per_second, intercept = linear_regression(times, [value for _, value in points])
    except StatisticsError:  # there are fewer than two different times
        return Slope(0.0, math.inf, count, 0.0, 0.0)
    residuals = [value - (intercept + per_second * at) for at, value in points]
    squares = sum(residual**2 for residual in residuals)
    # What rounding leaves of an exact line is no noise, and its correlation says nothing.
    exact = squares <= 1e-18 * sum(value**2 for _, value in points)
    correlation = 0.0 if exact else sum(one * other for one, other in pairwise(residuals)) / squares
    correlation = min(max(correlation, 0.0), MOST_CORRELATED)
    effective = count * (1 - correlation) / (1 + correlation)
    margin = math.inf
    if effective >= FEWEST_EFFECTIVE:
        inflated = squares / (count - 2) * (1 + correlation) / (1 - correlation)
        margin = student_t(effective - 2) * math.sqrt(inflated / (count * pvariance(times)))
    return Slope(per_second * 3600, margin * 3600, count, effective, intercept)


def student_t(freedom: float) -> float:
    """Return Student's t for 95 %, for the next smaller degrees of freedom in the table: never too small."""
    return T_95[max(row for row in T_95 if row <= max(freedom, 1.0))]
