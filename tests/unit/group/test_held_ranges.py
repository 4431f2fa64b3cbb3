"""What becomes of ranges that are owed to streams that do not come back."""

from __future__ import annotations

import logging
from collections.abc import Collection

import pytest

from spark_groupsource.group.held_ranges import HeldRanges
from spark_groupsource.handoff.commit_record import CommitRecord, OpenRange, OwedRange
from spark_groupsource.handoff.rules import HOLD, HeldClaims, Stream
from spark_groupsource.partition import OffsetRange, TopicPartition

ORDERS, RETURNS = TopicPartition("orders", 3), TopicPartition("returns", 0)
ME = Stream("me", logged=7, durable=7)
OWED = OwedRange("gone", 4, 20, 60)


def record(*owed: OwedRange) -> CommitRecord:
    return CommitRecord(stream="me", logged=7, done=7, next=100, owed=owed)


def seen(
    holding: HeldRanges, now: float, *records: CommitRecord, alive: Collection[str] = ()
) -> dict[TopicPartition, tuple[OffsetRange, ...]]:
    """Note an answer of now that shows these streams as alive, and plan by it. The records are of ORDERS and RETURNS."""
    owned = dict(zip((ORDERS, RETURNS), records, strict=False))
    holding.note(owned, ME, now, alive)
    return holding.to_reread(owned, ME, alive)


def test_rereading_takes_what_others_are_owed_at_once_and_not_what_this_stream_is_owed() -> None:
    holding = HeldRanges(HeldClaims(reread_after_s=0), fresh=False)
    orders = record(OWED, OwedRange("me", 6, 60, 70), OwedRange("third", 1, 0, 5))
    assert seen(holding, 0.0, orders, record()) == {ORDERS: (OffsetRange(0, 5), OffsetRange(20, 60))}


def test_a_range_is_reread_after_its_stream_was_dead_for_so_long_each_by_itself() -> None:
    holding = HeldRanges(HeldClaims(reread_after_s=600), fresh=False)
    late = OwedRange("third", 1, 0, 5)
    assert seen(holding, 1000.0, record(OWED)) == {}
    assert seen(holding, 1599.0, record(OWED, late)) == {}
    assert seen(holding, 1600.0, record(OWED, late)) == {ORDERS: (OffsetRange(20, 60),)}
    assert seen(holding, 2199.0, record(late)) == {ORDERS: (OffsetRange(0, 5),)}


def test_the_rest_of_a_range_that_was_cut_does_not_wait_again() -> None:
    holding = HeldRanges(HeldClaims(reread_after_s=600), fresh=False)
    seen(holding, 0.0, record(OWED))
    assert seen(holding, 600.0, record(OWED._replace(start=40))) == {ORDERS: (OffsetRange(40, 60),)}


def test_a_partition_that_went_away_and_came_back_is_held_from_anew() -> None:
    holding = HeldRanges(HeldClaims(reread_after_s=600), fresh=False)
    seen(holding, 0.0, record(OWED), record(OWED))
    holding.forget({ORDERS})
    assert seen(holding, 600.0, record(OWED), record(OWED)) == {RETURNS: (OffsetRange(20, 60),)}


def test_a_stream_that_came_back_and_died_again_between_two_triggers_is_dead_since_its_second_death() -> None:
    """Answers come every few seconds; plans are an hour apart."""
    holding = HeldRanges(HeldClaims(reread_after_s=600), fresh=False)
    for now in range(0, 3600, 10):
        holding.note({ORDERS: record(OWED)}, ME, now, {"gone"} if 120 <= now < 3300 else ())
    assert holding.to_reread({ORDERS: record(OWED)}, ME) == {}
    assert seen(holding, 3900.0, record(OWED)) == {ORDERS: (OffsetRange(20, 60),)}


NOT_CHOSEN = HeldClaims(chosen=False)


def new_beside_dead_ones(policy: HeldClaims) -> HeldRanges:
    """A new query that found two streams' claims before it joined. One of them does not run."""
    holding = HeldRanges(policy, fresh=True)
    live = CommitRecord(stream="live", logged=2, done=1, next=30, open=(OpenRange(5, 30),))
    holding.note_earlier_claims({ORDERS: record(OWED), RETURNS: live})
    return holding


