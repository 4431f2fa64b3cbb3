"""When a member and its coordinator disagree for so long that an answer must be lost, and when it is only a rebalance."""

from __future__ import annotations

import pytest

from spark_groupsource.brokers.group_view import GroupMember
from spark_groupsource.group.assignment import Assignment
from spark_groupsource.group.coordinator_watch import COMPARE_AGAIN_S, COMPARE_EVERY_S
from spark_groupsource.group.disagreement import DISAGREES_S, Disagreement
from spark_groupsource.partition import TopicPartition

LAST_S = DISAGREES_S


def some(*numbers: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition("orders", number) for number in numbers)


def own(*numbers: int, draining: frozenset[TopicPartition] = frozenset()) -> Assignment:
    return Assignment(some(*numbers), draining, 5, "me")


def told(assigned: frozenset[TopicPartition], target: frozenset[TopicPartition] | None = None) -> GroupMember:
    """This member by the coordinator's word. Where nothing moves, its target is what is assigned to it."""
    return GroupMember("me", "client", None, "host", assigned, assigned if target is None else target)


Answer = tuple[float, Assignment, "GroupMember | None"]


def after(*answers: Answer) -> Disagreement:
    """What is known after these answers, each with its time."""
    known = Disagreement()
    for now, has, assigned in answers:
        known = known.after(has, assigned, now)
    return known


@pytest.mark.parametrize(
    "word",
    [told(some(0, 1), some(0, 1)), told(some(0, 1, 2, 3), some(0, 1))],
    ids=["without what it has to give back", "with it, as Kafka 4.4"],
)
def test_a_revocation_that_was_forgotten_lasts(word: GroupMember) -> None:
    known = after((0, own(0, 1, 2, 3), word), (LAST_S, own(0, 1, 2, 3), word))
    assert known.lasting(LAST_S - 1) == some()
    assert known.lasting(LAST_S) == some(2, 3)


def test_a_gain_that_was_forgotten_lasts() -> None:
    """Partition 4 is still with another member."""
    word = told(some(2, 3), some(2, 3, 4))
    known = after((0, own(3), word), (LAST_S, own(3), word))
    assert known.lasting(LAST_S) == some(2)


def test_each_partition_has_its_own_time() -> None:
    """A rebalance that goes on differs in other partitions each time."""
    known = after((0, own(0, 1, 2), told(some(0))), (10, own(0, 1), told(some(0))), (LAST_S, own(0, 4), told(some(0))))
    assert known.lasting(LAST_S) == some()
    assert known.lasting(2 * LAST_S) == some(4)


def test_a_member_that_drains_is_left_alone_and_its_time_begins_anew() -> None:
    draining = own(0, 1, draining=some(1))
    known = after((0, own(0, 1), told(some(0))), (5, draining, told(some(0))), (LAST_S, draining, told(some(0))))
    assert known.since == {}
    assert known.after(own(0, 1), told(some(0)), LAST_S + 1).lasting(2 * LAST_S) == some()


def test_a_member_that_waits_for_the_drain_of_another_agrees_with_the_coordinator() -> None:
    """The coordinator assigns a partition when its last owner has given it back, and not before."""
    waits = told(some(0, 1), some(0, 1, 2))
    assert after((0, own(0, 1), waits), (1000, own(0, 1), waits)).since == {}


def test_a_member_that_has_given_back_what_the_coordinator_still_counts_agrees_with_it() -> None:
    """On Kafka 4.4 that is assigned until the member's next heartbeat."""
    assert after((0, own(0), told(some(0, 1), some(0)))).since == {}


def test_a_member_of_the_classic_protocol_is_left_alone() -> None:
    classic = GroupMember("me", "client", None, "host", some(0))
    assert after((0, own(0, 1), classic)).since == {}


def test_an_answer_that_says_nothing_of_this_member_begins_anew() -> None:
    known = after((0, own(0, 1), told(some(0))), (10, own(0, 1), None), (LAST_S, own(0, 1), told(some(0))))
    assert known.lasting(LAST_S) == some()


def test_a_member_that_has_joined_again_in_vain_waits_twice_as_long_each_time_until_they_agree() -> None:
    known = after((0, own(0, 1), told(some(0)))).mend()
    assert (known.since, known.patience_s) == ({}, 2 * LAST_S)
    known = known.after(own(0, 1), told(some(0)), 0).after(own(0, 1), None, 1).after(own(0, 1), told(some(0)), 2)
    assert known.lasting(2 * LAST_S) == some()
    assert known.lasting(2 + 2 * LAST_S) == some(1)
    assert known.mend().patience_s == 4 * LAST_S
    assert known.mend().after(own(0), told(some(0)), 3) == Disagreement()


def test_it_is_noticed_within_a_minute() -> None:
    assert COMPARE_EVERY_S + DISAGREES_S + COMPARE_AGAIN_S < 60
