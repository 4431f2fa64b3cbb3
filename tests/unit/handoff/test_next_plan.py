"""The offset that Spark gets for the next plan."""

from __future__ import annotations

from spark_groupsource.handoff.commit_record import CommitRecord
from spark_groupsource.handoff.plan_offset import AT_END, PlanOffset, Starts
from spark_groupsource.handoff.planner import Sharing
from spark_groupsource.partition import OffsetRange, Ranges, TopicPartition

ID, OTHER_ID = "a" * 22, "b" * 22
FIRST, SECOND, THIRD = (TopicPartition("orders", number) for number in range(3))
RETURNS = TopicPartition("returns", 0)


def offset_after(
    planned: Ranges, *, known_id: str | None = ID, id_now: str | None = None, starts: Starts | None = None
) -> PlanOffset:
    records = {where: CommitRecord(stream="s", logged=4, done=4, next=0, topic_id=known_id) for where in planned}
    start = PlanOffset.build(stream="s", plan=4, generation=1, member="before", group="billing", ranges={})
    return start.following(
        planned,
        records,
        {} if id_now is None else {"orders": id_now},
        generation=2,
        member="me",
        starts=starts or {},
        start_ids={"orders": ID, "returns": ID},
        cluster="here",
        cut=(None, None),
        epochs={FIRST: 3, RETURNS: 8},
    )


def test_the_offset_follows_the_one_before() -> None:
    found = offset_after({FIRST: (OffsetRange(0, 3),)})
    assert (found.stream, found.plan, found.generation, found.member, found.group) == ("s", 5, 2, "me", "billing")
    assert found.by_partition == {FIRST: (OffsetRange(0, 3),)}
    assert found.epoch_of == {FIRST: 3}
    assert (found.topics, found.cluster, found.starts, found.shared) == ({"orders": ID}, "here", {}, None)


def test_the_id_of_a_topic_is_that_of_now_if_no_broker_gave_one_at_the_adoption() -> None:
    assert offset_after({FIRST: (OffsetRange(0, 3),)}, known_id=None, id_now=ID).topics == {"orders": ID}
    assert offset_after({FIRST: (OffsetRange(0, 3),)}, known_id=None, id_now="").topics == {}


def test_starts_are_carried_with_the_ids_that_their_topics_had_when_the_stream_began() -> None:
    found = offset_after({FIRST: (OffsetRange(0, 3),)}, starts={SECOND: 10, RETURNS: AT_END})
    assert found.start_of == {SECOND: 10, RETURNS: AT_END}
    assert found.topics == {"orders": ID, "returns": ID}


def test_a_start_is_void_once_its_topic_was_created_again() -> None:
    found = offset_after({FIRST: (OffsetRange(0, 3),)}, known_id=OTHER_ID, starts={SECOND: 10, RETURNS: 7})
    assert found.start_of == {RETURNS: 7}
    assert found.topics == {"orders": OTHER_ID, "returns": ID}
    unknown = offset_after({FIRST: (OffsetRange(0, 3),)}, known_id=None, starts={SECOND: 10})
    assert unknown.start_of == {SECOND: 10}, "nobody says that it was"


def test_the_rule_by_which_small_ranges_share_tasks_stands_in_the_offset() -> None:
    small = {TopicPartition("orders", number): (OffsetRange(0, 1),) for number in range(20)}
    assert isinstance(offset_after(small).shared, Sharing)
