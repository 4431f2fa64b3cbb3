"""A clock for the code of a task, which passes only when the code sleeps or a test lets it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from spark_groupsource.fetch import bounds, contract, reading


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Return the clock, whose `s` are seconds."""
    now = SimpleNamespace(s=0.0)

    def sleep(seconds: float) -> None:
        now.s += seconds

    for module in (bounds, contract, reading):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now.s, sleep=sleep))
    return now
