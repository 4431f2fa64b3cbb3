"""The rules of the ledger: what it writes into the group, when a claim counts, and what it does with partitions that move.

Each test arranges what the group holds, has the ledger take a few steps, and looks at what the group holds then
(tests/support/group_in_memory.py). To add a rule, write its test here first. A rule that has to hold in every order of steps and
crashes also belongs into the simulation: a mistake in it is seeded in tests/simulation/faults.py.
"""

from __future__ import annotations

import pytest

from spark_groupsource.errors import BrokerUnavailable, CheckpointBehindGroup, CommitOutcomeUnknown, GenerationChanged
from spark_groupsource.group.ledger import BLOCKED_AFTER_S, SETTLE_BETWEEN_TRIGGERS_S
from spark_groupsource.handoff.commit_record import CommitRecord, Foreign, OpenRange, OwedRange
from spark_groupsource.handoff.losses import Cause, PartitionLoss
from spark_groupsource.handoff.rules import HeldClaims
from spark_groupsource.partition import OffsetRange, TopicPartition
from spark_groupsource.timeouts import RETRY_LATER_S
from tests.support.group_in_memory import GroupInMemory

ORDERS, MORE, RETURNS = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("returns", 0)
PLANNED = {ORDERS: (OffsetRange(7, 9),)}
"""A plan of the first records of a partition that has no commit yet."""
ME = "a" * 12


@pytest.fixture
def group() -> GroupInMemory:
    return GroupInMemory()


class TestAClaim:
    def test_is_in_the_group_before_its_ranges_are_read(self, group: GroupInMemory) -> None:
        group.acquire(ORDERS)
        assert group.claim(0, PLANNED).granted == PLANNED
        record = group.record(ORDERS)
        assert (record.open, record.next, record.offset) == ((OpenRange(7, 9),), 9, 7)

    def test_that_is_refused_does_not_count_and_is_made_by_the_next_attempt(self, group: GroupInMemory) -> None:
        group.acquire(ORDERS)
        group.commit_fails = GenerationChanged("a rebalance")
        with pytest.raises(GenerationChanged):
            group.claim(0, PLANNED)
        assert group.ledger.positions == {ORDERS: 7}
        group.commit_fails = None
        assert group.claim_again(0, PLANNED).granted == PLANNED

    def test_closes_the_plan_before_it_in_the_same_commit(self, group: GroupInMemory) -> None:
        group.acquire(ORDERS, MORE)
        group.claim(0, {ORDERS: (OffsetRange(7, 9),), MORE: (OffsetRange(7, 8),)})
        group.sent.clear()
        group.claim(1, {ORDERS: (OffsetRange(9, 10),)})
        assert len(group.sent) == 1
        assert group.record(ORDERS).open == (OpenRange(9, 10),)
        assert group.record(MORE).open == ()

    def test_is_left_to_the_next_plan_if_the_partition_left_meanwhile(self, group: GroupInMemory) -> None:
        """Another member may have read the records."""
        group.acquire(ORDERS)
        group.ledger.propose(PLANNED)
        group.ledger.lost(frozenset({ORDERS}))
        group.acquire(ORDERS)
        assert group.claim_again(0, PLANNED).granted == {}
        assert group.record(ORDERS).next == 7

    def test_waits_until_somebody_has_adopted_the_partition(self, group: GroupInMemory) -> None:
        assert group.claim_again(0, PLANNED).waiting == {ORDERS}
        group.commits[ORDERS] = CommitRecord(stream="them", logged=4, done=4, next=7)
        claims = group.claim_again(0, PLANNED)
        assert (claims.granted, claims.waiting) == ({}, frozenset())


def test_a_plan_keeps_only_partitions_whose_position_is_still_the_same(group: GroupInMemory) -> None:
    group.acquire(ORDERS, MORE, RETURNS)
    planned = {ORDERS: (OffsetRange(7, 9),), MORE: (OffsetRange(6, 9),), RETURNS: (OffsetRange(7, 9),)}
    group.ledger.draining(frozenset({RETURNS}))
    assert group.ledger.propose(planned) == PLANNED


