"""The rules of the hand-off, row by row of the two tables in docs/design.md."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_groupsource.errors import CheckpointBehindGroup, CommitRecordUnreadable
from spark_groupsource.handoff.commit_record import (
    CommitRecord,
    Foreign,
    GroupCommit,
    OpenRange,
    OtherFormat,
    OwedRange,
    PastStream,
    read_commit,
)
from spark_groupsource.handoff.rules import (
    Stream,
    Verdict,
    adopt,
    claim,
    claimable,
    confirm,
    cut_back,
    evidence,
    recreated,
    refuse_behind,
    settle,
)
from spark_groupsource.partition import OffsetRange, TopicPartition

ORDERS = TopicPartition("orders", 3)
RANGE = OffsetRange(100, 200)
NOW = 1_763_744_384
OTHER_4 = (PastStream("other", 4, 4),)
OTHER_4_OPEN = (PastStream("other", 4, 3),)

DURABLE = Stream("me", logged=7, durable=7, ranges={ORDERS: (RANGE,)})
"""Plan 7 is in the commit log."""
LOGGED = replace(DURABLE, durable=6)
"""Plan 7 is in the offset log only."""


def record(
    stream: str,
    logged: int,
    *,
    at: int,
    done: int = -1,
    claimed: tuple[tuple[int, int], ...] = (),
    owed: tuple[OwedRange, ...] = (),
    since: int | None = None,
    topic_id: str | None = None,
    past: tuple[PastStream, ...] | None = None,
) -> CommitRecord:
    """A record whose `next` is `at`, and whose `open` are the ranges `claimed`."""
    ranges = tuple(OpenRange(*held) for held in claimed)
    written = CommitRecord(stream=stream, logged=logged, done=done, next=at, open=ranges, owed=owed, claimed_at=since)
    return written.model_copy(update={"topic_id": topic_id, "past": past})


def adopted(stream: Stream, commit: GroupCommit, done: dict[str, int] | None = None) -> CommitRecord:
    return adopt(stream, ORDERS, commit, starting_offset=55, done=done or {})


class TestAPartitionIsAcquired:
    def test_whose_record_expired_keeps_the_ranges_of_the_last_plan_claimed_if_that_is_not_durable(self) -> None:
        assert adopted(rereading((20, 45), (100, 200)), None) == record("me", 7, done=6, at=200, claimed=((20, 45), (100, 200)))

    def test_from_another_cluster_is_read_on_at_the_first_offset_that_is_not_confirmed(self) -> None:
        """Neither plans nor evidence of the other cluster count, of the stream's own record either."""
        there = record("me", 9, done=8, at=300, claimed=((200, 300),), owed=(OwedRange("third", 2, 80, 90),))
        there = there.model_copy(update={"cluster_id": "there"})
        commit = read_commit(there.offset, there.metadata(), "here")
        assert adopted(LOGGED, commit, {"third": 2}) == record("me", 7, done=6, at=80)
        assert verdict(commit) == LEAVE

    def test_from_another_stream_goes_on_behind_its_claims_and_holds_them_for_it(self) -> None:
        owed = OwedRange("third", 2, 80, 90)
        before = record("other", 4, done=3, at=300, claimed=((200, 250), (250, 300)), owed=(owed,))
        held = (owed, OwedRange("other", 4, 200, 300))
        assert adopted(LOGGED, before) == record("me", 7, done=6, at=300, owed=held, past=OTHER_4_OPEN)

    @pytest.mark.parametrize("version", [1, 3, 5])
    def test_whose_record_another_version_wrote_stops_the_query(self, version: int) -> None:
        found = rf"^The commit record of orders-3 cannot be read: another version .* wrote it in format {version},"
        with pytest.raises(CommitRecordUnreadable, match=found):
            adopted(LOGGED, OtherFormat(150, version))

    def test_names_its_cluster_from_then_on(self) -> None:
        before = record("other", 4, done=4, at=300)
        after = adopt(LOGGED, ORDERS, before, starting_offset=0, done={}, cluster_id="here")
        assert after == record("me", 7, done=6, at=300, past=OTHER_4).model_copy(update={"cluster_id": "here"})
        assert adopt(LOGGED, ORDERS, after, starting_offset=0, done={}, cluster_id=None) == after
        assert adopt(LOGGED, ORDERS, after, starting_offset=0, done={}, cluster_id="here") == after

    def test_from_another_stream_owes_nothing_that_some_record_of_the_group_shows_to_be_done(self) -> None:
        before = record("other", 4, done=3, at=300, claimed=((200, 300),), owed=(OwedRange("third", 2, 80, 90),))
        assert adopted(LOGGED, before, {"third": 2, "other": 3}).owed == (OwedRange("other", 4, 200, 300),)
        assert adopted(LOGGED, before, {"third": 1, "other": 4}).owed == (OwedRange("third", 2, 80, 90),)

    def test_from_another_stream_keeps_what_is_owed_to_this_stream_until_its_own_plan_is_durable(self) -> None:
        before = record("other", 4, done=3, at=300, owed=(OwedRange("me", 7, 100, 200),))
        assert adopted(LOGGED, before, {"me": 9}).owed == before.owed
        assert adopted(DURABLE, before).owed == ()

    def test_that_this_stream_had_before_is_as_it_left_it_and_confirmed_if_its_plan_is_durable_by_now(self) -> None:
        before = record("me", 7, done=6, at=200, claimed=((100, 200),), owed=(OwedRange("other", 4, 80, 90),))
        assert adopted(LOGGED, before) == before
        assert adopted(DURABLE, before) == record("me", 7, done=7, at=200, owed=before.owed)
        assert adopted(DURABLE, before, {"other": 4}) == record("me", 7, done=7, at=200)

    def test_that_knows_a_newer_plan_of_this_stream_stops_the_query_with_each_way_out_and_what_it_costs(self) -> None:
        with pytest.raises(
            CheckpointBehindGroup, match=r"orders-3: the group has plan 8 of stream me, .* checkpoint is 7 "
        ) as raised:
            adopted(LOGGED, record("me", 8, done=7, at=300))
        what, *ways = str(raised.value).splitlines()
        assert "second driver" in what
        assert "restored" in what
        assert len(ways) == 3
        assert "stop one of the two. Nothing is lost or duplicated" in ways[0]
        assert "restore the newest checkpoint" in ways[1]
        assert "empty checkpoint" in ways[2]
        assert "With heldClaims=reread, the query will read them (they will be duplicated" in ways[2]
        assert "With heldClaims=hold, it will never read them (they will be missing" in ways[2]

    def test_that_owes_something_to_a_newer_plan_of_this_stream_stops_the_query_too(self) -> None:
        with pytest.raises(CheckpointBehindGroup, match="plan 9"):
            adopted(LOGGED, record("other", 4, at=300, owed=(OwedRange("me", 9, 200, 300),)))


