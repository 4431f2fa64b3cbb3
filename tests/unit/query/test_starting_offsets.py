"""Where partitions without a commit start, and for how long a stream keeps it: the brokers and the group are played."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast

import pytest

from spark_groupsource.brokers.topic_ids import TopicIds
from spark_groupsource.brokers.topics import Topics
from spark_groupsource.errors import BrokerUnavailable, OptionError
from spark_groupsource.group.member import Assignment
from spark_groupsource.handoff.commit_record import Foreign, GroupCommit
from spark_groupsource.handoff.plan_offset import AT_END, FromTime, PlanOffset, Start
from spark_groupsource.partition import TopicPartition
from spark_groupsource.query.starting_offsets import StartingOffsets
from spark_groupsource.timeouts import ASK_GROUP_EVERY_S, AT_START_S
from tests.support.options import parse

ID, OTHER_ID = "a" * 22, "b" * 22
FIRST, SECOND, THIRD = (TopicPartition("orders", number) for number in range(3))
ALL = [FIRST, SECOND, THIRD]


class Brokers:
    """The topic `orders`: three partitions with ten records each, of the times 0, 100, 200 and so on."""

    def __init__(self) -> None:
        self.end = dict.fromkeys(ALL, 10)
        self.away: set[TopicPartition] = set()
        self.id: str | None = ID
        self.cluster = "here"
        self.asked = 0
        self.now = 0.0

    def without_patience(self) -> Brokers:
        return self

    def cluster_id(self) -> str:
        return self.cluster

    def ids(self, topics: Iterable[str]) -> dict[str, str | None]:
        return dict.fromkeys(topics, self.id)

    def starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: 0 for partition in partitions if partition not in self.away}

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        self.asked += 1
        self.now += 2.0
        return {partition: self.end[partition] for partition in partitions if partition not in self.away}

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        self.asked += 1
        self.now += 2.0
        offsets = {partition: -(-time // 100) for partition, time in times.items() if partition not in self.away}
        return {partition: offset if offset < self.end[partition] else None for partition, offset in offsets.items()}


class Group:
    """What the group has committed."""

    def __init__(self) -> None:
        self.commits: dict[TopicPartition, GroupCommit] = {}
        self.assignment = Assignment()
        self.asked: list[list[TopicPartition]] = []
        self.down = False

    def commits_of(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, GroupCommit]:
        self.asked.append(sorted(partitions))
        if self.down:
            raise BrokerUnavailable("no coordinator")
        return {partition: self.commits.get(partition) for partition in partitions}

    def update(self, start: StartingOffsets, owned: Collection[TopicPartition] = ()) -> None:
        """Have the stream, which has adopted these, find out which starts are still needed."""
        start.update_needed(owned, self.assignment.partitions, read=self.commits_of)


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest.fixture
def group() -> Group:
    return Group()


def starting(brokers: Brokers, **options: str) -> StartingOffsets:
    ids = TopicIds(brokers.ids, sleep=lambda _: None)
    return StartingOffsets(parse(**options), cast(Topics, brokers), ids, clock=cast(Any, lambda: brokers.now))


def offset(starts: Mapping[TopicPartition, Start], plan: int = 0, cluster: str | None = None) -> PlanOffset:
    return PlanOffset.build(
        stream="s",
        plan=plan,
        generation=1,
        member="m",
        group="billing",
        ranges={},
        starts=starts,
        topics={"orders": ID},
        cluster=cluster,
    )


def begun(brokers: Brokers, first: PlanOffset, **options: str) -> StartingOffsets:
    start = starting(brokers, **options)
    start.begin(first)
    return start


JSON = '{"orders":{"0":4,"1":-1,"2":-2}}'


@pytest.mark.parametrize(
    ("options", "starts"),
    [
        ({"startingOffsets": "earliest"}, {}),
        ({}, dict.fromkeys(ALL, 10)),
        ({"startingOffsets": JSON}, {FIRST: 4, SECOND: 10}),
        ({"startingOffsets": '{"orders":{"0":4}}'}, {FIRST: 4, SECOND: None, THIRD: None}),
        ({"startingTimestamp": "250"}, dict.fromkeys(ALL, 3)),
        ({"startingTimestamp": "2500"}, dict.fromkeys(ALL, FromTime(2500))),
        ({"startingTimestamp": "2500", "startingOffsetsByTimestampStrategy": "latest"}, dict.fromkeys(ALL, 10)),
        ({"startingOffsetsByTimestamp": '{"orders":{"1":100}}'}, {FIRST: None, SECOND: 1, THIRD: None}),
    ],
    ids=str,
)
def test_what_the_options_mean_when_a_stream_begins(
    brokers: Brokers, options: dict[str, str], starts: dict[TopicPartition, Start]
) -> None:
    assert starting(brokers, **options).for_new_stream(ALL) == starts


@pytest.mark.parametrize(
    ("options", "unknown"),
    [({}, AT_END), ({"startingOffsets": JSON}, AT_END), ({"startingTimestamp": "250"}, FromTime(250))],
    ids=str,
)
def test_what_a_leader_does_not_answer_is_kept_as_it_was_asked_and_does_not_delay_the_start(
    brokers: Brokers, options: dict[str, str], unknown: Start, caplog: pytest.LogCaptureFixture
) -> None:
    brokers.away = {SECOND}
    start = starting(brokers, **options)
    assert start.for_new_stream(ALL)[SECOND] == unknown
    assert brokers.now <= AT_START_S + 3
    assert "leaders of 1 partitions are not answering: orders-1." in caplog.text
    known = start.for_new_stream([FIRST])[FIRST]
    assert isinstance(known, int)
    assert known >= 0


class TestAnAdoption:
    def test_uses_what_the_stream_began_with_whatever_the_options_say_now(self, brokers: Brokers) -> None:
        start = begun(brokers, offset({FIRST: 3, SECOND: AT_END}), startingOffsets="earliest")
        brokers.end[SECOND] = 12
        assert start(ALL) == {FIRST: 3, SECOND: 12, THIRD: 0}

    def test_keeps_what_it_has_found_out(self, brokers: Brokers) -> None:
        start = begun(brokers, offset({FIRST: AT_END, SECOND: FromTime(250)}))
        brokers.away = set(ALL)
        assert start([FIRST, SECOND]) == {}
        assert start.needed == {FIRST: AT_END, SECOND: FromTime(250)}
        brokers.away = set()
        assert start([FIRST, SECOND]) == {FIRST: 10, SECOND: 3}
        brokers.end = dict.fromkeys(ALL, 20)
        assert start([FIRST, SECOND]) == {FIRST: 10, SECOND: 3}
        assert start.needed == {FIRST: 10, SECOND: 3}

    def test_of_a_topic_that_was_created_again_starts_at_its_beginning(self, brokers: Brokers) -> None:
        start = begun(brokers, offset({FIRST: 3}))
        brokers.id = OTHER_ID
        assert start([FIRST]) == {FIRST: 0}

    @pytest.mark.parametrize("options", [{"startingTimestamp": "2500"}, {}], ids=str)
    def test_is_an_error_at_a_time_without_a_record(self, brokers: Brokers, options: dict[str, str]) -> None:
        start = begun(brokers, offset({FIRST: FromTime(2500)}), **options)
        with pytest.raises(OptionError, match="there is no record in orders-0 at or after 2500"):
            start([FIRST])
        allowed = begun(brokers, offset({FIRST: FromTime(2500)}), **options, startingOffsetsByTimestampStrategy="latest")
        assert allowed([FIRST]) == {FIRST: 10}

    def test_in_another_cluster_keeps_times_and_leaves_offsets_to_the_options(self, brokers: Brokers) -> None:
        start = begun(brokers, offset({FIRST: 3, SECOND: FromTime(250)}, cluster="there"))
        brokers.id = OTHER_ID
        assert start([FIRST, SECOND]) == {FIRST: 10, SECOND: 3}
        same = starting(brokers)
        brokers.id = ID
        same.begin(offset({FIRST: 3}, cluster="here"))
        assert same([FIRST]) == {FIRST: 3}


class TestAStartIsNeeded:
    def test_until_the_stream_owns_the_partition(self, brokers: Brokers, group: Group) -> None:
        start = begun(brokers, offset(dict.fromkeys(ALL, 10), plan=-1))
        group.update(start, [FIRST, SECOND])
        assert start.needed == {THIRD: 10}
        group.update(start, [THIRD])
        assert start.needed == {}
        assert group.asked == [[THIRD]]

    def test_until_the_group_has_a_commit_which_is_asked_for_rarely(self, brokers: Brokers, group: Group) -> None:
        start = begun(brokers, offset(dict.fromkeys(ALL, 10)))
        group.update(start)
        group.commits = {FIRST: Foreign(0)}
        brokers.now += ASK_GROUP_EVERY_S - 1
        group.update(start)
        assert start.needed.keys() == set(ALL)
        brokers.now += 1
        group.update(start)
        assert start.needed.keys() == {SECOND, THIRD}
        brokers.now += ASK_GROUP_EVERY_S
        group.update(start)
        assert group.asked == [ALL, ALL, [SECOND, THIRD]]
        assert brokers.asked == 0

    def test_as_long_as_the_group_cannot_be_asked(self, brokers: Brokers, group: Group) -> None:
        start = begun(brokers, offset({FIRST: 10}))
        group.down = True
        group.update(start)
        assert start.needed == {FIRST: 10}

    def test_and_found_out_when_the_leader_is_back(self, brokers: Brokers, group: Group) -> None:
        start = begun(brokers, offset({FIRST: AT_END, SECOND: FromTime(250), THIRD: AT_END}))
        group.assignment = Assignment(frozenset({THIRD}))
        brokers.away = {FIRST, SECOND}
        group.update(start)
        assert start.needed == {FIRST: AT_END, SECOND: FromTime(250), THIRD: AT_END}
        brokers.away = set()
        brokers.now += ASK_GROUP_EVERY_S
        group.update(start)
        assert start.needed == {FIRST: 10, SECOND: 3, THIRD: AT_END}, "the survey asks for the last one"

    def test_and_not_asked_for_if_its_topic_is_not_subscribed(self, brokers: Brokers, group: Group) -> None:
        elsewhere = TopicPartition("returns", 0)
        start = begun(brokers, offset({FIRST: 10, elsewhere: AT_END}))
        group.update(start)
        assert group.asked == [[FIRST]]
        assert start.needed == {FIRST: 10, elsewhere: AT_END}


BY_TIME = ({"startingTimestamp": "2500"}, FromTime(2500), "startingTimestamp: there is no record in orders-1 at or after 2500")
BY_OFFSET = ({"startingOffsets": '{"orders":{"0":4}}'}, None, "startingOffsets does not name orders-1")
MISTAKES = pytest.mark.parametrize(("options", "second", "message"), [BY_TIME, BY_OFFSET], ids=["time", "offset"])


@MISTAKES
def test_a_mistake_of_the_options_ends_a_new_stream_also_if_another_member_has_the_partition(
    brokers: Brokers, group: Group, options: dict[str, str], second: Start, message: str
) -> None:
    start = begun(brokers, offset({FIRST: 4, SECOND: second}, plan=-1), **options)
    with pytest.raises(OptionError, match=message):
        group.update(start, [FIRST])
    group.commits = {SECOND: Foreign(7)}
    again = begun(brokers, offset({FIRST: 4, SECOND: second}, plan=-1), **options)
    group.update(again, [FIRST])
    assert again.needed == {}, "the group has a commit"


@MISTAKES
def test_a_stream_that_has_planned_does_not_end_before_it_gets_the_partition(
    brokers: Brokers, group: Group, options: dict[str, str], second: Start, message: str
) -> None:
    start = begun(brokers, offset({FIRST: 4, SECOND: second}), **options)
    group.update(start, [FIRST])
    assert start.needed == {SECOND: second}
    with pytest.raises(OptionError, match=message):
        start([SECOND])
