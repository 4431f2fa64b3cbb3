"""Where to start and to end: which option counts, and which offsets it means in the logs as they are."""

from __future__ import annotations

import pytest

from spark_groupsource.options.model import Options
from spark_groupsource.options.start_and_end import ByOffset, ByTime
from spark_groupsource.partition import TopicPartition
from tests.support.options import BASE

ORDERS_0 = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("given", "stream", "batch"),
    [
        ({}, "latest", "earliest"),
        ({"startingOffsets": "earliest"}, "earliest", "earliest"),
        ({"startingOffsets": "LATEST"}, "latest", "latest"),
        ({"startingOffsets": "committed"}, "latest", "committed"),
        ({"startingOffsets": '{"orders":{"0":1}}'}, *[ByOffset("startingOffsets", {ORDERS_0: 1})] * 2),
        (
            {"startingOffsetsByTimestamp": '{"orders":{"0":7}}', "startingOffsets": "committed"},
            *[ByTime("startingOffsetsByTimestamp", {ORDERS_0: 7}, or_latest=False)] * 2,
        ),
        (
            {
                "startingTimestamp": "9",
                "startingOffsetsByTimestamp": '{"orders":{"0":7}}',
                "startingOffsetsByTimestampStrategy": "Latest",
            },
            *[ByTime("startingTimestamp", 9, or_latest=True)] * 2,
        ),
    ],
    ids=str,
)
def test_a_time_for_all_goes_before_times_and_times_before_offsets(given: dict[str, str], stream: object, batch: object) -> None:
    options = Options.parse({**BASE, **given})
    assert options.stream_start == stream
    assert options.batch_start == batch


@pytest.mark.parametrize(
    ("given", "end"),
    [
        ({}, "latest"),
        ({"endingOffsets": '{"orders":{"0":1}}'}, ByOffset("endingOffsets", {ORDERS_0: 1})),
        (
            {"endingOffsets": "latest", "endingOffsetsByTimestamp": '{"orders":{"0":7}}'},
            ByTime("endingOffsetsByTimestamp", {ORDERS_0: 7}, or_latest=True),
        ),
        (
            {"endingTimestamp": "9", "endingOffsetsByTimestamp": '{"orders":{"0":7}}'},
            ByTime("endingTimestamp", 9, or_latest=True),
        ),
    ],
    ids=str,
)
def test_the_same_holds_for_the_end_of_a_batch_read(given: dict[str, str], end: object) -> None:
    assert Options.parse({**BASE, **given}).batch_end == end