OLD, NEW = "A" * 22, "B" * 22


class TestLaterOwnersRememberAStream:
    """A checkpoint that was restored from an older copy is behind what they remember."""

    def passed_on(self, first: CommitRecord, *streams: str) -> CommitRecord:
        commit = first
        for number, stream in enumerate(streams):
            commit = adopt(Stream(stream, logged=number, durable=number), ORDERS, commit, starting_offset=0, done={})
        return commit

    def test_with_its_newest_plan_whoever_owns_the_partition(self) -> None:
        commit = self.passed_on(record("me", 8, done=8, at=300), "b", "c")
        assert commit.past == (PastStream("me", 8, 8), PastStream("b", 0, 0))
        with pytest.raises(CheckpointBehindGroup, match=r"the group has plan 8 of stream me, .* checkpoint is 7 "):
            adopted(LOGGED, commit)
        with pytest.raises(CheckpointBehindGroup, match="plan 8"):
            refuse_behind(LOGGED, {ORDERS: commit, TopicPartition("orders", 4): Foreign(5), TopicPartition("orders", 5): None})
        refuse_behind(replace(DURABLE, logged=8, durable=8), {ORDERS: commit})

    def test_but_it_does_not_remember_itself(self) -> None:
        commit = self.passed_on(record("b", 1, done=1, at=300), "me", "b")
        assert commit.past == (PastStream("me", 0, 0),)
        assert adopted(LOGGED, commit).past == (PastStream("b", 1, 1),)

    def test_the_last_eight_of_them(self) -> None:
        commit = self.passed_on(record("me", 8, done=8, at=300), *(f"stream-{number}" for number in range(8)))
        assert commit.past is not None
        assert len(commit.past) == 8
        assert self.passed_on(commit, "ninth").past == (*commit.past[1:], PastStream("stream-7", 7, 7))

    def test_and_not_one_that_never_planned(self) -> None:
        assert adopted(LOGGED, record("other", -1, at=300)).past is None


