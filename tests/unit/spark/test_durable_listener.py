"""Which queries of a driver share a group, and which query with state does, as the progress of their micro-batches shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from spark_groupsource.handoff.plan_offset import PlanOffset
from spark_groupsource.partition import OffsetRange, TopicPartition
from spark_groupsource.spark.durable_listener import SharedGroups, gave_up_a_part

ID, OTHER_ID = "i" * 22, "j" * 22
"""Ids of a topic, and of another one."""


def end(
    stream: str,
    *owned: str,
    plan: int = 0,
    group: str = "billing",
    member: str = "m",
    topics: Mapping[str, str] | None = None,
    cluster: str | None = None,
    starts: str | None = None,
) -> dict[str, Any]:
    """Return an end offset of a stream that owns these partitions, each written as `orders-0`."""
    ranges = {TopicPartition(name[:-2], int(name[-1])): (OffsetRange(plan, plan + 1),) for name in owned}
    first = PlanOffset.build(
        stream=stream,
        plan=plan,
        generation=1,
        member=member,
        group=group,
        ranges=ranges,
        starts={} if starts is None else {TopicPartition(starts, 0): 7},
        topics=topics or {},
        cluster=cluster,
    )
    return first.to_json()


def progress(
    query: str, *ends: dict[str, Any], run: str = "1", name: str | None = None, state: bool = False, replay: bool = False
) -> dict[str, Any]:
    return {
        "id": query,
        "runId": f"{query}-{run}",
        "name": name,
        "durationMs": {"addBatch": 5} if replay else {"addBatch": 5, "latestOffset": 1},
        "stateOperators": [{"operatorName": "stateStoreSave"}] if state else [],
        "sources": [{"startOffset": None, "endOffset": each} for each in ends],
    }


@pytest.fixture
def groups() -> SharedGroups:
    return SharedGroups()


ONLY_ONE = "each record reaches only one of them. If both need all records, give each its own kafka.group.id."


def test_two_queries_of_one_group_for_one_topic_are_worth_one_warning(
    groups: SharedGroups, caplog: pytest.LogCaptureFixture
) -> None:
    groups.progressed(progress("q1", end("s1", "orders-0", "orders-1"), name="A"))
    assert caplog.messages == []
    groups.progressed(progress("q2", end("s2", "orders-1")))
    for plan in (1, 2):
        groups.progressed(progress("q1", end("s1", "orders-0", plan=plan), name="A"))
        groups.progressed(progress("q2", end("s2", "orders-1", plan=plan)))
    expected = f"Queries A and q2 on this driver are members of group billing for the same topics, so {ONLY_ONE}"
    assert caplog.messages == [expected]


@pytest.mark.parametrize(
    "other",
    [
        end("s2", "orders-1", group="shipping"),
        end("s2", "payments-0"),
        end("s2", "orders-1", cluster="another"),
        {"orders": {"0": 17}},
        {"group": "billing", "ranges": {}, "stream": "?", "plan": 0},
        5,
        None,
    ],
    ids=["another group", "other topics", "another cluster", "Spark's own source", "no stream", "rate", "no offset"],
)
def test_queries_that_share_nothing_are_left_alone(groups: SharedGroups, other: Any, caplog: pytest.LogCaptureFixture) -> None:
    groups.progressed(progress("q1", end("s1", "orders-0")))
    groups.progressed(progress("q2", other))
    assert caplog.messages == []


def test_a_topic_that_a_query_has_had_in_this_run_is_still_its_topic(
    groups: SharedGroups, caplog: pytest.LogCaptureFixture
) -> None:
    groups.progressed(progress("q1", end("s1", "orders-0", "payments-0")))
    groups.progressed(progress("q1", end("s1", "orders-0", plan=1)))
    groups.progressed(progress("q2", end("s2", "payments-0")))
    assert len(caplog.messages) == 1


def test_a_query_that_has_ended_and_its_restart_share_nothing(groups: SharedGroups, caplog: pytest.LogCaptureFixture) -> None:
    groups.progressed(progress("q1", end("s1", "orders-0")))
    groups.progressed(progress("q1", end("s1", "orders-0", plan=1, member="n"), run="2"))  # nobody said that the first has ended
    groups.ended("q1-1")
    groups.ended("q1-2")
    groups.progressed(progress("q2", end("s2", "orders-0")))
    assert caplog.messages == []
    groups.begin("local-2")  # another SparkContext
    groups.progressed(progress("q3", end("s3", "orders-0")))
    assert caplog.messages == []


def test_what_is_replayed_or_has_no_successor_does_not_count(groups: SharedGroups, caplog: pytest.LogCaptureFixture) -> None:
    """The run before may have had another subscription."""
    groups.progressed(progress("q1", end("s1", "orders-0")))
    old = end("s2", "orders-1")
    groups.progressed(progress("q2", old, replay=True))
    unchanged = progress("q2", old)
    unchanged["sources"][0]["startOffset"] = old
    groups.progressed(unchanged)
    assert caplog.messages == []


def test_two_sources_of_one_query_in_one_group_are_worth_one_warning(
    groups: SharedGroups, caplog: pytest.LogCaptureFixture
) -> None:
    for plan in (0, 1):
        groups.progressed(progress("q1", end("s1", "orders-0", plan=plan), end("s2", "orders-1", plan=plan), name="A"))
    assert caplog.messages == [f"Two sources in query A are members of group billing for the same topics, so {ONLY_ONE}"]


def state_warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [message.split(",")[0] for message in caplog.messages if "(docs/running.md, Stateful queries)" in message]


def test_a_query_with_state_that_shares_its_group_with_another_one_is_worth_one_warning(
    groups: SharedGroups, caplog: pytest.LogCaptureFixture
) -> None:
    for plan in (0, 1):
        groups.progressed(progress("q1", end("s1", "orders-0", plan=plan), state=True))
        groups.progressed(progress("q2", end("s2", "orders-1", plan=plan)))
    assert state_warnings(caplog) == ["Query q1 keeps state"]


@pytest.mark.parametrize("state", [True, False])
def test_a_query_with_state_that_gives_partitions_up_is_worth_one_warning(
    groups: SharedGroups, state: bool, caplog: pytest.LogCaptureFixture
) -> None:
    groups.progressed(progress("q1", end("s1", "orders-0", "orders-1", "orders-2"), state=state))
    groups.progressed(progress("q1", end("s1", "orders-0", "orders-1", plan=1), state=state))
    groups.progressed(progress("q1", end("s1", "orders-0", plan=2), state=state))
    assert state_warnings(caplog) == (["Query q1 keeps state"] if state else [])
    assert len(caplog.messages) == len(state_warnings(caplog))


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (end("s", "orders-0", "orders-1", topics={"orders": ID}), False),
        (end("s", "orders-0", topics={"orders": ID}), True),
        (end("s", "orders-0", "orders-1", "orders-2", "items-0", topics={"orders": ID}), False),
        (end("s", "items-0"), False),
        (end("s", "orders-0", topics={"orders": OTHER_ID}), False),
        (end("s", "orders-0", member="n", topics={"orders": ID}), False),
    ],
    ids=["as before", "one is gone", "more", "the topic is gone", "created again", "another member"],
)
def test_which_change_shows_that_another_member_has_a_partition(now: dict[str, Any], expected: bool) -> None:
    assert gave_up_a_part(end("s", "orders-0", "orders-1", topics={"orders": ID}), now) is expected