class TestAPartitionThatIsAskedBack:
    def test_is_in_flight_from_its_plan_until_its_claim_is_closed(self, group: GroupInMemory) -> None:
        asked_back = frozenset({ORDERS})
        group.acquire(ORDERS)
        assert not group.ledger.in_flight(asked_back)
        group.ledger.propose(PLANNED)
        assert group.ledger.in_flight(asked_back)
        group.claim_again(0, PLANNED)
        group.ledger.draining(asked_back)
        assert group.ledger.in_flight(asked_back)
        group.ledger.durable(0)
        assert not group.ledger.in_flight(asked_back)

    def test_is_not_waited_for_while_a_claim_waits_for_another_member(self, group: GroupInMemory) -> None:
        """That member may wait for this partition."""
        group.acquire(ORDERS)
        waits = {**PLANNED, RETURNS: (OffsetRange(0, 5),)}
        group.claim(0, waits)
        group.now += BLOCKED_AFTER_S / 2
        group.claim_again(0, waits)
        assert group.ledger.in_flight(frozenset({ORDERS}))
        group.now += BLOCKED_AFTER_S / 2
        assert not group.ledger.in_flight(frozenset({ORDERS})), "time counts from the first attempt"
        group.commits[RETURNS] = CommitRecord(stream="them", logged=4, done=4, next=5)
        group.claim_again(0, waits)
        assert group.ledger.in_flight(frozenset({ORDERS}))

    def test_is_released_with_its_claim_closed_if_that_is_reported_by_then(self, group: GroupInMemory) -> None:
        group.acquire(ORDERS)
        group.claim(0, PLANNED)
        group.ledger.report_durable(ME, 0)
        group.ledger.released(frozenset({ORDERS}))
        assert group.record(ORDERS).open == ()
        assert group.ledger.positions == {}

    def test_is_released_with_its_claim_open_if_the_commit_is_refused(
        self, group: GroupInMemory, caplog: pytest.LogCaptureFixture
    ) -> None:
        group.acquire(ORDERS)
        group.claim(0, PLANNED)
        group.ledger.report_durable(ME, 0)
        group.commit_fails = BrokerUnavailable("the coordinator is down")
        group.ledger.released(frozenset({ORDERS}))
        assert group.record(ORDERS).open == (OpenRange(7, 9),)
        assert "claims of finished micro-batches will stay unconfirmed" in caplog.text

    def test_is_no_reason_to_go_on_after_a_commit_without_an_answer(self, group: GroupInMemory) -> None:
        """It may arrive late, and undo the next claim."""
        group.acquire(ORDERS)
        group.claim(0, PLANNED)
        group.ledger.report_durable(ME, 0)
        group.commit_fails = CommitOutcomeUnknown("no answer")
        with pytest.raises(CommitOutcomeUnknown):
            group.ledger.released(frozenset({ORDERS}))