class TestTheGroupKnowsThatTheNewestPlanIsDoneAndTheCheckpointLacksItsCommit:
    """It was restored to between offsets/7 and commits/7: a replay would read nothing, and the rows would be missing."""

    finished = record("me", 7, done=7, at=200)
    elsewhere = TopicPartition("orders", 4)

    def refused(self, commits: dict[TopicPartition, GroupCommit], stream: Stream = LOGGED) -> str:
        with pytest.raises(CheckpointBehindGroup) as raised:
            refuse_behind(stream, commits)
        return str(raised.value)

    def test_before_it_joins_the_group(self) -> None:
        said = self.refused({self.elsewhere: None, ORDERS: self.finished})
        assert "a micro-batch of stream me is finished" in said
        assert "not in its commit log" in said

    def test_with_each_way_out_and_what_it_costs(self) -> None:
        stream = replace(LOGGED, ranges={ORDERS: (OffsetRange(20, 60), RANGE), self.elsewhere: (OffsetRange(5, 5),)})
        what, plan, choose, *ways = self.refused({ORDERS: self.finished}, stream).splitlines()
        assert "second driver" in what
        assert "restored" in what
        assert "host crashed and lost the commit" in what
        assert plan == "    orders-3 [20, 60) [100, 200), and the group's position is 200"
        assert choose == "Choose:"
        assert len(ways) == 4
        assert "stop one of the two, and start the other. Nothing is lost or duplicated" in ways[0]
        assert "restore the newest checkpoint. Nothing is lost or duplicated" in ways[1]
        assert "output does not have this micro-batch's rows" in ways[2]
        assert "`groupkafka reset-offsets --topic NAME:PARTITION --to-offset FIRST --execute`" in ways[2]
        assert "No row is lost. Rows that other queries have already read at or after these offsets will be duplicated" in ways[2]
        assert "output has the rows: follow the same steps, but set each partition to the group's position" in ways[3]
        assert "The state of stateful operators does not include these rows" in ways[3]

    def test_with_where_the_group_reads_on_as_far_as_that_is_known(self) -> None:
        others = {TopicPartition("orders", number): (RANGE,) for number in (4, 5)}
        stream = replace(LOGGED, ranges={ORDERS: (RANGE,), **others})
        said = self.refused({ORDERS: self.finished, TopicPartition("orders", 5): Foreign(150)}, stream)
        assert "    orders-4 [100, 200)\n    orders-5 [100, 200), and the group's position is 150\nChoose" in said

    def test_and_the_rest_of_them_once_those_are_reset(self) -> None:
        partitions = [TopicPartition("orders", number) for number in range(30)]
        stream = replace(LOGGED, ranges=dict.fromkeys(partitions, (RANGE,)))
        reset: dict[TopicPartition, GroupCommit] = {
            partition: Foreign(100) if partition.partition < 20 else self.finished for partition in partitions
        }
        assert "    orders-20 [100, 200), and the group's position is 200\n" in self.refused(reset, stream)

    def test_when_it_adopts_a_partition_of_the_plan_or_claims_it(self) -> None:
        with pytest.raises(CheckpointBehindGroup, match="a micro-batch of stream me is finished"):
            adopted(LOGGED, self.finished)
        for case in (NOT_OWNED, {"owned": True, "owned_since_planned": False}):
            with pytest.raises(CheckpointBehindGroup, match="a micro-batch of stream me is finished"):
                verdict(self.finished, **case)

    def test_also_if_another_stream_has_the_partition_since(self) -> None:
        commit: CommitRecord = self.finished
        for number, name in enumerate("bcd"):
            commit = adopt(Stream(name, logged=number, durable=number), ORDERS, commit, starting_offset=0, done={})
            assert PastStream("me", 7, 7) in (commit.past or ())
            self.refused({ORDERS: commit})
            with pytest.raises(CheckpointBehindGroup, match="a micro-batch of stream me is finished"):
                verdict(commit, **NOT_OWNED)

    def test_also_if_that_was_known_only_when_another_stream_had_it(self) -> None:
        claimed = record("me", 7, done=6, at=200, claimed=((100, 200),))
        held = adopt(Stream("b"), ORDERS, claimed, starting_offset=0, done={})
        assert held.past == (PastStream("me", 7, 6),)
        refuse_behind(LOGGED, {ORDERS: held})
        assert verdict(held, **NOT_OWNED) == READ
        for done, known in ((6, 6), (7, 7), (8, 7)):
            settled = settle(held, {"me": done})
            assert settled.past == (PastStream("me", 7, known),)
        self.refused({ORDERS: settled})
        self.refused({ORDERS: adopt(Stream("c"), ORDERS, held, starting_offset=0, done={"me": 7})})

    @pytest.mark.parametrize(
        "stream",
        [
            DURABLE,
            replace(LOGGED, logged=8, durable=7),
            replace(LOGGED, ranges={}),
            replace(LOGGED, ranges={ORDERS: (OffsetRange(200, 200),)}),
            replace(LOGGED, ranges={TopicPartition("orders", 4): (RANGE,)}),
        ],
        ids=["with the commit", "a newer plan in the log", "of another cluster", "nothing to read", "nothing in the partition"],
    )
    def test_but_not_a_checkpoint_that_replays_nothing_of_it(self, stream: Stream) -> None:
        refuse_behind(stream, {ORDERS: self.finished})
        adopted(stream, self.finished)

    @pytest.mark.parametrize(
        "commit",
        [
            None,
            Foreign(200),
            OtherFormat(200, 5, "me", 7),
            record("me", 7, done=6, at=200, claimed=((100, 200),)),
            record("me", 7, done=6, at=200),
            record("other", 9, done=9, at=200),
            record("other", 9, done=9, at=200, owed=(OwedRange("me", 7, 100, 200),), past=(PastStream("me", 7, 6),)),
        ],
        ids=["expired", "reset", "unreadable", "claimed", "left to others", "another stream", "owed"],
    )
    def test_but_not_a_record_that_does_not_say_so(self, commit: GroupCommit) -> None:
        refuse_behind(LOGGED, {ORDERS: commit})

    def test_but_not_a_plan_of_a_topic_that_was_deleted_and_created_again(self) -> None:
        stream = replace(LOGGED, topics={"orders": OLD})
        new = self.finished.model_copy(update={"topic_id": NEW})
        refuse_behind(stream, {ORDERS: new})
        assert verdict(new, stream) == LEAVE
        self.refused({ORDERS: self.finished.model_copy(update={"topic_id": OLD})}, stream)


