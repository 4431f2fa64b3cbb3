"""Who may have a transaction open, from what groups hold. tests/kafka/sink/test_transactions.py asks real brokers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from spark_groupsource.brokers.group_admin_process import GroupAdminProcess
from spark_groupsource.cli.open_transactions import Kept, Openers, openers
from spark_groupsource.partition import TopicPartition
from spark_groupsource.sink.names import Names
from spark_groupsource.sink.token import Mark, Opener, Token, Written

RUN = "0b5dc8e3-9e4f-4c51-a8f6-6b1d2c3e4f50"
ONE, OTHER = (Names("groupkafka", f"5e0bd5ce-5a4a-4d49-a9e1-f1d5a8f9a1d{digit}") for digit in (5, 6))


class Groups:
    """What groups hold, as the brokers return it."""

    def __init__(self, kept: Mapping[str, Kept]) -> None:
        self.kept = kept

    def groups(self, part: str) -> list[str]:
        return [name for name in self.kept if part in name]

    def offsets(self, group: str) -> Kept:
        return self.kept.get(group, {})


def mark(names: Names, at: int | None, topic: str = "invoices") -> Kept:
    opener = None if at is None else Opener(at, "host", 7)
    return {TopicPartition(topic, 0): (1, Mark(names.query, RUN, opener).metadata())}


def found(kept: Mapping[str, Kept], prefix: str | None = None) -> Openers:
    return openers(cast("GroupAdminProcess", cast("Any", Groups(kept))), "invoices", prefix)


def test_those_with_a_mark_on_the_topic_come_first_and_the_newest_first() -> None:
    kept = {ONE.open(0): mark(ONE, 10), ONE.open(1): mark(ONE, 30, "others"), OTHER.open(4): mark(OTHER, 20)}
    candidates = found(kept).candidates
    assert [(candidate.names, candidate.task, candidate.topic) for candidate in candidates] == [
        (OTHER, 4, "invoices"),
        (ONE, 0, "invoices"),
        (ONE, 1, "others"),
    ]
    assert candidates[0].transactional_id == OTHER.task(4)


def test_a_task_names_the_newest_micro_batch_that_it_has_finished() -> None:
    token = Token(ONE.query, 17, Written(5, 0xABC), RUN)
    kept = {ONE.open(0): mark(ONE, 10), ONE.task(0): {TopicPartition("invoices", 0): (18, token.metadata())}}
    assert [candidate.batch for candidate in found(kept).candidates] == [17]
    assert [candidate.batch for candidate in found({ONE.open(0): mark(ONE, 10)}).candidates] == [None]


def test_marks_that_are_closed_of_other_prefixes_or_of_other_groups_do_not_count() -> None:
    kept = {ONE.open(0): mark(ONE, None), OTHER.open(1): mark(OTHER, 10), "somebody-open": mark(ONE, 10)}
    assert [candidate.names for candidate in found(kept).candidates] == [OTHER]
    assert found(kept, "another").candidates == ()


def test_what_another_client_has_written_is_named_and_hides_no_mark() -> None:
    strange: Kept = {TopicPartition("a", 0): (3, "something"), **mark(ONE, 10)}
    result = found({ONE.open(0): strange})
    assert result.unreadable == (ONE.open(0),)
    assert [candidate.task for candidate in result.candidates] == [0]