class TestAReportThatAPlanIsDurable:
    @pytest.fixture(autouse=True)
    def _claimed(self, group: GroupInMemory) -> None:
        group.acquire(ORDERS)
        group.claim(0, PLANNED)

    def test_closes_its_claims_between_triggers(self, group: GroupInMemory) -> None:
        group.ledger.report_durable(ME, 0)
        assert group.record(ORDERS).open
        group.ledger.idle()
        assert (group.record(ORDERS).open, group.record(ORDERS).offset, group.ledger.closed) == ((), 9, 0)

    def test_is_tried_again_after_a_commit_that_failed(self, group: GroupInMemory) -> None:
        group.ledger.report_durable(ME, 0)
        group.commit_fails = GenerationChanged("a rebalance")
        group.ledger.idle()
        group.commit_fails = None
        group.ledger.idle()
        assert group.record(ORDERS).open, "not at once"
        group.now += RETRY_LATER_S
        group.ledger.idle()
        assert group.record(ORDERS).open == ()

    def test_is_waited_for_if_an_earlier_run_has_closed_the_claims_already(self, group: GroupInMemory) -> None:
        """The query was stopped in this plan, and started again at once: the earlier run reads the same report."""
        group.ledger.lost(frozenset({ORDERS}))
        group.commits[ORDERS] = CommitRecord(stream=ME, logged=0, done=0, next=9)
        group.acquire(ORDERS)
        assert group.ledger.positions == {}
        group.ledger.report_durable(ME, 0)
        group.pass_time(1)
        assert group.ledger.positions == {ORDERS: 9}

    def test_that_never_comes_does_not_hide_a_second_driver(self, group: GroupInMemory) -> None:
        group.ledger.lost(frozenset({ORDERS}))
        group.commits[ORDERS] = CommitRecord(stream=ME, logged=0, done=0, next=9)
        group.acquire(ORDERS)
        group.now += 1000
        with pytest.raises(CheckpointBehindGroup):
            group.pass_time(1)

    def test_drops_also_what_is_owed_to_this_stream_for_that_plan(self, group: GroupInMemory) -> None:
        """The partition was with another stream meanwhile."""
        group.ledger.lost(frozenset({ORDERS}))
        owing = CommitRecord(stream="them", logged=4, done=4, next=9, owed=(OwedRange(ME, 0, 7, 9),))
        group.commits[ORDERS] = owing
        group.acquire(ORDERS)
        assert group.record(ORDERS).owed
        group.ledger.report_durable(ME, 0)
        group.ledger.idle()
        assert group.record(ORDERS).owed == ()

    def test_of_the_next_trigger_drops_what_is_owed_to_this_stream_too(self, group: GroupInMemory) -> None:
        """The last trigger of a run with AvailableNow: nobody would drop it later."""
        group.ledger.lost(frozenset({ORDERS}))
        owing = CommitRecord(stream="them", logged=4, done=4, next=9, owed=(OwedRange(ME, 0, 7, 9),))
        group.commits[ORDERS] = owing
        group.acquire(ORDERS)
        group.ledger.durable(0)
        group.ledger.confirm()
        assert group.record(ORDERS).owed == ()
        assert group.record(ORDERS).done == 0, "others may hold more ranges of this plan, and learn here that it is done"
        assert not group.ledger.may_be_claimed

    def test_shows_that_nothing_stays_claimed_also_of_what_was_released_open(self, group: GroupInMemory) -> None:
        assert not group.ledger.may_be_claimed
        group.ledger.lost(frozenset({ORDERS}))
        assert group.ledger.may_be_claimed
        group.acquire(MORE)
        assert group.ledger.may_be_claimed
        group.ledger.durable(0)
        group.ledger.confirm()
        assert not group.ledger.may_be_claimed

    def test_leaves_a_claim_in_a_deleted_topic_and_no_drain_waits_for_it(self, group: GroupInMemory) -> None:
        group.acquire(RETURNS)
        group.claim(1, {ORDERS: (OffsetRange(9, 10),), RETURNS: (OffsetRange(7, 8),)})
        group.refused = {"returns"}
        group.ledger.report_durable(ME, 1)
        group.ledger.idle()
        assert group.record(ORDERS).open == ()
        assert group.record(RETURNS).open
        assert not group.ledger.in_flight(frozenset({ORDERS, RETURNS}))


def test_after_a_loss_the_partition_is_read_on_behind_it_and_one_of_a_deleted_topic_waits(group: GroupInMemory) -> None:
    group.acquire(ORDERS, RETURNS)
    expired = PartitionLoss(ORDERS, Cause.EXPIRED, 7, (OffsetRange(7, 20),), 20)
    moved_meanwhile = PartitionLoss(MORE, Cause.EXPIRED, 7, (OffsetRange(7, 20),), 20)
    deleted = PartitionLoss(RETURNS, Cause.DELETED, 7)
    group.deleted = {"returns"}
    group.ledger.continue_after([expired, moved_meanwhile, deleted])
    assert group.ledger.positions == {ORDERS: 20}
    group.deleted = set()
    group.pass_time(1)
    assert group.ledger.positions == {ORDERS: 20, RETURNS: 7}, "the topic was created again"


def test_a_topic_that_only_the_coordinator_knows_to_be_deleted_holds_up_no_other(group: GroupInMemory) -> None:
    partitions = [TopicPartition(f"topic-{number:02}", 0) for number in range(64)]
    group.refused = {"topic-07", "topic-50"}
    group.acquire(*partitions)
    assert group.ledger.positions.keys() == {partition for partition in partitions if partition.topic not in group.refused}


