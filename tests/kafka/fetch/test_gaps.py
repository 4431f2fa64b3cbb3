"""Offsets without a record are no loss: compaction, transaction markers, aborted records."""

from __future__ import annotations

import time

import pytest

from spark_groupsource.fetch import reading
from spark_groupsource.fetch.contract import FetchRange, Reader
from tests.kafka.fetch.conftest import COMMITTED, COMPACTED_AWAY, NO_MARKERS
from tests.support.fetching import MakeSettings, offsets, warnings_of


@pytest.fixture(autouse=True)
def silence_is_long(believed_soon: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that waits for a record that is not there takes longer than a test may."""
    monkeypatch.setattr(reading, "TASK_SILENCE_S", 25.0)


def test_what_compaction_removed_is_no_loss(
    read: Reader, using: MakeSettings, compacted: str, caplog: pytest.LogCaptureFixture
) -> None:
    for partition in range(2):
        for start, end in [(0, 15), (0, 1), (0, 2), (1, 3), (0, 10), (4, 6), (5, 6), (5, 9), (5, 10), (9, 10), (8, 12), (14, 15)]:
            began = time.monotonic()
            found = offsets(read, FetchRange(compacted, partition, start, end), using())
            assert found == [offset for offset in range(start, end) if offset not in COMPACTED_AWAY], (partition, start, end)
            assert time.monotonic() - began < 20
    assert not warnings_of(caplog)


RANGES = [(0, 15), (0, 3), (0, 4), (2, 4), (3, 4), (4, 8), (5, 6), (7, 11), (6, 9), (10, 15), (11, 15), (14, 15)]


@pytest.mark.parametrize(("isolation", "visible"), [("read_committed", COMMITTED), ("read_uncommitted", NO_MARKERS)])
def test_transactions(isolation: str, visible: list[int], read: Reader, using: MakeSettings, transactions: str) -> None:
    how = using({"isolation.level": isolation})
    for start, end in RANGES:
        began = time.monotonic()
        assert offsets(read, FetchRange(transactions, 0, start, end), how) == [each for each in visible if start <= each < end]
        assert time.monotonic() - began < 20, (start, end)
