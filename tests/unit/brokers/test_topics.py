"""How long the end of a partition may stay unknown, for callers on two threads."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from spark_groupsource.brokers import topics as topics_module
from spark_groupsource.brokers.offsets import Found
from spark_groupsource.brokers.topic_ids import TopicIds
from spark_groupsource.brokers.topics import Topics
from spark_groupsource.errors import BrokerUnavailable
from spark_groupsource.handoff.plan_offset import AT_END, PlanOffset
from spark_groupsource.partition import TopicPartition
from spark_groupsource.query.starting_offsets import StartingOffsets
from tests.support.options import parse

PLANNED, ADOPTED = TopicPartition("orders", 0), TopicPartition("orders", 1)


def test_an_adoption_does_not_change_for_how_long_an_end_that_is_planned_has_been_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    options = parse(startingOffsets="latest")
    topics = Topics(options.client_settings(), options, read_committed=False, patience_s=60, clock=lambda: now)

    def no_answer(_: Topics, specs: Mapping[TopicPartition, object], timeout_s: float) -> dict[TopicPartition, Found]:
        return {}

    monkeypatch.setattr(Topics, "_offsets", no_answer)
    monkeypatch.setattr(Topics, "ids", lambda *_: {})
    monkeypatch.setattr(Topics, "cluster_id", lambda _: "")
    start = StartingOffsets(options, topics, TopicIds(topics.ids), clock=lambda: now)
    start.begin(PlanOffset.first("billing", {ADOPTED: AT_END}))
    assert topics.ends([PLANNED]) == {}
    now = 40.0
    assert topics.ends([PLANNED]) == start([ADOPTED]) == {}
    now = 61.0
    with pytest.raises(BrokerUnavailable, match="orders-0 has not returned its end offset for 61 s"):
        topics.ends([PLANNED])
    now = 500.0
    assert start([ADOPTED]) == {}  # the ledger has the patience for adoptions


def test_a_leader_is_asked_once_more_before_its_silence_ends_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    options = parse()
    topics = Topics(options.client_settings(), options, read_committed=False, patience_s=60, clock=lambda: now)
    answers = iter([{}, {}, {PLANNED: Found(7)}, {}, {}])
    monkeypatch.setattr(Topics, "_offsets", lambda *_: dict(next(answers)))
    assert topics.ends([PLANNED]) == {}
    now = 40.0
    assert topics.ends([PLANNED]) == {}
    now = 61.0
    assert topics.ends([PLANNED]) == {PLANNED: 7}
    now = 90.0
    assert topics.ends([PLANNED]) == {}


def test_two_silences_at_triggers_of_an_hour_are_none_of_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader is asked for its whole time at the second one: at the third it would be as unknown."""
    now, back_at = 0.0, 3600.0 + 59.0
    options = parse()
    topics = Topics(options.client_settings(), options, read_committed=False, patience_s=60, clock=lambda: now)

    def silent_until(_: Topics, specs: Mapping[TopicPartition, object], timeout_s: float) -> dict[TopicPartition, Found]:
        nonlocal now
        now += timeout_s
        return dict.fromkeys(specs, Found(7)) if now > back_at else {}

    monkeypatch.setattr(Topics, "_offsets", silent_until)
    monkeypatch.setattr(topics_module, "ASK_LEADER_AGAIN_S", 0)
    assert topics.ends([PLANNED]) == {}
    now = 3600.0
    assert topics.ends([PLANNED, ADOPTED]) == {PLANNED: 7}  # the other one was not silent before, so it has its next trigger
    now, back_at = 7200.0, 10800.0 + 120.0
    assert topics.ends([PLANNED]) == {}
    now = 10800.0
    with pytest.raises(BrokerUnavailable, match=r"orders-0 has not returned its end offset for [67]\d s"):
        topics.ends([PLANNED])