class TestAPartitionIsAcquiredWhoseTopicWasMadeAnew:
    stream = replace(LOGGED, topics={"orders": OLD})

    def adopted(self, commit: GroupCommit, topic_id: str | None = NEW, stream: Stream | None = None) -> CommitRecord:
        return adopt(stream or self.stream, ORDERS, commit, starting_offset=5, done={}, topic_id=topic_id)

    @pytest.mark.parametrize(
        "commit",
        [
            None,
            record("me", 7, done=6, at=200, claimed=((100, 200),), topic_id=OLD),
            record("me", 7, done=6, at=200, owed=(OwedRange("other", 4, 80, 90),)),
            record("other", 4, done=3, at=300, claimed=((200, 300),), owed=(OwedRange("me", 7, 100, 200),), topic_id=OLD),
        ],
        ids=["no record", "its own", "its own, without the id of its topic", "of another stream"],
    )
    def test_it_is_read_from_its_beginning_and_nothing_is_held(self, commit: CommitRecord | None) -> None:
        assert recreated(self.stream, ORDERS, commit, NEW)
        past = OTHER_4_OPEN if commit is not None and commit.stream == "other" else None
        assert self.adopted(commit) == record("me", 7, done=6, at=5, topic_id=NEW, past=past)

    def test_a_record_of_the_new_topic_is_believed_whatever_the_checkpoint_knows(self) -> None:
        new = record("other", 4, done=4, at=30, topic_id=NEW)
        assert self.adopted(new) == record("me", 7, done=6, at=30, topic_id=NEW, past=OTHER_4)

    def test_a_record_that_knows_no_id_gets_one(self) -> None:
        without = record("other", 4, done=4, at=300)
        assert self.adopted(without, OLD) == record("me", 7, done=6, at=300, topic_id=OLD, past=OTHER_4)
        stranger = replace(self.stream, topics={})
        assert self.adopted(record("me", 7, done=6, at=300), OLD, stranger) == record("me", 7, done=6, at=300, topic_id=OLD)

    def test_an_id_that_no_broker_returns_now_is_kept(self) -> None:
        assert self.adopted(record("other", 4, done=4, at=300, topic_id=OLD), None).topic_id == OLD

    def test_a_newer_plan_of_this_stream_stops_the_query_all_the_same(self) -> None:
        with pytest.raises(CheckpointBehindGroup):
            self.adopted(record("me", 8, done=7, at=300, topic_id=OLD))


