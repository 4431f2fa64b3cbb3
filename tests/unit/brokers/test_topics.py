"""How long the end of a partition may stay unknown, for callers on two threads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

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
    with pytest.raises(BrokerUnavailable, match="orders-0 has not returned the partition's end offset for 61 s"):
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
    monkeypatch.setattr(topics_module, "ASK_AGAIN_S", 0)
    assert topics.ends([PLANNED]) == {}
    now = 3600.0
    assert topics.ends([PLANNED, ADOPTED]) == {PLANNED: 7}  # the other one was not silent before, so it has its next trigger
    now, back_at = 7200.0, 10800.0 + 120.0
    assert topics.ends([PLANNED]) == {}
    now = 10800.0
    with pytest.raises(BrokerUnavailable, match=r"orders-0 has not returned the partition's end offset for [67]\d s"):
        topics.ends([PLANNED])


Ask = Callable[[Topics, Mapping[TopicPartition, object], float], dict[TopicPartition, int]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> tuple[list[tuple[int, set[int]]], list[set[int]]]:
    """What leaders are asked, each time with the number of clients before, and which partitions they answer for."""
    questions: list[tuple[int, set[int]]] = []
    answers: list[set[int]] = []
    clients: dict[int, int] = {}

    def answer(topics: Topics, specs: Mapping[TopicPartition, object], _timeout_s: float) -> dict[TopicPartition, Found]:
        questions.append((clients.setdefault(id(topics._admin.client), len(clients)), {each.partition for each in specs}))
        kept_alive.append(topics._admin.client)
        answering = answers.pop(0)
        if answering:
            topics._admin.answered()
        return {each: Found(7, None) for each in specs if each.partition in answering}

    kept_alive: list[object] = []
    monkeypatch.setattr(Topics, "_answered", answer)
    monkeypatch.setattr(Topics, "_refresh_leaders", lambda *_: None)
    return questions, answers


def test_silence_after_a_pause_is_asked_again_by_a_new_client_once_in_an_episode(
    asked: tuple[list[tuple[int, set[int]]], list[set[int]]], caplog: pytest.LogCaptureFixture
) -> None:
    """The network may have forgotten the connections. A leader that is really down costs one more question, not one each time."""
    questions, answers = asked
    now = 0.0
    options = parse()
    topics = Topics(options.client_settings(), options, read_committed=False, patience_s=1000, clock=lambda: now)
    both = {PLANNED: 7, ADOPTED: 7}
    answers += [{0, 1}]
    assert topics.ends(both) == both
    # A pause, and no connection is left: a new client asks for what is missing.
    now, answers[:] = 45.0, [{0}, {1}]
    assert topics.ends(both) == both
    assert questions == [(0, {0, 1}), (0, {0, 1}), (1, {1})]
    # A leader that is down: once more, by a new client.
    now, answers[:] = 90.0, [{0}, set()]
    questions.clear()
    with caplog.at_level(logging.WARNING, "spark_groupsource.brokers.topics"):
        assert topics.ends(both) == {PLANNED: 7}
        assert questions == [(1, {0, 1}), (2, {1})]
        (warning,) = caplog.messages
        assert "orders-1" in warning
        # And then no more, while it is the only one.
        for now in (135.0, 180.0, 225.0):  # noqa: B007
            answers[:] = [{0}]
            assert topics.ends(both) == {PLANNED: 7}
        # Its connection to the other one may be forgotten all the same.
        now, answers[:] = 270.0, [set(), {0}]
        questions.clear()
        assert topics.ends(both) == {PLANNED: 7}
        assert questions == [(2, {0, 1}), (3, {0})]
        assert len(caplog.messages) == 1, "one line for the episode"
        # If nobody answers, it may be the network: when that has lasted for a while, all are asked by a new client.
        now, answers[:] = 271.0, [set(), set()]
        assert topics.ends(both) == {}
        now, answers[:] = 300.0, [set(), {0, 1}]
        questions.clear()
        assert topics.ends(both) == both
        assert questions == [(3, {0, 1}), (4, {0, 1})]
        now, answers[:] = 301.0, [{0}, set()]
        assert topics.ends(both) == {PLANNED: 7}
        assert len(caplog.messages) == 3, "the next episodes"


def test_what_fails_at_once_is_asked_again_by_the_same_client_and_silence_without_a_pause_is_not(
    asked: tuple[list[tuple[int, set[int]]], list[set[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka fails a request if it closes the idle connection at that moment."""
    questions, answers = asked
    now = 0.0
    options = parse()
    topics = Topics(options.client_settings(), options, read_committed=False, patience_s=1000, clock=lambda: now)
    both = {PLANNED: 7, ADOPTED: 7}
    answers += [{0}, {1}]
    assert topics.ends(both) == both
    assert questions == [(0, {0, 1}), (0, {1})]
    answer = Topics._answered

    def late(topics: Topics, specs: Mapping[TopicPartition, object], timeout_s: float) -> dict[TopicPartition, Found]:
        nonlocal now
        now += timeout_s
        return answer(topics, specs, timeout_s)  # type: ignore[arg-type]

    monkeypatch.setattr(Topics, "_answered", late)
    answers += [{0}]
    assert topics.ends(both) == {PLANNED: 7}
    assert not answers