BOTH = {ORDERS: record(OWED), RETURNS: record(OwedRange("live", 2, 5, 30))}


def test_a_new_query_warns_once_at_its_start_of_what_streams_that_do_not_run_had_claimed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    holding = new_beside_dead_ones(NOT_CHOSEN)
    assert holding.liveness_matters, "it matters who is alive"
    for now in (0.0, 10.0):
        holding.note(BOTH, ME, now, {"live"})
        holding.warn(BOTH, ME)
    first, *others = caplog.messages
    assert first.startswith(
        "this query is new: its checkpoint was empty when it started. Queries that are not running now have claimed but not "
        "confirmed 40 offsets in 1 partitions: streams gone. This query will leave these ranges to those queries, and read "
        "everything else."
    )
    assert all("are held" in text for text in others)
    holding.note(BOTH, ME, 20.0, ())
    holding.warn(BOTH, ME)
    assert "streams gone, live" in caplog.messages[-1], "it has died, too"
    assert not holding.liveness_matters, "everything is said"


def test_a_query_whose_ranges_are_held_is_logged_once_for_all_partitions(caplog: pytest.LogCaptureFixture) -> None:
    records = {TopicPartition("orders", number): record(OWED) for number in range(20)}
    HeldRanges(HOLD, fresh=False).warn(records, ME)
    (warning,) = caplog.messages
    assert warning.startswith("800 offsets are held: stream gone claimed them")
    assert "orders-4 [20, 60) and 15 more. Until" in warning
    assert "lag: 800 so far" in warning


@pytest.mark.parametrize(
    ("policy", "fate"),
    [
        (HOLD, "only that stream will read them, once its query restarts from its checkpoint"),
        (HeldClaims(reread_after_s=0), "this query will read them in its next micro-batch"),
        (HeldClaims(reread_after_s=600), "if they are not confirmed within 600 s, this query will read them"),
    ],
    ids=str,
)
def test_each_held_range_is_logged_with_what_becomes_of_it(
    policy: HeldClaims, fate: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        HeldRanges(policy, fresh=False).warn({ORDERS: record(OWED), RETURNS: record()}, ME)
    (warning,) = caplog.messages
    assert warning.startswith("40 offsets are held: stream gone claimed them")
    assert "in orders-3 [20, 60)." in warning
    assert fate in warning


def test_the_warning_says_since_when_and_how_much_counts_as_lag_for_the_lowest_range(caplog: pytest.LogCaptureFixture) -> None:
    claimed = OWED._replace(since=1_763_744_384)
    HeldRanges(HOLD, fresh=False).warn({ORDERS: record(claimed, OwedRange("third", 1, 70, 75))}, ME)
    lowest, above = caplog.messages
    assert lowest.endswith(
        "(heldClaims=hold). They were claimed at 2025-11-21T16:59:44Z, in orders-3 [20, 60). Until they are confirmed, the "
        "committed offsets cannot move past them, and finished records above them count as lag: 35 so far"
    )
    assert above.startswith("5 offsets are held: stream third claimed them")
    assert "at an unknown time, in orders-3 [70, 75)." in above


def test_what_is_owed_to_the_query_itself_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    HeldRanges(HOLD, fresh=False).warn({ORDERS: record(OwedRange("me", 7, 0, 5), OWED)}, ME)
    (warning,) = caplog.messages
    assert "stream gone" in warning
    assert warning.endswith("lag: 0 so far"), "not the lowest range"


def test_a_range_of_a_stream_that_is_alive_is_not_reread_until_it_is_dead() -> None:
    """Its micro-batch may last for long: a trigger of an hour, or a backlog."""
    holding = HeldRanges(HeldClaims(reread_after_s=0), fresh=False)
    assert seen(holding, 0.0, record(OWED), alive={"gone"}) == {}
    assert seen(holding, 1.0, record(OWED), alive={"another"}) == {ORDERS: (OffsetRange(20, 60),)}
