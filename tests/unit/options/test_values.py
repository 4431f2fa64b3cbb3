"""The text of one option: how it may be written, and what it means."""

from __future__ import annotations

import pytest

from spark_groupsource.partition import TopicPartition
from tests.support.options import parse


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("500ms", 500),
        ("250", 250),
        (" 2M ", 120_000),
        ("2min", 120_000),
        ("1h", 3_600_000),
        ("1d", 86_400_000),
        ("2000us", 2),
    ],
)
def test_durations_are_written_as_in_spark(text: str, milliseconds: int) -> None:
    assert parse(maxTriggerDelay=text).max_trigger_delay_ms == milliseconds


def test_an_offset_may_be_the_latest_or_the_earliest_or_a_number_as_text() -> None:
    offsets = parse(startingOffsets='{"orders":{"0":"23","1":-1,"2":-2}}').starting_offsets
    assert offsets == {TopicPartition("orders", 0): 23, TopicPartition("orders", 1): -1, TopicPartition("orders", 2): -2}
