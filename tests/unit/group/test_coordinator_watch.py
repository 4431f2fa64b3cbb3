"""When the coordinator is asked what it has assigned to this member, and what becomes of the answers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import cast

import pytest

from spark_groupsource.brokers.group_admin_process import GroupAdminProcess
from spark_groupsource.brokers.group_view import GroupMember
from spark_groupsource.errors import BrokerUnavailable, NotAuthorized
from spark_groupsource.group.coordinator_watch import (
    COMPARE_AGAIN_S,
    COMPARE_EVERY_S,
    DISAGREES_S,
    CoordinatorWatch,
    Disagreement,
)
from spark_groupsource.group.member import LOOK_AT_MEMBER_EVERY_S, Assignment, Member, State
from spark_groupsource.partition import TopicPartition


def some(*numbers: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition("orders", number) for number in numbers)


class Play:
    """A member, its coordinator and the time, as the thread sees them. What happens when, a test says."""

    def __init__(self) -> None:
        self.now = 0.0
        self.state = State.MEMBER
        self.assignment = Assignment(some(0, 1), generation=3, member_id="me")
        self.timeouts = 0
        self.answer = some(0, 1)
        self.failure: Exception | None = None
        self.asked: list[float] = []
        self.closed = False
        self.rejoins: list[tuple[float, str]] = []
        self.happens: dict[float, Callable[[], None]] = {}

    def member(self, group: str, member_id: str) -> GroupMember:
        assert (group, member_id) == ("billing", "me")
        self.asked.append(self.now)
        if self.failure is not None:
            raise self.failure
        return GroupMember(member_id, "client", None, "host", self.answer, self.answer)

    def close(self) -> None:
        self.closed = True

    def rejoin(self, seen: Assignment, why: str) -> None:
        assert seen == self.assignment
        self.rejoins.append((self.now, why))

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for at in sorted(at for at in self.happens if at <= self.now):
            self.happens.pop(at)()

    def until(self, seconds: float) -> Play:
        """Run the thread until then; the member leaves at the end."""

        def leave() -> None:
            self.state = State.LEAVING

        self.happens[seconds] = leave
        watch = CoordinatorWatch(
            cast("Member", self), "billing", cast(GroupAdminProcess, self), clock=lambda: self.now, sleep=self.sleep
        )
        watch.run()
        assert self.closed
        return self


@pytest.fixture
def play() -> Play:
    return Play()


def test_who_agrees_is_asked_seldom_and_left_alone(play: Play) -> None:
    play.until(3600)
    assert len(play.asked) <= 3600 / COMPARE_EVERY_S
    assert play.rejoins == []


def test_a_difference_that_lasts_is_asked_for_more_often_and_has_the_member_join_again_once(play: Play) -> None:
    def mended() -> None:
        play.answer = some(0, 1)

    play.answer = some(0, 1, 2)
    play.happens[COMPARE_EVERY_S + DISAGREES_S + 2 * COMPARE_AGAIN_S] = mended
    play.until(600)
    ((at, why),) = play.rejoins
    assert COMPARE_EVERY_S + DISAGREES_S <= at <= COMPARE_EVERY_S + DISAGREES_S + COMPARE_AGAIN_S < 60
    assert "this driver has been missing orders-2, which is assigned to it" in why


def test_after_a_request_that_timed_out_it_is_asked_soon(play: Play) -> None:
    def timed_out() -> None:
        play.timeouts += 1

    play.happens[3.0] = timed_out
    play.answer = some(0)
    play.until(3 + DISAGREES_S + 2 * COMPARE_AGAIN_S + 2)
    assert play.asked[0] <= 3 + COMPARE_AGAIN_S + 2 * LOOK_AT_MEMBER_EVERY_S
    ((_, why),) = play.rejoins
    assert "this driver has had orders-1, which is assigned to other members" in why


@pytest.mark.parametrize("failure", [BrokerUnavailable("away"), NotAuthorized("no DESCRIBE")])
def test_a_coordinator_that_does_not_answer_changes_nothing_and_is_logged_once(
    play: Play, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "spark_groupsource.group.coordinator_watch")
    play.failure = failure
    play.until(600)
    assert len(play.asked) > 10
    assert play.rejoins == []
    assert [record.getMessage() for record in caplog.records if str(failure) in record.getMessage()] == [
        f"failed to ask the coordinator for this driver's assignment, will retry: {failure}"
    ]


def test_an_assignment_that_changes_while_the_coordinator_is_asked_is_not_compared(play: Play) -> None:
    def member(group: str, member_id: str) -> GroupMember:
        play.assignment = Assignment(some(0, 1), generation=play.assignment.generation + 1, member_id="me")
        return ask(group, member_id)

    ask, play.answer = play.member, some(0)
    play.member = member  # type: ignore[method-assign]
    assert play.until(600).rejoins == []


@pytest.mark.parametrize("state", [State.JOINING, State.DRAINING])
def test_a_member_that_joins_or_drains_is_not_compared(play: Play, state: State) -> None:
    play.state = state
    play.answer = some(0)
    assert play.until(600).asked == []


LAST_S = DISAGREES_S


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
