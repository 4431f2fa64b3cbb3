"""Where a stream looks for the plans that other streams have confirmed, for the streams that run, and how often."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

import pytest

from spark_groupsource.errors import BrokerUnavailable, GroupKafkaError, NotAuthorized
from spark_groupsource.group.evidence import (
    ADOPTED_WITHIN_S,
    Answer,
    ConfirmedPlans,
    Question,
    find_out,
    progress_record,
)
from spark_groupsource.handoff.commit_record import CommitRecord, GroupCommit, OtherFormat, OwedRange, mark_of
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.partition import OffsetRange, TopicPartition
from spark_groupsource.timeouts import ASK_GROUP_EVERY_S
from tests.support.held_questions import HeldQuestions

T = TypeVar("T")

MINE, THEIRS, SHARED = TopicPartition("mine", 0), TopicPartition("theirs", 0), TopicPartition("mine", 1)
ME = Stream("me", logged=4, durable=4)
HOLDING = CommitRecord(stream="me", logged=4, done=4, next=20, owed=(OwedRange("them", 7, 0, 10),))
TWO = HOLDING.model_copy(update={"owed": (*HOLDING.owed, OwedRange("third", 2, 10, 20))})


def done(stream: str, plan: int, member: str | None = None) -> CommitRecord:
    return CommitRecord(stream=stream, logged=plan, done=plan, next=0, member=member and mark_of(member))


class Group:
    """What a group holds, and which requests it got."""

    def __init__(self) -> None:
        self.here: dict[TopicPartition, GroupCommit] = {MINE: HOLDING}
        self.elsewhere: list[GroupCommit] = []
        self.present = {"me-1"}
        self.failing: dict[str, GroupKafkaError] = {}
        self.asked: list[str] = []

    def subscribed(self) -> Mapping[TopicPartition, GroupCommit]:
        return self._answer("here", lambda: dict(self.here))

    def others(self) -> Iterable[GroupCommit]:
        return self._answer("elsewhere", lambda: list(self.elsewhere))

    def members(self) -> frozenset[str]:
        return self._answer("members", lambda: frozenset(map(mark_of, self.present)))

    def pause(self) -> None:
        self.asked.append("pause")

    def _answer(self, what: str, answer: Callable[[], T]) -> T:
        self.asked.append(what)
        if what in self.failing:
            raise self.failing[what]
        return answer()


class Plans(ConfirmedPlans):
    """Questions are answered when a test says so."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.now = 0.0
        super().__init__(group, clock=lambda: self.now)
        self.held: HeldQuestions[Question, Answer] = HeldQuestions(partial(find_out, group))
        self._questions = self.held

    def answer(self, *, failed: bool = False) -> None:
        """The group answers, or fails to, and the consumer's thread takes the answer."""
        assert self.held.answer()
        assert self.take() is not failed

    def find(self, holding: CommitRecord = HOLDING, *, liveness_matters: bool = False, failed: bool = False) -> list[str]:
        """Ask, and return which requests that took."""
        self.group.asked = []
        self.ask(ME, [MINE], [holding], liveness_matters=liveness_matters, interval_s=0)
        self.answer(failed=failed)
        return [request for request in self.group.asked if request != "pause"]

    def protects(self, owned: tuple[TopicPartition, ...] = (MINE,)) -> frozenset[str]:
        return self.protected([HOLDING], owned)


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
def plans(group: Group) -> Plans:
    return Plans(group)


def test_no_other_topic_is_asked_for_when_the_subscribed_ones_settle_everything(group: Group, plans: Plans) -> None:
    group.here = {MINE: done("them", 7), SHARED: OtherFormat(3, 5)}
    group.elsewhere = [done("them", 9)]
    assert plans.find() == ["here"]
    assert plans.done(ME)["them"] == 7
    owing_itself = HOLDING.model_copy(update={"owed": (OwedRange("me", 5, 0, 10),)})
    assert plans.find(owing_itself) == ["here"], "its own commit log settles its own plans"


def test_other_topics_are_asked_for_a_plan_at_once_and_then_now_and_then(group: Group, plans: Plans) -> None:
    assert plans.find() == ["here", "elsewhere"]
    assert plans.find() == ["here"], "they were just asked"
    assert plans.find(TWO) == ["here", "elsewhere"], "another stream's plan"
    plans.now = ASK_GROUP_EVERY_S
    group.elsewhere = [done("them", 7), done("me", 9)]
    assert plans.find() == ["here", "elsewhere"]
    assert plans.done(ME) == {"me": 4, "them": 7}, "no record knows more of a stream than its own checkpoint"


def test_nothing_is_asked_before_the_interval_is_over_or_while_nothing_is_held(group: Group, plans: Plans) -> None:
    plans.find()
    for now, expected in ((1.9, 0), (2.0, 1)):
        plans.now = now
        plans.ask(ME, [MINE], [HOLDING], liveness_matters=False, interval_s=2)
        assert len(plans.held.waiting) == expected
    plans.answer()
    plans.ask(ME, [MINE], [done("me", 4)], liveness_matters=False, interval_s=0)
    assert plans.held.waiting == []


def test_a_stream_is_protected_until_other_topics_were_asked_for_its_plan(group: Group, plans: Plans) -> None:
    assert plans.protects() == {"them"}, "nothing was asked yet"
    group.failing = {"elsewhere": BrokerUnavailable("no answer")}
    plans.find()
    assert plans.protects() == {"them"}, "it may have confirmed the range elsewhere: nobody rereads it"
    group.failing = {}
    assert plans.find() == ["here"], "a request that failed is not repeated at once"
    plans.now = ASK_GROUP_EVERY_S
    plans.find()
    assert plans.protects() == frozenset()


