"""What a run compares with the logs: the target of Trigger.AvailableNow, and what has no leader."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from spark_groupsource.brokers.offsets import Found
from spark_groupsource.brokers.topic_ids import TopicIds
from spark_groupsource.brokers.topics import Topics
from spark_groupsource.handoff.commit_record import CommitRecord
from spark_groupsource.partition import TopicPartition
from spark_groupsource.patience import Deadline
from spark_groupsource.query.loss_watch import LossWatch
from tests.support.options import parse

READABLE, WITHOUT_LEADER = TopicPartition("orders", 0), TopicPartition("orders", 2)
ID = "a" * 22


def test_a_leader_that_stays_away_does_not_end_the_run_of_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither while the target is fixed, nor at a plan, in which its silence is longer than the patience already."""

    def without_leader(_: Topics, specs: Mapping[TopicPartition, object], timeout_s: float) -> dict[TopicPartition, Found]:
        return dict.fromkeys(specs.keys() - {WITHOUT_LEADER}, Found(10))

    monkeypatch.setattr(Topics, "partitions", lambda *_: [READABLE, WITHOUT_LEADER])
    monkeypatch.setattr(Topics, "ids", lambda *_: {"orders": ID})
    monkeypatch.setattr(Topics, "_offsets", without_leader)
    options = parse(**{"kafkaConsumer.pollTimeoutMs": "100"})
    topics = Topics(options.client_settings(), options, read_committed=False, patience_s=0.1)
    watch = LossWatch(options, topics, TopicIds(topics.ids))
    watch.fix_target(Deadline(0.5))
    assert "this run skips 1 partitions, because their leaders did not answer within assignmentTimeout: orders-2." in caplog.text
    assert watch.target is not None
    assert watch.target.ends == {READABLE: 10}
    records = dict.fromkeys([READABLE, WITHOUT_LEADER], CommitRecord(stream="me", logged=7, done=7, next=5, topic_id=ID))
    for _ in Deadline(0.5).attempts():
        assert watch._ask(records, (), recheck=False).ends == {READABLE: 10}
