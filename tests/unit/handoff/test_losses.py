"""What is lost, found by comparing what was known with the logs as they are now, and where the query goes on."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from spark_groupsource.errors import DataLossError
from spark_groupsource.handoff.commit_record import CommitRecord, GroupCommit, OpenRange, OwedRange
from spark_groupsource.handoff.losses import (
    Cause,
    CutDoubts,
    LogState,
    PartitionLoss,
    commit_loss,
    partition_losses,
    plan_losses,
    record_after,
    refuse,
    refuse_target,
    target_losses,
    to_validate,
    unowned_partition_losses,
    warn,
)
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.partition import OffsetRange, TopicPartition

ORDERS = TopicPartition("orders", 3)
OLD, NEW = "A" * 22, "B" * 22
OWED = OwedRange("other", 4, 60, 80)
RECORD = CommitRecord(stream="me", logged=7, done=7, next=100, owed=(OWED,), topic_id=OLD)


def found(logs: LogState, record: CommitRecord = RECORD, last_end: int | None = None) -> list[PartitionLoss]:
    return partition_losses({ORDERS: record}, logs, {} if last_end is None else {ORDERS: last_end})


def logs(start: int | None = None, end: int | None = None, topic_id: str | None = OLD) -> LogState:
    return LogState(
        {"orders": topic_id},
        {} if start is None else {ORDERS: start},
        {} if end is None else {ORDERS: end},
    )


class TestALogThatAStreamOwns:
    @pytest.mark.parametrize(("start", "end"), [(0, 100), (100, 100), (90, 300), (None, 100), (0, None), (None, None)])
    def test_that_still_holds_the_position_has_lost_nothing(self, start: int | None, end: int | None) -> None:
        assert found(logs(start, end)) == []
        assert found(LogState({}, logs(start, end).starts, logs(start, end).ends)) == [], "no broker tells the id"
        assert found(logs(start, end, ""), RECORD) == [], "a broker without ids"
        assert found(logs(start, end), RECORD.model_copy(update={"topic_id": None})) == [], "a writer without ids"

    def test_that_starts_above_the_position_has_expired_up_to_there(self) -> None:
        (loss,) = found(logs(150, 300))
        assert (loss.cause, loss.lost, loss.resume) == (Cause.EXPIRED, (OffsetRange(100, 150),), 150)
        assert str(loss) == (
            "orders-3 [100, 150) (50 offsets): the next offset to read was 100, and the log starts at 150 "
            "(retention, or delete-records)"
        )

    def test_that_ends_below_the_position_was_cut(self) -> None:
        (loss,) = found(logs(0, 70))
        assert (loss.cause, loss.lost, loss.resume) == (Cause.CUT, (OffsetRange(70, 100),), 70)
        assert "the next offset to read was 100, and the log ends at 70" in str(loss)

    def test_that_was_cut_and_has_grown_again_is_read_on_where_it_was_cut(self) -> None:
        for end in (70, 100, 300):
            (loss,) = found(replace(logs(0, end), epochs={ORDERS: 9}, diverging={ORDERS: 65}))
            assert (loss.cause, loss.lost, loss.resume, loss.epoch) == (Cause.CUT, (OffsetRange(65, 100),), 65, 9)
            assert "was 100, and the log was truncated at 65, and has other records from there on" in str(loss)
            read_on = record_after(loss, 65, RECORD)
            assert (read_on.next, read_on.epoch, read_on.owed) == (65, 9, (OWED._replace(end=65),))

    def test_of_a_leader_that_knows_no_such_epoch_is_read_on_at_the_position_or_its_end(self) -> None:
        for end, resume in ((300, 100), (70, 70)):
            (loss,) = found(replace(logs(0, end), epochs={ORDERS: 2}, diverging={ORDERS: None}))
            assert (loss.cause, loss.resume, loss.epoch) == (Cause.CUT, resume, 2)
        (loss,) = found(replace(logs(0, 300), epochs={ORDERS: 2}, diverging={ORDERS: None}))
        assert "so it is not known which records below the offset were replaced" in str(loss)

    @pytest.mark.parametrize(("start", "end"), [(0, 70), (0, 100), (5, 500)])
    def test_of_another_topic_is_lost_however_many_records_that_has(self, start: int, end: int) -> None:
        (loss,) = found(logs(start, end, NEW), last_end=130)
        assert (loss.cause, loss.resume, loss.earlier_id, loss.topic_id) == (Cause.RECREATED, start, OLD, NEW)
        assert loss.lost == ((60, 80), (100, 130)), "what was held for another stream, and what was not read"
        assert "the next offset to read was 100" in str(loss)
        assert f"(its id was {OLD} and is now {NEW}); the new log starts at {start}" in str(loss)

    def test_of_another_topic_is_reported_once_its_log_start_is_known(self) -> None:
        assert found(logs(None, 500, NEW)) == []

    def test_of_a_deleted_topic_is_lost_with_all_that_is_held_of_it(self) -> None:
        (loss,) = found(logs(None, None, None), last_end=130)
        assert (loss.cause, loss.resume, loss.lost) == (Cause.DELETED, None, ((60, 80), (100, 130)))
        assert "the topic no longer exists" in str(loss)


class TestWhereItGoesOn:
    def test_behind_what_expired_with_what_is_held_as_before(self) -> None:
        (loss,) = found(logs(150, 300))
        assert record_after(loss, 150, RECORD) == RECORD.model_copy(update={"next": 150})

    def test_at_the_beginning_of_the_new_topic_with_nothing_held(self) -> None:
        (loss,) = found(logs(5, 300, NEW))
        assert record_after(loss, 5, RECORD) == CommitRecord(stream="me", logged=7, done=7, next=5, topic_id=NEW)

    def test_at_the_end_of_a_log_that_was_cut_and_what_is_left_of_a_held_range_stays_held(self) -> None:
        ranges = (OwedRange("other", 4, 20, 30, 9), OwedRange("third", 2, 60, 80, 10), OwedRange("fourth", 1, 80, 100))
        record = RECORD.model_copy(update={"owed": ranges})
        (loss,) = found(logs(0, 70), record)
        after = record_after(loss, 70, record)
        assert after.owed == (OwedRange("other", 4, 20, 30, 9), OwedRange("third", 2, 60, 70, 10))
        assert (after.next, after.offset) == (70, 20)
        assert record_after(loss, 60, record).owed == ranges[:1], "the second one begins at the end"
        assert CommitRecord.model_validate(after.model_dump()) == after


STREAM = Stream("me", logged=7, durable=6, ranges={ORDERS: (OffsetRange(100, 200),)}, topics={"orders": OLD})


class TestAPartitionThatIsAcquired:
    @pytest.mark.parametrize(
        ("commit", "position", "lost"),
        [
            (RECORD, 100, ((60, 80),)),
            (CommitRecord(stream="other", logged=4, done=3, next=90, open=(OpenRange(70, 90),), topic_id=OLD), 90, ((70, 90),)),
            (CommitRecord(stream="me", logged=6, done=5, next=90, open=(OpenRange(70, 90),), topic_id=OLD), 90, ()),
            (None, 200, ((100, 200),)),
        ],
        ids=["with what is held", "with what another stream has open", "without what is durable", "and not recorded"],
    )
    def test_loses_what_its_record_or_the_last_plan_knows(
        self, commit: GroupCommit, position: int, lost: tuple[tuple[int, int], ...]
    ) -> None:
        loss = commit_loss(STREAM, ORDERS, commit, NEW, 5)
        assert (loss.position, loss.lost, loss.resume, loss.earlier_id, loss.topic_id) == (position, lost, 5, OLD, NEW)


class TestAPlan:
    def test_loses_its_ranges_of_topics_that_were_deleted_or_recreated(self) -> None:
        both = {ORDERS: (OffsetRange(100, 200),), TopicPartition("returns", 0): (OffsetRange(5, 9),)}
        stream = replace(STREAM, ranges=both, topics={"orders": OLD, "returns": OLD})
        assert [(loss.partition, loss.cause) for loss in plan_losses(stream, {"orders": NEW, "returns": OLD})] == [
            (ORDERS, Cause.RECREATED)
        ]
        assert [loss.cause for loss in plan_losses(stream, {"orders": None, "returns": None})] == [Cause.DELETED] * 2
        assert plan_losses(stream, {}) == []

    def test_of_a_checkpoint_without_ids_loses_only_topics_that_are_gone(self) -> None:
        stream = replace(STREAM, topics={})
        assert plan_losses(stream, {"orders": NEW}) == []
        assert [loss.cause for loss in plan_losses(stream, {"orders": None})] == [Cause.DELETED]


def test_a_deleted_topic_whose_partitions_this_member_lost_is_known_from_the_last_plan() -> None:
    assert unowned_partition_losses(STREAM, {ORDERS}, {"orders": NEW}) == []
    (loss,) = unowned_partition_losses(STREAM, {ORDERS}, {"orders": None})
    assert str(loss) == "orders-3: the next offset to read was 200, and the topic no longer exists"


class TestAFixedTarget:
    def lost(self, target: int, now: LogState, *, owned: bool = True) -> list[PartitionLoss]:
        return target_losses({ORDERS: target}, {"orders": OLD}, {ORDERS: RECORD} if owned else {}, now)

    def test_whose_end_was_cut_off_is_lost_from_there(self) -> None:
        (loss,) = self.lost(300, logs(0, 250))
        assert (loss.cause, loss.lost) == (Cause.CUT, (OffsetRange(250, 300),))

    @pytest.mark.parametrize(("now", "cause"), [(NEW, Cause.RECREATED), (None, Cause.DELETED)])
    def test_whose_topic_was_deleted_is_lost_whoever_owns_it(self, now: str | None, cause: Cause) -> None:
        (loss,) = self.lost(300, logs(0, 3, now))
        assert (loss.cause, loss.lost) == (cause, (OffsetRange(100, 300),))
        (loss,) = self.lost(300, logs(0, 3, now), owned=False)
        assert (loss.cause, loss.lost) == (cause, ())


def test_a_position_is_validated_if_its_log_has_another_leader_epoch() -> None:
    other, unknown, silent = (TopicPartition("orders", number) for number in (4, 5, 6))
    positions = {ORDERS: (100, 3), other: (7, 3), unknown: (8, None), silent: (9, 3)}
    assert to_validate(positions, {ORDERS: 4, other: 3, unknown: 4}) == {ORDERS: (100, 3)}


def test_a_target_that_was_cut_off_is_lost_although_the_position_is_not() -> None:
    state = replace(logs(0, 500), epochs={ORDERS: 4}, diverging={ORDERS: 150})
    (loss,) = target_losses({ORDERS: 200}, {"orders": OLD}, {ORDERS: RECORD}, state)
    assert (loss.cause, loss.position, loss.lost) == (Cause.CUT, 100, (OffsetRange(150, 200),))


def test_the_error_lists_every_range_up_to_twenty_and_what_to_do() -> None:
    refuse([])
    refuse_target([])
    losses = [
        PartitionLoss(TopicPartition("orders", number), Cause.CUT, 9, (OffsetRange(5, 9),), 5, end=5) for number in range(23)
    ]
    with pytest.raises(DataLossError) as raised:
        refuse(losses)
    text = str(raised.value)
    assert "orders-0 [5, 9) (4 offsets): the next offset to read was 9, and the log ends at 5" in text
    assert "orders-19 " in text
    assert "orders-20 " not in text
    assert "and 3 more partitions" in text
    assert "failOnDataLoss to false" in text
    with pytest.raises(DataLossError, match=r"AvailableNow(.|\n)*fails even with failOnDataLoss=false"):
        refuse_target(losses)


def test_the_warning_has_the_range_and_where_the_query_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        warn([*found(logs(150, 300)), *found(logs(None, None, None))])
    first, second = (record.getMessage() for record in caplog.records)
    assert "orders-3 [100, 150)" in first
    assert "the query will continue at 150 (failOnDataLoss=false)" in first
    assert "nothing more will be read from this partition" in second


class TestALogThatSeemsToBeCut:
    CUT = logs(0, 70)

    @pytest.fixture
    def now(self) -> list[float]:
        return [1000.0]

    @pytest.fixture
    def doubts(self, now: list[float]) -> CutDoubts:
        return CutDoubts(12.0, clock=lambda: now[0])

    def test_is_in_doubt_until_that_was_the_answer_for_long(self, doubts: CutDoubts, now: list[float]) -> None:
        for passed in (0.0, 0.04, 11.9):
            now[0] = 1000.0 + passed
            assert doubts.about(found(self.CUT), self.CUT) == {ORDERS}
        now[0] = 1012.0
        assert doubts.about(found(self.CUT), self.CUT) == set()

    def test_is_doubted_anew_after_an_answer_with_the_records(self, doubts: CutDoubts, now: list[float]) -> None:
        doubts.about(found(self.CUT), self.CUT)
        now[0] += 11
        assert doubts.about(found(logs(0, 100)), logs(0, 100)) == set()
        now[0] += 11
        assert doubts.about(found(self.CUT), self.CUT) == {ORDERS}

    def test_stays_in_doubt_while_no_broker_was_asked_who_leads(self, doubts: CutDoubts, now: list[float]) -> None:
        without_ids = LogState({}, self.CUT.starts, self.CUT.ends)
        for _ in range(6):
            assert doubts.about(found(without_ids), without_ids) == {ORDERS}
            now[0] += 10
        assert not doubts.to_recheck
        assert doubts.about(found(self.CUT), self.CUT) == set()

    def test_at_two_looks_an_hour_apart_is_asked_about_until_it_is_believed(self, doubts: CutDoubts, now: list[float]) -> None:
        assert doubts.about(found(self.CUT), self.CUT) == {ORDERS}
        assert not doubts.to_recheck
        now[0] += 3600
        for _ in range(24):
            assert doubts.about(found(self.CUT), self.CUT) == doubts.to_recheck == {ORDERS}
            now[0] += 0.5
        assert doubts.about(found(self.CUT), self.CUT) == doubts.to_recheck == set()

    def test_holds_back_no_other_loss(self, doubts: CutDoubts) -> None:
        for state in (logs(150, 300), logs(0, 70, NEW), logs(0, 70, None)):
            losses = found(state)
            assert losses
            assert doubts.about(losses, state) == set()
