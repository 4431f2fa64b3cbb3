"""The target of Trigger.AvailableNow: what has no leader is left out, and a warning names it."""

from __future__ import annotations

import pytest

from spark_groupsource.brokers.topics import Topics
from spark_groupsource.partition import TopicPartition
from spark_groupsource.query.cycle import Cycle
from tests.support.options import parse

READABLE, WITHOUT_LEADER = TopicPartition("orders", 0), TopicPartition("orders", 2)


def test_partitions_without_a_leader_are_left_out_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Topics, "partitions", lambda *_: [READABLE, WITHOUT_LEADER])
    monkeypatch.setattr(Topics, "ids", lambda *_: {"orders": "a" * 22})
    monkeypatch.setattr(Topics, "ends", lambda *_: {READABLE: 10})
    cycle = Cycle(parse(**{"assignmentTimeout": "500ms", "handoff.drainTimeout": "100ms"}))

    cycle.fix_target()

    assert "this run does not read 1 partitions, whose leader did not answer within assignmentTimeout: orders-2." in caplog.text
    assert cycle._watch.target is not None
    assert cycle._watch.target.ends == {READABLE: 10}