class TestRangesThatAreHeldForAnotherStream:
    """What its records show as done is asked on another thread."""

    DONE = CommitRecord(stream="them", logged=3, done=3, next=9)
    HELD = CommitRecord(stream="them", logged=3, done=2, next=20, open=(OpenRange(0, 20),))

    @pytest.fixture
    def group(self) -> GroupInMemory:
        group = GroupInMemory()
        group.commits[ORDERS] = self.HELD
        return group

    def owed(self, group: GroupInMemory) -> list[str]:
        return [entry.stream for entry in group.record(ORDERS).owed]

    def test_are_dropped_when_the_answer_has_come_and_planning_waits_for_the_first_one(self, group: GroupInMemory) -> None:
        group.commits[RETURNS] = self.DONE
        group.acquire(ORDERS)
        assert self.owed(group) == ["them"]
        assert not group.ledger.ready()
        group.answer_about_others()
        assert group.ledger.ready()
        assert self.owed(group) == []

    def test_are_known_to_be_done_from_what_the_group_held_before_joining(self, group: GroupInMemory) -> None:
        group.commits[RETURNS] = self.DONE
        group.ledger.note_group(group.subscribed())
        group.acquire(ORDERS)
        assert self.owed(group) == []
        assert group.ledger.ready()

    def test_are_logged_once_they_are_known_to_be_held(self, group: GroupInMemory, caplog: pytest.LogCaptureFixture) -> None:
        group.acquire(ORDERS)
        assert "offsets are held" not in caplog.text
        group.answer_about_others()
        assert caplog.text.count("are held: stream them claimed them") == 1
        assert group.ledger.held == {ORDERS: 20}

    def test_are_asked_about_with_each_plan_and_between_triggers(self, group: GroupInMemory) -> None:
        group.acquire(ORDERS)
        group.answer_about_others()
        group.now += 3
        group.ledger.begin_plan()
        group.answer_about_others()
        assert self.owed(group) == ["them"]
        group.commits[RETURNS] = self.DONE
        group.pass_time(SETTLE_BETWEEN_TRIGGERS_S)
        group.answer_about_others()
        assert self.owed(group) == []

    def test_are_read_here_with_reread_and_claimed_in_the_commit_that_takes_them(self) -> None:
        group = GroupInMemory(held_claims=HeldClaims(reread_after_s=0))
        group.commits[ORDERS] = self.HELD
        group.acquire(ORDERS)
        assert group.ledger.plan_input().reread == {}, "no answer has shown yet that the other stream is dead"
        group.answer_about_others()
        planned = {ORDERS: (*group.ledger.plan_input().reread[ORDERS], OffsetRange(20, 22))}
        assert group.claim(0, planned).granted == {ORDERS: (OffsetRange(0, 20), OffsetRange(20, 22))}
        assert self.owed(group) == []

    def test_are_read_here_only_by_an_answer_to_a_question_after_the_adoption(self) -> None:
        """A stream may have come since an earlier question."""
        group = GroupInMemory(held_claims=HeldClaims(reread_after_s=0))
        group.commits[ORDERS] = self.HELD
        group.acquire(ORDERS)
        group.ledger.lost(frozenset({ORDERS}))
        group.acquire(ORDERS)
        group.answer_about_others()
        assert group.ledger.plan_input().reread == {}
        group.answer_about_others()
        assert group.ledger.plan_input().reread == {ORDERS: (OffsetRange(0, 20),)}

    def test_are_asked_about_although_the_adoption_of_other_partitions_failed(self, group: GroupInMemory) -> None:
        group.commits[RETURNS] = Foreign(3)
        group.refused = {"returns"}
        group.acquire(ORDERS, RETURNS)
        assert group.ledger.positions.keys() == {ORDERS}
        assert not group.ledger.ready(), "it is not known yet who runs"
        group.answer_about_others()
        assert group.ledger.ready()


def test_a_checkpoint_behind_the_group_is_refused_before_the_member_joins(group: GroupInMemory) -> None:
    with pytest.raises(CheckpointBehindGroup, match=f"{RETURNS}: the group has plan 5"):
        group.ledger.note_group({RETURNS: CommitRecord(stream=ME, logged=5, done=5, next=9)})


def test_a_finished_plan_that_no_record_can_show_is_worth_one_warning(
    group: GroupInMemory, caplog: pytest.LogCaptureFixture
) -> None:
    group.acquire(ORDERS)
    group.claim(0, PLANNED)
    group.ledger.lost(frozenset({ORDERS}))
    group.ledger.durable(0)
    for _ in range(3):
        group.ledger.confirm()
    assert caplog.text.count(f"a finished micro-batch from stream {ME} cannot be recorded in the group") == 1
