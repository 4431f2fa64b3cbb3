"""The changes between two looks at a group."""

from __future__ import annotations

from spark_groupsource.brokers.group_view import GroupView
from spark_groupsource.cli.group_changes import Changes, GroupEvent, Rates, difference_text, rates
from spark_groupsource.cli.render import member_names
from spark_groupsource.handoff.commit_record import CommitRecord, Foreign, GroupCommit, OtherFormat, OwedRange
from tests.support.group_views import member, place, view, written_by


def events_of(*looks: GroupView) -> list[tuple[str, str]]:
    """The events of the last look."""
    changes = Changes()
    events: list[GroupEvent] = []
    for look in looks:
        _, events = changes.since_last(look, 2)
    return [(event.kind, event.text) for event in events]


def test_rates_are_offsets_per_second_of_partitions_that_both_looks_know() -> None:
    before = view(commits={0: Foreign(10), 1: Foreign(10), 2: None}, end=100)
    after = view(commits={0: Foreign(15), 1: Foreign(4), 2: Foreign(7), 3: Foreign(1)}, end=130)
    found = rates(before, after, 2)
    assert found.produced == {place(0): 15, place(1): 15, place(2): 15}
    assert found.committed == {place(0): 2.5, place(1): -3}
    assert (found.all_produced, found.all_committed) == (45, -0.5)


def test_an_end_that_is_not_known_or_is_lower_gives_no_rate_or_none_below_0() -> None:
    assert rates(view(end=None), view(end=100), 1).produced == {}
    assert rates(view(end=100), view(end=3), 1).produced == dict.fromkeys(map(place, range(3)), 0)
    assert rates(view(), view(), 0) == Rates()


def test_a_member_that_joins_and_the_partitions_that_move_to_it() -> None:
    assert events_of(view(member("a", 0, 1, 2)), view(member("a", 0), member("b", 1, 2))) == [
        ("joined", "b@host"),
        ("moved", "orders-1: a@host -> b@host"),
        ("moved", "orders-2: a@host -> b@host"),
    ]


def test_a_member_that_leaves_with_nobody_to_take_over() -> None:
    assert events_of(view(member("a", 0)), view(state="empty")) == [
        ("state", "stable -> empty"),
        ("left", "a@host"),
        ("moved", "orders-0: a@host -> nobody"),
    ]


def test_while_a_classic_group_rebalances_nothing_has_moved_yet() -> None:
    """Its coordinator then returns no assignment."""
    before, between = view(member("a", 0, 1, 2)), view(member("a"), member("b"), state="preparing rebalancing")
    after = view(member("a", 0, 1), member("b", 2))
    assert events_of(before, between) == [("state", "stable -> preparing rebalancing"), ("joined", "b@host")]
    assert events_of(before, between, after) == [
        ("state", "preparing rebalancing -> stable"),
        ("moved", "orders-2: a@host -> b@host"),
    ]


def test_a_static_member_that_restarts_is_the_same_one() -> None:
    before, after = (view(member("a", 0, 1, 2, instance_id="query-1", run=run)) for run in (1, 2))
    assert events_of(before, after) == []
    assert events_of(before, view()) == [
        ("left", "a/query-1@host"),
        *(("moved", f"orders-{n}: a/query-1@host -> nobody") for n in range(3)),
    ]


def test_a_reset_and_what_becomes_held_and_released() -> None:
    owed = CommitRecord(stream="a", logged=1, done=1, next=9, owed=(OwedRange("b", 3, 2, 4),))
    settled = CommitRecord(stream="a", logged=1, done=1, next=9)
    assert events_of(view(commits={0: Foreign(10)}), view(commits={0: owed})) == [
        ("reset", "orders-0: the committed offset moved back from 10 to 2"),
        ("held", "orders-0 [2, 4): held for stream b"),
    ]
    assert events_of(view(commits={0: owed}), view(commits={0: settled})) == [
        ("released", "orders-0 [2, 4): no longer held for stream b")
    ]


def test_a_record_in_another_format_settles_nothing() -> None:
    owed = CommitRecord(stream="a", logged=1, done=1, next=9, owed=(OwedRange("b", 3, 2, 4),))
    newer = view(commits={0: OtherFormat(2, 5), 1: Foreign(10)})
    assert events_of(view(commits={0: owed, 1: Foreign(10)}), newer) == []
    assert events_of(newer, view(commits={0: owed, 1: Foreign(10)})) == []


def test_another_coordinator_and_another_protocol() -> None:
    after = view(member("a"), coordinator="broker 2", protocol="consumer", assignor="uniform")
    assert events_of(view(member("a")), after) == [
        ("state", "classic, assignor range -> consumer, assignor uniform"),
        ("coordinator", "broker 1 -> broker 2"),
    ]


def test_members_and_coordinator_that_differ_for_long_are_an_event_once() -> None:
    moving = view(member("a", 0), member("b", 1), commits={0: written_by("a"), 1: written_by("a"), 2: written_by("b")})
    changes = Changes()
    events = [event for _ in range(20) for event in changes.since_last(moving, 2)[1]]
    assert events == [
        GroupEvent("differs", "orders-1: assigned to b@host, last written by a@host"),
        GroupEvent("differs", "orders-2: assigned to nobody, last written by b@host"),
    ]


def test_who_has_left_differs_only_from_an_owner_and_nobody_differs_while_a_classic_group_rebalances() -> None:
    commits: dict[int, GroupCommit] = {0: written_by("gone"), 1: written_by("gone"), 2: Foreign(3)}
    group = view(member("a", 0, 2), commits=commits)
    (difference,) = group.differences
    assert (
        difference_text(difference, member_names(group))
        == "orders-0: assigned to a@host, last written by a client that is not a member"
    )
    hidden = view(member("a"), commits={0: written_by("a")}, state="preparing rebalancing")
    assert hidden.differences == ()


def test_two_members_with_one_name_are_told_apart_also_when_one_takes_over_from_the_other() -> None:
    first, second = member("a", 0, run=1111), member("a", 0, run=2222)
    assert events_of(view(first), view(second)) == [
        ("left", "a@host#1111"),
        ("joined", "a@host#2222"),
        ("moved", "orders-0: a@host#1111 -> a@host#2222"),
    ]
