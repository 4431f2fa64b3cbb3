"""When a batch read of `committed` believes that a log was cut."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from types import SimpleNamespace
from typing import cast

import pytest

from spark_groupsource.brokers.topics import Topics
from spark_groupsource.errors import DataLossError
from spark_groupsource.handoff.commit_record import CommitRecord
from spark_groupsource.handoff.losses import CutDoubts
from spark_groupsource.partition import TopicPartition
from spark_groupsource.query import batch_plan
from tests.support.options import parse

ORDERS = TopicPartition("orders", 0)
ID = "A" * 22
COMMITS = {ORDERS: CommitRecord(stream="me", logged=7, done=7, next=100, topic_id=ID)}


class Logs:
    """Logs that a slow leader answers for: first with an end that is too low."""

    def __init__(self, clock: SimpleNamespace, low_until_s: float) -> None:
        self._clock = clock
        self._low_until_s = low_until_s
        self.epochs: dict[TopicPartition, int] = {}

    def starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        self._clock.s += 20.0
        return dict.fromkeys(partitions, 0)

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 90 if self._clock.s < self._low_until_s else 120)

    def ids(self, topics: Collection[str]) -> dict[str, str | None]:
        return dict.fromkeys(topics, ID)


@pytest.mark.parametrize(("low_until_s", "is_cut"), [(30.0, False), (1000.0, True)])
def test_a_cut_is_not_believed_at_the_first_look(low_until_s: float, is_cut: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(s=0.0)
    monkeypatch.setattr(batch_plan, "CutDoubts", partial(CutDoubts, clock=lambda: clock.s))
    logs = cast(Topics, Logs(clock, low_until_s))
    options = parse(startingOffsets="committed")

    if is_cut:
        with pytest.raises(DataLossError):
            batch_plan._corrected(COMMITS, [ORDERS], logs, options)
    else:
        assert batch_plan._corrected(COMMITS, [ORDERS], logs, options) == COMMITS
    assert clock.s == 40.0, "two looks"
