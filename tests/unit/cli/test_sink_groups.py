"""Groups in which the sink keeps what it has written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_groupsource.brokers.group_view import GroupView, PartitionView
from spark_groupsource.cli.sink_groups import (
    as_read,
    json_transaction,
    read_part,
    refuse_changes,
    sink_batch,
    sink_lines,
)
from spark_groupsource.errors import OffsetsInTheWay
from spark_groupsource.handoff.commit_record import Foreign
from spark_groupsource.partition import TopicPartition
from spark_groupsource.sink.names import REACHES, Names
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


def test_a_token_is_the_micro_batch_below_the_offset() -> None:
    assert [sink_batch(kept(metadata)) for metadata in (TOKEN, OPEN, "another client's", None)] == [17, None, None, None]


def test_a_mark_says_who_may_have_a_transaction_open() -> None:
    opened = {"open": True, "run": RUN, "since": "2025-11-21T16:59:50Z", "host": "host-7", "pid": 4711}
    assert json_transaction(kept(OPEN)) == opened
    assert json_transaction(kept(CLOSED)) == {"open": False, "run": RUN, "since": None, "host": None, "pid": None}
    assert json_transaction(kept(TOKEN)) is None


@pytest.mark.parametrize(
    ("metadata", "line"),
    [
        (TOKEN, "invoices-0: micro-batch 17"),
        (OPEN, "invoices-0: process 4711 on host-7 may have a transaction open, since 2025-11-21T16:59:50Z"),
        (CLOSED, "invoices-0: no transaction is open"),
    ],
)
def test_each_token_and_each_mark_is_a_line_and_in_the_way_of_other_offsets(metadata: str, line: str) -> None:
    assert sink_lines(group(metadata)) == [line]
    with pytest.raises(OffsetsInTheWay, match="Nothing was changed"):
        refuse_changes(group(metadata))


def test_the_mark_of_a_reach_says_which_tasks_have_written() -> None:
    name = Names("groupkafka", QUERY).reach(REACHES[0])
    assert sink_lines(group(CLOSED, name)) == [f"invoices-0: a task with a number below {REACHES[0]} has started to write"]


@pytest.mark.parametrize("metadata", [TOKEN, OPEN, CLOSED])
def test_an_offset_of_the_sink_has_neither_lag_nor_position(metadata: str) -> None:
    seen = as_read(kept(metadata))
    assert (seen.lag, seen.lag_unknown, seen.position, read_part(group(metadata))) == (None, False, None, None)
    readers = kept("another client's", partition=1)
    assert (as_read(readers).lag, as_read(readers).position) == (82, 18)
    mixed = read_part(replace(group(metadata), partitions=(kept(metadata), readers)))
    assert mixed is not None
    assert mixed.lag == 82


def test_a_group_without_commits_is_none_of_a_sink() -> None:
    empty = replace(group(None), partitions=())
    assert read_part(empty) == empty


def test_a_group_of_readers_is_none_of_a_sink() -> None:
    assert sink_lines(group("another client's")) == []
    refuse_changes(group(None))
