"""Groups in which the sink keeps what it has written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_groupsource.brokers.group_view import GroupView, PartitionView
from spark_groupsource.cli.sink_groups import (
    as_read,
    read_part,
)
from spark_groupsource.handoff.commit_record import Foreign
from spark_groupsource.partition import TopicPartition
from spark_groupsource.sink.token import Mark, Opener, Token, Written

QUERY = "5e0bd5ce-5a4a-4d49-a9e1-f1d5a8f9a1d5"
RUN = "0b5dc8e3-9e4f-4c51-a8f6-6b1d2c3e4f50"
TOKEN = Token(QUERY, 17, Written(5, 0xABC), RUN).metadata()
OPEN = Mark(QUERY, RUN, Opener(1_763_744_390, "host-7", 4711)).metadata()
CLOSED = Mark(QUERY, RUN, None).metadata()


def kept(metadata: str | None, offset: int = 18, partition: int = 0) -> PartitionView:
    return PartitionView(TopicPartition("invoices", partition), None, Foreign(offset), 100, metadata)


def group(metadata: str | None, name: str = "invoices") -> GroupView:
    return GroupView(name, "empty", "classic", "", "broker 1", (), (kept(metadata),))


@pytest.mark.parametrize("metadata", [TOKEN, OPEN, CLOSED])
def test_an_offset_of_the_sink_has_neither_lag_nor_position(metadata: str) -> None:
    seen = as_read(kept(metadata))
    assert (seen.lag, seen.lag_unknown, seen.position, read_part(group(metadata))) == (None, False, None, None)
    readers = kept("another client's", partition=1)
    assert (as_read(readers).lag, as_read(readers).position) == (82, 18)
    mixed = read_part(replace(group(metadata), partitions=(kept(metadata), readers)))
    assert mixed is not None
    assert mixed.lag == 82