READ, LEAVE, WAIT = Verdict(read=(RANGE,)), Verdict(), Verdict(waits=True)


def verdict(
    commit: GroupCommit, stream: Stream = LOGGED, /, *, owned: bool = True, owned_since_planned: bool = True, now: int = NOW
) -> Verdict:
    return claim(stream, ORDERS, commit, owned=owned, owned_since_planned=owned_since_planned, now=now)


NOT_OWNED = {"owned": False, "owned_since_planned": False}
EVERY_CASE = pytest.mark.parametrize(
    "case", [NOT_OWNED, {"owned": True, "owned_since_planned": False}, {"owned": True, "owned_since_planned": True}], ids=str
)


class TestARangeOfAPlan:
    @EVERY_CASE
    @pytest.mark.parametrize("writer", ["me", "other"])
    def test_that_is_owed_to_it_is_read_whoever_has_the_partition(self, writer: str, case: dict[str, bool]) -> None:
        assert verdict(record(writer, 7, at=300, owed=(OwedRange("me", 7, 100, 200),)), **case) == READ

    @EVERY_CASE
    def test_that_it_has_claimed_is_read_again(self, case: dict[str, bool]) -> None:
        assert verdict(record("me", 7, done=6, at=200, claimed=((100, 200),)), **case) == READ

    @EVERY_CASE
    @pytest.mark.parametrize("claimed", [(150, 200), (100, 150)])
    def test_that_is_not_among_the_claims_of_this_plan_is_left_to_who_had_it(
        self, claimed: tuple[int, int], case: dict[str, bool]
    ) -> None:
        assert verdict(record("me", 7, done=6, at=200, claimed=(claimed,)), **case) == LEAVE

    @EVERY_CASE
    @pytest.mark.parametrize(
        "commit",
        [
            record("other", 4, at=100),
            record("other", 7, at=200, claimed=((100, 200),)),
            record("other", 4, at=300, owed=(OwedRange("me", 6, 100, 200),)),
            record("other", 4, at=300, owed=(OwedRange("me", 7, 200, 300),)),
            Foreign(100),
        ],
        ids=["at the same place", "that claimed it", "and owed for another plan", "and another range owed", "another client"],
    )
    def test_in_a_partition_that_another_stream_or_client_took_is_left_to_it(
        self, commit: GroupCommit, case: dict[str, bool]
    ) -> None:
        assert verdict(commit, **case) == LEAVE

    def test_is_claimed_by_the_run_that_planned_it_and_kept_the_partition(self) -> None:
        owed = (OwedRange("other", 4, 80, 90),)
        before = record("me", 6, done=5, at=100, claimed=((90, 100),), owed=owed)
        assert verdict(before) == Verdict(
            read=(RANGE,), write=record("me", 7, done=6, at=200, claimed=((100, 200),), owed=owed, since=NOW)
        )

    @EVERY_CASE
    @pytest.mark.parametrize("version", [2, 5])
    def test_in_a_partition_that_another_version_has_stops_the_query(self, case: dict[str, bool], version: int) -> None:
        with pytest.raises(CommitRecordUnreadable, match=f"format {version}"):
            verdict(OtherFormat(100, version), **case)

    def test_that_was_settled_meanwhile_is_no_claim_and_has_no_time(self) -> None:
        settled = record("me", 6, done=6, at=100)
        assert verdict(settled, rereading((20, 60), (100, 100))) == Verdict(write=record("me", 7, done=6, at=100))

    def test_is_claimed_by_a_driver_whose_clock_stands_before_1970(self) -> None:
        claimed = verdict(record("me", 6, done=6, at=100), now=-5).write
        assert claimed is not None
        assert read_commit(claimed.offset, claimed.metadata()) == claimed


