"""The offset JSON that Spark keeps in a query's checkpoint."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_groupsource.errors import OffsetError
from spark_groupsource.handoff.plan_offset import AT_END, FromTime, PlanOffset, Start
from spark_groupsource.handoff.planner import Sharing
from spark_groupsource.partition import OffsetRange, TopicPartition

FORMATS = Path(__file__).parents[1] / "formats"
GROUP = "orders-to-lake"

partitions = st.builds(TopicPartition, st.sampled_from(["orders", "returns", "Ünïcode", "a.b-c_d"]), st.integers(0, 2**31 - 1))
bounds = st.sets(st.integers(0, 2**63 - 1), min_size=1, max_size=7).map(sorted)


@st.composite
def ranges(draw: st.DrawFn) -> tuple[OffsetRange, ...]:
    """Some ranges to read again, and one at the position, which may be empty."""
    places = draw(bounds)
    places = places if len(places) % 2 == 0 else [*places, places[-1]]
    return tuple(OffsetRange(*pair) for pair in zip(places[::2], places[1::2], strict=True))


starts: st.SearchStrategy[Start] = st.one_of(
    st.integers(AT_END, 2**63 - 1), st.builds(FromTime, st.integers(0, 2**63 - 1)), st.none()
)
near = st.builds(TopicPartition, st.sampled_from(["orders", "returns"]), st.integers(0, 12))


@st.composite
def offsets(draw: st.DrawFn) -> PlanOffset:
    return PlanOffset.build(
        stream=draw(st.from_regex(r"[0-9a-f]{16}", fullmatch=True)),
        plan=draw(st.integers(0, 2**63 - 1)),
        generation=draw(st.integers(-1, 2**31 - 1)),
        member=draw(st.text(max_size=20)),
        group=GROUP,
        ranges=draw(st.dictionaries(partitions, ranges(), max_size=8)),
        starts=draw(st.dictionaries(partitions | near, starts, max_size=20)),
        topics=draw(st.dictionaries(st.text(max_size=5), st.from_regex(r"[0-9a-zA-Z_-]{22}", fullmatch=True), max_size=3)),
        cut=draw(st.tuples(st.none() | st.integers(1), st.none() | st.integers(1))),
        shared=draw(st.none() | st.builds(Sharing, st.integers(1), st.integers(1), st.integers(1))),
    )


@given(offsets())
def test_a_plan_comes_back_from_the_checkpoint_as_it_was_made(offset: PlanOffset) -> None:
    stored = json.dumps(offset.to_json())
    again = PlanOffset.parse(json.loads(stored), GROUP)
    assert again == offset
    assert again.by_partition == offset.by_partition
    assert again.start_of == offset.start_of
    # Spark compares offsets as text: what it hands back and what it is given again must be the same.
    assert json.dumps(again.to_json()) == stored


@given(st.dictionaries(partitions | near, starts, max_size=40))
def test_starts_come_back_and_are_in_the_fewest_lists(given_starts: dict[TopicPartition, Start]) -> None:
    first = PlanOffset.first(GROUP, given_starts)
    assert first.start_of == given_starts
    lists = sum(len(runs) for runs in first.starts.values())
    before = (TopicPartition(partition.topic, partition.partition - 1) for partition in given_starts)
    assert lists == sum(partition not in given_starts for partition in before)


def test_the_starts_of_ten_thousand_partitions_take_a_few_bytes_each() -> None:
    def size(start: Start) -> int:
        there = {TopicPartition("orders", number): start for number in range(10_000)}
        return len(json.dumps(PlanOffset.first(GROUP, there).to_json(), separators=(",", ":")))

    assert size(123_456_789) < 10 * 10_000 + 200
    assert size(AT_END) < 3 * 10_000 + 200


ORDERS = [TopicPartition("orders", number) for number in range(11)]
FIRST_RETURNS, LAST_RETURNS = TopicPartition("returns", 0), TopicPartition("returns", 10)
ALL_FIELDS = PlanOffset.build(
    stream="0f3c9d2a7b615e48",
    plan=41,
    generation=12,
    member="rdkafka-5b0d1c0e-7f5a-4f6e-9f0e-2b9f0d1f3c55",
    group=GROUP,
    ranges={
        ORDERS[0]: (OffsetRange(100, 120), OffsetRange(200, 300)),
        ORDERS[3]: (OffsetRange(57, 57),),
        LAST_RETURNS: (OffsetRange(0, 12),),
    },
    starts={ORDERS[1]: 57, ORDERS[2]: AT_END, ORDERS[4]: FromTime(1700000000000), ORDERS[10]: None, FIRST_RETURNS: 0},
    topics={"orders": "Zm9vYmFyYmF6cXV4MTIzNA"},
    cluster="MkU3OEVBNTcwNTJENDM2Qg",
    cut=(None, 100),
    shared=Sharing(least=16, most=2000, small=500),
    epochs={ORDERS[0]: 4, ORDERS[3]: 0, LAST_RETURNS: 12},
)


def test_the_format_of_a_release_is_read_permanently() -> None:
    stored = json.loads((FORMATS / "offset_v4.json").read_text())
    assert PlanOffset.parse(stored, GROUP) == ALL_FIELDS
    assert json.dumps(ALL_FIELDS.to_json()) == json.dumps(stored)
    assert stored.keys() == PlanOffset.model_fields.keys()


def test_fields_that_say_nothing_are_left_out() -> None:
    least = PlanOffset.build(stream="a", plan=0, generation=1, member="m", group=GROUP, ranges={})
    assert least.to_json().keys() == {"v", "stream", "plan", "generation", "member", "group", "ranges"}
    assert PlanOffset.parse(least.to_json(), GROUP) == least


@pytest.mark.parametrize(
    ("name", "readable"),
    [
        ("billing_1", "billing_1-"),
        ("eu/orders.v2 (blue)", "eu-orders-v2-blue-"),
        ("x" * 300, "x" * 40 + "-"),
        ("\x1b[31m", "31m-"),
        ("é", ""),
    ],
)
def test_a_stream_is_named_after_its_query_in_characters_that_are_safe_everywhere(name: str, readable: str) -> None:
    first = PlanOffset.first(GROUP, name=name)
    assert re.fullmatch(f"{readable}[0-9a-f]{{16}}", first.stream)
    assert PlanOffset.parse(first.to_json(), GROUP) == first


def _stored(**change: Any) -> dict[str, Any]:
    stored: dict[str, Any] = json.loads((FORMATS / "offset_v4.json").read_text())
    return {**stored, **change}


@pytest.mark.parametrize("version", [1, 3, 5, 17])
def test_a_checkpoint_of_another_version_says_so(version: int) -> None:
    with pytest.raises(OffsetError, match=rf"^The checkpoint cannot be read: another version .* in format {version},"):
        PlanOffset.parse(_stored(v=version, shape="new"), GROUP)


def test_a_checkpoint_of_another_group_names_both_groups() -> None:
    with pytest.raises(OffsetError, match=r"'orders-to-lake', but kafka.group.id is 'returns'"):
        PlanOffset.parse(_stored(), "returns")


def test_a_checkpoint_of_the_built_in_kafka_source_says_that_it_cannot_be_continued() -> None:
    with pytest.raises(OffsetError, match=r"A query cannot continue from a checkpoint of Spark's own Kafka source"):
        PlanOffset.parse({"orders": {"0": 23, "1": 345}}, GROUP)


@pytest.mark.parametrize(
    "offset",
    [
        {},
        _stored(v="4"),
        _stored(v=0),
        _stored(v=True),
        _stored(v=4.0),
        {name: value for name, value in _stored().items() if name != "v"},
        _stored(plan=-2),
        _stored(plan=1.0),
        _stored(stream="two words"),
        _stored(extra=1),
        _stored(ranges={"orders": {"0": [[5, 4]]}}),
        _stored(ranges={"orders": {"0": [[-1, 4]]}}),
        _stored(ranges={"orders": {"0": []}}),
        _stored(ranges={"orders": {"0": [[1, 3], [2, 3]]}}),
        _stored(ranges={"orders": {"0": [[1, 1], [2, 3]]}}),
        _stored(ranges={"orders": {"00": [[1, 2]]}}),
        _stored(starts={"orders": {"1": []}}),
        _stored(starts={"orders": {"1": [-2]}}),
        _stored(starts={"orders": {"1": ["5"]}}),
        _stored(starts={"orders": {"1": [[1, 2]]}}),
        _stored(starts={"orders": {"1": [[-1]]}}),
        _stored(starts={"orders": {"01": [5]}}),
        _stored(starts={"orders": {"1": [5, 6], "2": [7]}}),
        _stored(starts={"orders": {"2147483647": [5, 6]}}),
        _stored(partitions={"orders": 3}),
        _stored(shared=[16, 2000]),
        _stored(shared=[16, 2000, 0]),
        _stored(shared=[16, None, 500]),
    ],
    ids=lambda offset: json.dumps({key: offset[key] for key in offset if offset[key] != _stored().get(key)} or sorted(offset)),
)
def test_a_damaged_checkpoint_says_that_this_source_did_not_write_it(offset: dict[str, Any]) -> None:
    with pytest.raises(OffsetError, match="did not write"):
        PlanOffset.parse(offset, GROUP)