@pytest.mark.parametrize("error", [BrokerUnavailable("no answer"), NotAuthorized("no")], ids=type)
def test_an_error_of_the_subscribed_topics_changes_nothing(group: Group, plans: Plans, error: GroupKafkaError) -> None:
    group.here = {MINE: done("them", 7)}
    plans.find()
    group.failing = {"here": error}
    plans.find(failed=True)
    assert plans.done(ME)["them"] == 7
    assert not plans.unanswered


def test_an_unexpected_error_is_logged_and_the_next_question_is_answered(
    group: Group, plans: Plans, caplog: pytest.LogCaptureFixture
) -> None:
    plans.ask(ME, [MINE], [HOLDING], liveness_matters=False, interval_s=0)
    question = plans.held.waiting[0]
    plans.held.waiting[0] = Question(None, question.worth_a_search, False)  # type: ignore[arg-type]
    plans.answer(failed=True)
    assert "TypeError" in caplog.text
    assert plans.find() == ["here", "elsewhere"]


def test_a_stream_is_protected_while_it_has_the_record_of_another_member_s_partition(group: Group, plans: Plans) -> None:
    group.here[SHARED] = done("them", 6)
    plans.find()
    assert plans.protects() == {"them"}
    assert plans.protects((MINE, SHARED)) == frozenset()


def test_a_question_waits_while_another_one_is_open(group: Group, plans: Plans) -> None:
    plans.ask(ME, [MINE], [HOLDING], liveness_matters=False, interval_s=0)
    assert plans.unanswered
    plans.ask(ME, [MINE], [TWO], liveness_matters=False, interval_s=0)
    assert len(plans.held.waiting) == 1
    plans.answer()
    assert not plans.unanswered
    assert plans.protected([TWO], [MINE]) == {"third"}
    plans.answer()
    assert plans.protected([TWO], [MINE]) == frozenset()
    assert plans.take() is False


def test_an_answer_from_before_an_adoption_does_not_count(group: Group, plans: Plans) -> None:
    plans.find()
    plans.ask(ME, [MINE], [HOLDING], liveness_matters=False, interval_s=0)
    group.here[SHARED] = done("them", 6)
    assert plans.held.answer()
    plans.adopted()
    plans.ask(ME, [MINE], [HOLDING], liveness_matters=False, interval_s=0)
    group.here[SHARED] = done("third", 6)
    assert not plans.take()
    assert plans.protects() == {"them"}, "it was not asked for since"
    plans.answer()
    assert plans.protects() == {"third"}


class TestARecordThatAnotherClientKeeps:
    """The member that wrote it has left, and whoever owns the partition adopts nothing."""

    @pytest.fixture(autouse=True)
    def _written_by_a_member_that_left(self, group: Group) -> None:
        group.here[SHARED] = done("them", 6, "them-1")

    def found(self, plans: Plans) -> list[str]:
        return plans.find(liveness_matters=True)

    def test_shows_its_stream_as_alive_until_two_answers_agree(self, group: Group, plans: Plans) -> None:
        assert self.found(plans) == ["here", "elsewhere"], "nobody seemed to be alive"
        assert self.found(plans) == ["here", "members"]
        plans.now = ADOPTED_WITHIN_S
        assert plans.protects() == {"them"}
        assert self.found(plans)[-1] == "members"
        assert plans.protects() == frozenset()
        group.here[SHARED] = done("them", 6, "them-2")
        group.present.add("them-2")
        self.found(plans)
        assert plans.protects() == {"them"}, "its driver was restarted"

    def test_is_not_looked_into_where_nothing_depends_on_it(self, plans: Plans) -> None:
        plans.find()
        assert plans.find() == ["here"]

    def test_shows_its_stream_as_alive_while_the_members_are_not_known(self, group: Group, plans: Plans) -> None:
        group.failing = {"members": NotAuthorized("no")}
        for _ in range(4):
            self.found(plans)
            plans.now += ADOPTED_WITHIN_S
        assert plans.protects() == {"them"}

    def test_that_does_not_name_its_member_shows_its_stream_as_alive(self, group: Group, plans: Plans) -> None:
        group.here[SHARED] = done("them", 6)
        for _ in range(4):
            self.found(plans)
            plans.now += ADOPTED_WITHIN_S
        assert plans.protects() == {"them"}

    def test_needs_its_helper_no_longer_than_something_is_held(self, group: Group, plans: Plans) -> None:
        self.found(plans)
        self.found(plans)
        plans.ask(ME, [MINE], [HOLDING], liveness_matters=True, interval_s=0)
        group.asked = []
        plans.ask(ME, [MINE], [], liveness_matters=True, interval_s=0)
        assert group.asked == [], "a question is open"
        plans.answer()
        group.asked = []
        plans.ask(ME, [MINE], [], liveness_matters=True, interval_s=0)
        plans.ask(ME, [MINE], [], liveness_matters=True, interval_s=0)
        assert group.asked == ["pause"]


def test_a_stream_that_released_its_claims_open_shows_in_another_record_that_they_are_done() -> None:
    stream = Stream("me", logged=5, durable=5, ranges={THEIRS: (OffsetRange(0, 10),)})
    (shown,) = progress_record(stream, {MINE: done("me", 4)}).items()
    assert (shown[0], shown[1].done, shown[1].logged) == (MINE, 5, 5)
    assert progress_record(stream, {MINE: done("me", 5)}) == {}
    assert progress_record(stream, {}) == {}
    assert progress_record(stream, {MINE: done("me", 4), THEIRS: done("me", 4)}) == {}, "its next claim shows it"
