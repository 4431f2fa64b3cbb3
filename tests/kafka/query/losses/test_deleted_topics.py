"""Deleted topics that the group does not ask back, or that only the coordinator knows to be deleted."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest

from spark_groupsource.errors import DataLossError, TopicNotFound
from spark_groupsource.group import fenced_commits
from tests.conftest import MakeTopic, Produce
from tests.kafka.conftest import MakeQuery, Query, RecordOf
from tests.kafka.query.losses.conftest import GOES_ON, Brokers
from tests.support.waiting import until

LATE_METADATA = {"kafka.metadata.max.age.ms": "300000"}
"""Java's default. The members learn of a deletion after five minutes, and only then the group asks the topic back."""

PATIENCE = {"assignmentTimeout": "15s", "handoff.drainTimeout": "2s"}


def test_topics_that_are_deleted_one_after_the_other_do_not_end_a_query(
    topic: MakeTopic, produce: Produce, query: MakeQuery, brokers: Brokers
) -> None:
    kept = topic()
    going = [f"{kept}-{number}" for number in range(2)]
    for name in going:
        brokers._cluster.create_topic(name, 1)
    a = query(kept, subscribePattern=f"{kept}.*", **LATE_METADATA, **PATIENCE, **GOES_ON)
    a.until_planning(3)
    for name in going:
        brokers.delete(name)
        rounds = time.monotonic() + 3
        while time.monotonic() < rounds:
            produce(kept, [(None, b"x")])
            assert a.run_batch()
    assert {partition.topic for partition in a.positions} == {kept}
    assert {partition.topic for partition in a.session.assignment.partitions} == {kept, *going}, "nothing was asked back"
    brokers._cluster.create_topic(going[0], 1)
    brokers.append(going[0], 7)
    until(a.plan, "the topic is there again")
    assert a.claim() == {0: (0, 7)}


class Stale:
    """The ids that a broker still has although topics are deleted, as the query sees them."""

    def __init__(self, one: Query, monkeypatch: pytest.MonkeyPatch, topics: list[str]) -> None:
        ids = one.cycle._watch._topic_ids
        self._ask = ids.now
        self._before = ids.now(dict.fromkeys(topics))
        self.until = float("inf")
        monkeypatch.setattr(ids, "now", self.now)

    def now(self, expected: Mapping[str, str | None]) -> Mapping[str, str | None]:
        if time.monotonic() >= self.until:
            return self._ask(expected)
        return {name: self._before[name] for name in expected}


@pytest.fixture
def running(topic: MakeTopic, produce: Produce, brokers: Brokers, query: MakeQuery, request: pytest.FixtureRequest) -> Query:
    """A query on two topics with ten records each, all of them claimed."""
    kept = topic()
    going = f"0-{kept}"
    brokers._cluster.create_topic(going, 1)
    for each in (kept, going):
        produce(each, [(None, b"x")] * 10)
    given = {**LATE_METADATA, "subscribe": f"{kept},{going}", **getattr(request, "param", GOES_ON)}
    a = query(kept, **given)
    a.until_planning(2)
    until(a.plan, "something to read")
    a.claim()
    return a


def topics_of(one: Query) -> tuple[str, str]:
    """The topic that stays, and the one that is deleted."""
    kept, going = one.given["subscribe"].split(",")
    return kept, going