LATE, BEHIND = OwedRange("other", 4, 20, 60), OwedRange("third", 2, 60, 90)


def rereading(*ranges: tuple[int, int]) -> Stream:
    """Plan 7, logged, reads these ranges of the partition."""
    return replace(LOGGED, ranges={ORDERS: tuple(OffsetRange(*bounds) for bounds in ranges)})


class TestARangeOwedToAnotherStreamIsReread:
    before = record("me", 6, done=6, at=100, owed=(BEHIND, LATE))

    def test_a_plan_may_have_what_begins_at_the_position_and_what_others_are_still_owed(self) -> None:
        ranges = [OffsetRange(20, 60), OffsetRange(60, 90), OffsetRange(100, 100)]
        assert claimable(self.before, ranges) == tuple(ranges)
        settled = settle(self.before, {"other": 4})
        assert claimable(settled, ranges) == (OffsetRange(60, 90), OffsetRange(100, 100))
        assert claimable(self.before, [OffsetRange(60, 80), OffsetRange(50, 70), OffsetRange(101, 120)]) == ()

    def test_the_very_commit_that_claims_it_no_longer_owes_it(self) -> None:
        claimed = ((20, 60), (60, 90), (100, 200))
        reread = verdict(self.before, rereading(*claimed))
        assert reread.write == record("me", 7, done=6, at=200, claimed=claimed, since=NOW)
        assert reread.read == claimed

    def test_what_was_settled_since_the_plan_was_made_is_left(self) -> None:
        reread = verdict(settle(self.before, {"other": 4}), rereading((20, 60), (100, 200)))
        assert reread.read == ((100, 200),)
        assert reread.write == record("me", 7, done=6, at=200, claimed=((100, 200),), owed=(BEHIND,), since=NOW)

    def test_a_replay_reads_all_of_its_claims_and_the_next_owner_holds_each_of_them(self) -> None:
        stream = rereading((20, 60), (100, 200))
        claimed = verdict(self.before, stream).write
        assert verdict(claimed, stream, owned_since_planned=False).read == ((20, 60), (100, 200))
        next_owner = adopt(Stream("next"), ORDERS, claimed, starting_offset=0, done={})
        assert [entry.range for entry in next_owner.owed if entry.stream == "me"] == [(20, 60), (100, 200)]
        assert verdict(next_owner, stream).read == ((20, 60), (100, 200))

    def test_the_stream_that_comes_back_leaves_what_was_taken_and_reads_what_the_log_still_has(self) -> None:
        back = Stream("other", logged=4, durable=3, ranges={ORDERS: (OffsetRange(20, 60),)})
        assert verdict(cut_back(self.before, 45, None), back, **NOT_OWNED) == Verdict(read=(OffsetRange(20, 45),))
        taken = verdict(self.before, rereading((20, 60), (100, 100))).write
        assert verdict(taken, back, **NOT_OWNED) == LEAVE
        its_own = adopted(back, taken)
        assert OwedRange("me", 7, 20, 60, NOW) in its_own.owed
        assert verdict(its_own, back, owned_since_planned=False) == LEAVE


class TestAPlanIsDurable:
    def test_so_its_claims_are_closed_and_what_others_are_owed_stays(self) -> None:
        owed = (OwedRange("other", 4, 80, 90),)
        before = record("me", 7, done=6, at=200, claimed=((100, 200),), owed=owed)
        assert confirm(before, DURABLE) == record("me", 7, done=7, at=200, owed=owed)

    def test_so_claims_of_an_older_plan_are_closed_and_show_how_far_the_stream_is(self) -> None:
        assert confirm(record("me", 5, done=4, at=90, claimed=((80, 90),)), LOGGED) == record("me", 6, done=6, at=90)

    def test_but_not_the_newer_one_whose_claims_stay_open(self) -> None:
        before = record("me", 7, done=6, at=200, claimed=((100, 200),))
        assert confirm(before, LOGGED) is before

    def test_and_a_record_without_claims_is_not_written_again(self) -> None:
        before = record("me", 5, done=4, at=90)
        assert confirm(before, DURABLE) is before


