"""Adoption while brokers are slow: what the ledger does until they answer, and what it has forgotten by then."""

from __future__ import annotations

import pytest

from spark_groupsource.errors import BrokerUnavailable, TopicNotFound
from spark_groupsource.handoff.commit_record import Foreign
from spark_groupsource.partition import TopicPartition
from tests.support.group_in_memory import GroupInMemory

RECORDED, NEW = TopicPartition("orders", 0), TopicPartition("orders", 1)
OTHER = TopicPartition("returns", 0)
PATIENCE_S = 10.0


@pytest.fixture
def group() -> GroupInMemory:
    group = GroupInMemory(patience_s=PATIENCE_S)
    group.commits[RECORDED] = Foreign(5)
    return group


def test_planning_begins_when_each_partition_was_asked_about_once(group: GroupInMemory) -> None:
    group.silent = {NEW}
    group.ledger.acquired(frozenset({RECORDED, NEW}))
    group.answer()
    assert group.ledger.positions == {RECORDED: 5}
    assert not group.ledger.ready()
    group.answer()
    assert group.ledger.ready()
    assert group.ledger.positions == {RECORDED: 5}


def test_a_partition_that_went_away_and_came_back_is_adopted_from_its_record_of_now(group: GroupInMemory) -> None:
    group.ledger.acquired(frozenset({NEW}))
    group.ledger.lost(frozenset({NEW}))
    group.commits[NEW] = Foreign(20)  # another member has had it meanwhile
    group.ledger.acquired(frozenset({NEW}))
    group.answer()
    assert not group.ledger.positions
    group.answer()
    assert group.ledger.positions == {NEW: 20}


def test_errors_about_a_partition_that_was_lost_do_not_count_for_the_next_one(group: GroupInMemory) -> None:
    group.question_fails = BrokerUnavailable("down")
    group.ledger.acquired(frozenset({NEW}))
    group.answer()
    group.ledger.lost(frozenset({NEW}))
    group.now += 100 * PATIENCE_S
    group.ledger.acquired(frozenset({RECORDED}))
    group.answer()
    group.now += PATIENCE_S + 1
    group.ledger.idle()
    with pytest.raises(BrokerUnavailable):
        group.answer()


def test_each_partition_has_a_patience_of_its_own(group: GroupInMemory) -> None:
    """Something waits all the time, but nothing waits for long."""
    for number in range(10):
        silent = TopicPartition("orders", 10 + number)
        group.silent.add(silent)
        group.acquire(silent)
        group.pass_time(PATIENCE_S / 2)
        group.silent = {silent}
    assert len(group.ledger.positions) == 8


def test_a_partition_without_a_leader_delays_no_other_and_is_an_error_when_its_patience_is_over(group: GroupInMemory) -> None:
    group.silent = {NEW}
    group.acquire(NEW)
    group.pass_time(PATIENCE_S / 2)
    group.acquire(OTHER)
    assert group.ledger.positions == {OTHER: 7}
    assert group.ledger.ready()
    group.pass_time(PATIENCE_S / 2)
    with pytest.raises(BrokerUnavailable, match=f"leader of {NEW} did not answer"):
        group.pass_time(1)


def test_what_failed_before_is_asked_about_apart(group: GroupInMemory) -> None:
    """Its leader may delay the answer for long."""
    group.silent = {NEW}
    group.acquire(NEW)
    group.now += 1
    group.ledger.acquired(frozenset({OTHER}))
    assert [set(question.commits) for question in group.survey.waiting] == [{OTHER}, {NEW}]


def test_a_partition_of_a_deleted_topic_is_waited_for_without_an_end(group: GroupInMemory) -> None:
    group.deleted = {"returns"}
    group.acquire(RECORDED, OTHER)
    for _ in range(10):
        group.pass_time(PATIENCE_S)
    assert group.ledger.positions == {RECORDED: 5}
    group.deleted = set()
    group.pass_time(1)
    assert group.ledger.positions == {RECORDED: 5, OTHER: 7}, "the topic was created again"


def test_no_time_runs_for_a_deleted_topic_while_the_coordinator_is_down(group: GroupInMemory) -> None:
    group.deleted = {"returns"}
    group.acquire(RECORDED, OTHER)
    group.coordinator_is_down = True
    for _ in range(3):
        group.pass_time(PATIENCE_S)
    group.coordinator_is_down = False
    group.deleted, group.silent = set(), {OTHER}
    group.pass_time(1)
    group.pass_time(PATIENCE_S)
    with pytest.raises(BrokerUnavailable, match="leader"):
        group.pass_time(1)


def test_a_coordinator_that_is_down_ends_the_adoption_when_the_patience_is_over(group: GroupInMemory) -> None:
    group.coordinator_is_down = True
    group.acquire(RECORDED)
    group.pass_time(PATIENCE_S)
    with pytest.raises(BrokerUnavailable, match="the coordinator is down"):
        group.pass_time(1)


def test_a_topic_that_only_the_coordinator_knows_to_be_deleted_does_not_delay_the_others(group: GroupInMemory) -> None:
    group.refused = {"returns"}
    group.acquire(RECORDED, NEW, OTHER)
    assert group.ledger.positions == {RECORDED: 5, NEW: 7}
    group.pass_time(PATIENCE_S / 2)
    group.deleted = {"returns"}
    for _ in range(3):
        group.pass_time(PATIENCE_S)
    assert not group.ledger.in_flight(frozenset({OTHER}))


def test_a_topic_that_brokers_and_coordinator_disagree_about_is_an_error_when_the_patience_is_over(group: GroupInMemory) -> None:
    group.refused = {"returns"}
    group.acquire(OTHER)
    group.pass_time(PATIENCE_S)
    with pytest.raises(TopicNotFound):
        group.pass_time(1)


def test_partitions_are_adopted_while_others_drain_but_not_those_that_drain(group: GroupInMemory) -> None:
    group.acquire(RECORDED)
    group.ledger.acquired(frozenset({NEW, OTHER}))
    group.ledger.draining(frozenset({RECORDED, OTHER}))
    group.pass_time(0)
    assert group.ledger.positions.keys() == {NEW}
    assert OTHER not in group.commits
    group.ledger.released(frozenset({RECORDED, OTHER}))
    group.acquire(OTHER)
    assert group.ledger.positions.keys() == {NEW, OTHER}