@pytest.mark.parametrize("running", [{"failOnDataLoss": "true"}, GOES_ON], indirect=True, ids=["ends", "goes on"])
def test_a_commit_that_is_refused_before_brokers_agree_that_the_topic_is_deleted_is_tried_again(
    running: Query, produce: Produce, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, going = topics_of(running)
    brokers_say = Stale(running, monkeypatch, [kept, going])
    brokers.delete(going)
    running.finish()
    produce(kept, [(None, b"y")] * 5)
    until(running.plan, "something to read")
    brokers_say.until = time.monotonic() + 1
    if running.given["failOnDataLoss"] == "true":
        with pytest.raises(DataLossError, match=f"{going}-0: .*the topic no longer exists"):
            running.claim()
        return
    assert running.claim() == {0: (10, 15)}
    assert time.monotonic() >= brokers_say.until
    assert {partition.topic for partition in running.positions} == {kept}


@pytest.mark.parametrize("running", [{**GOES_ON, **PATIENCE, "assignmentTimeout": "8s"}], indirect=True)
def test_brokers_that_never_agree_that_a_topic_is_deleted_end_the_query_when_the_time_is_over(
    running: Query, produce: Produce, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, going = topics_of(running)
    Stale(running, monkeypatch, [kept, going])
    brokers.delete(going)
    running.finish()
    produce(kept, [(None, b"y")] * 5)
    until(running.plan, "something to read")
    began = time.monotonic()
    with pytest.raises(TopicNotFound, match=going):
        running.claim()
    assert 8 <= time.monotonic() - began < 40


@pytest.mark.parametrize("at_once", [True, False], ids=["in one commit", "in a commit each"])
def test_a_report_closes_the_claims_of_the_topics_that_are_left(
    running: Query, brokers: Brokers, record_of: RecordOf, produce: Produce, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    """The next trigger may be an hour away."""
    kept, going = topics_of(running)
    if not at_once:
        monkeypatch.setattr(fenced_commits, "MAX_COMMIT_BYTES", 1)
    brokers.delete(going)
    running.session.report_durable(running.logged.stream, running.logged.plan)
    until(lambda: running.session.is_closed(running.logged.plan), "what can be closed is closed", timeout_s=20)
    record = record_of(kept, 0)
    assert (record.offset, record.open) == (10, ())
    known = {partition.topic: held.open for partition, held in running.session.ledger._records.items()}
    assert known == {kept: (), going: ((0, 10),)}
    ledger = running.session.ledger
    assert not running.session.member.call(lambda: ledger.in_flight(frozenset(ledger._records))), "no drain waits for it"
    running.finish()
    produce(kept, [(None, b"y")] * 5)
    assert running.run_batch() == {0: (10, 15)}


def test_a_query_that_starts_when_the_topic_of_its_only_partition_is_deleted_does_not_wait_for_it(
    topic: MakeTopic, query: MakeQuery, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The brokers say so from the start, while the group has not noticed."""
    name = topic()
    patience = {**PATIENCE, "assignmentTimeout": "6s"}
    a = query(name, subscribePattern=f"{name}.*", failOnDataLoss="true", **LATE_METADATA, **patience)
    deleted = True
    ids = a.cycle._watch._topic_ids
    real = ids.now
    monkeypatch.setattr(ids, "now", lambda expected: dict.fromkeys(expected) if deleted else real(expected))
    assert not a.plan()
    until_s = time.monotonic() + 7
    while time.monotonic() < until_s:
        assert not a.plan()
        assert not a.positions
        time.sleep(0.2)
    deleted = False
    brokers.append(name, 7)
    assert a.run_batch() == {0: (0, 7)}


def available_now(running: Query, query: MakeQuery, **changed: str) -> Query:
    """The query's driver is gone; a run of Trigger.AvailableNow is about to start on its checkpoint."""
    running.cycle.stop()
    kept, _ = topics_of(running)
    given = {**running.given, **changed}
    if "subscribePattern" in changed:
        del given["subscribe"]
    b = query(kept, **given)
    b.done, b.logged = running.done, running.logged
    return b


@pytest.mark.parametrize(
    ("running", "subscribes", "created"),
    [
        ({"failOnDataLoss": "true"}, "by pattern", "never"),
        (GOES_ON, "to the other", "never"),
        (GOES_ON, "by pattern", "before the run"),
        (GOES_ON, "by pattern", "in the run"),
    ],
    indirect=["running"],
    ids=["ends", "left out", "created before", "created meanwhile"],
)
def test_a_topic_that_was_deleted_before_a_run_of_available_now_is_not_of_its_target(
    running: Query, produce: Produce, query: MakeQuery, brokers: Brokers, subscribes: str, created: str
) -> None:
    kept, going = topics_of(running)
    subscription = {"subscribe": kept} if subscribes == "to the other" else {"subscribePattern": f".*{kept}"}
    b = available_now(running, query, **subscription)
    brokers.delete(going)
    if created == "before the run":
        brokers._cluster.create_topic(going, 1)
    produce(kept, [(None, b"y")] * 5)
    b.cycle.fix_target()
    if created == "in the run":
        brokers._cluster.create_topic(going, 1)
    if b.given["failOnDataLoss"] == "true":
        with pytest.raises(DataLossError, match=f"(?s)Records that should be read are no longer in Kafka:.*{going}-0"):
            b.claim()
        return
    assert b.claim() == {0: (0, 10)}
    b.finish()
    assert b.run_batch() == {0: (10, 15)}
    assert not b.plan()


@pytest.mark.parametrize("created", [False, True], ids=["deleted", "created again"])
def test_a_topic_that_is_deleted_in_a_run_of_available_now_is_of_its_target(
    running: Query, query: MakeQuery, brokers: Brokers, created: bool
) -> None:
    kept, going = topics_of(running)
    b = available_now(running, query, subscribePattern=f".*{kept}")
    b.cycle.fix_target()
    brokers.delete(going)
    if created:
        brokers._cluster.create_topic(going, 1)
    with pytest.raises(DataLossError, match=f"(?s)AvailableNow.*{going}-0"):
        b.claim()