class TestARangeOwedToAnotherStream:
    def test_is_held_until_that_stream_shows_that_its_plan_is_done(self) -> None:
        before = record("me", 7, at=200, owed=(OwedRange("other", 4, 80, 90), OwedRange("third", 2, 90, 100)))
        assert settle(before, {"other": 4, "third": 1}).owed == (OwedRange("third", 2, 90, 100),)
        assert settle(before, {"other": 9, "third": 9}).offset == 200

    def test_is_not_written_again_while_nothing_shows_that(self) -> None:
        before = record("me", 7, at=200, owed=(OwedRange("other", 4, 80, 90),))
        assert settle(before, {}) is before
        assert settle(before, {"other": 3, "third": 4}) is before

    def test_is_shown_to_be_done_by_the_newest_record_of_that_stream_and_by_nothing_else(self) -> None:
        commits: list[GroupCommit] = [record("other", 9, done=3, at=5), record("other", 4, done=4, at=5), Foreign(7), None]
        assert evidence(commits) == {"other": 4}
        assert evidence([record("me", 7, at=200, owed=(OwedRange("other", 4, 80, 90),))]) == {"me": -1}
        taken_over = adopted(LOGGED, record("other", 4, done=4, at=5))
        assert evidence([taken_over])["other"] == 4, "although it has no record of its own any more"
        assert evidence([OtherFormat(5, 5, "of-the-next-version", 3), OtherFormat(5, 5, "another", -1)]) == {
            "of-the-next-version": 3,
            "another": -1,
        }


class TestTheLeaderEpochOfAPosition:
    """Each step keeps it beside the position that it belongs to."""

    HELD = record("me", 7, at=200, done=6, claimed=((100, 200),)).model_copy(update={"epoch": 4})

    def test_stays_when_claims_are_closed_and_when_another_stream_adopts(self) -> None:
        assert confirm(self.HELD, DURABLE).epoch == 4
        done = {"me": 7}
        for stream in (DURABLE, Stream("other", 3, 3)):
            assert adopt(stream, ORDERS, self.HELD, starting_offset=0, done=done).epoch == 4
        assert adopt(DURABLE, ORDERS, Foreign(150), starting_offset=0, done={}).epoch is None

    def test_is_that_of_the_last_plan_if_the_commit_has_expired(self) -> None:
        stream = replace(LOGGED, epochs={ORDERS: 6})
        assert adopt(stream, ORDERS, None, starting_offset=0, done={}).epoch == 6

    def test_is_unknown_in_a_topic_that_was_created_again(self) -> None:
        held = self.HELD.model_copy(update={"topic_id": "A" * 22})
        assert adopt(LOGGED, ORDERS, held, starting_offset=0, done={}, topic_id="B" * 22).epoch is None

    @pytest.mark.parametrize(("epochs", "epoch"), [({ORDERS: 6}, 6), ({}, None)])
    def test_is_that_of_the_plan_once_its_range_is_claimed(self, epochs: dict[TopicPartition, int], epoch: int | None) -> None:
        before = record("me", 6, at=100, done=6).model_copy(update={"epoch": 4})
        verdict = claim(replace(LOGGED, epochs=epochs), ORDERS, before, owned=True, owned_since_planned=True, now=NOW)
        assert verdict.write is not None
        assert (verdict.write.next, verdict.write.epoch) == (200, epoch)

    def test_stands_beside_the_text_and_not_in_it(self) -> None:
        assert "epoch" not in self.HELD.metadata()
        assert read_commit(self.HELD.offset, self.HELD.metadata(), epoch=4) == self.HELD
        assert read_commit(self.HELD.offset, self.HELD.metadata()) == self.HELD.model_copy(update={"epoch": None})
        assert read_commit(7, "", epoch=4) == Foreign(7)
