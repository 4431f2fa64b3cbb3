"""Steps of the ledger while topics are deleted. tests/kafka/query/losses has brokers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from spark_groupsource.errors import DataLossError, TopicNotFound
from spark_groupsource.handoff.losses import Cause, PartitionLoss
from spark_groupsource.partition import OffsetRange, TopicPartition
from spark_groupsource.patience import Deadline
from spark_groupsource.query.ledger_steps import LedgerSteps
from spark_groupsource.query.loss_watch import LossWatch
from spark_groupsource.query.membership import Membership
from tests.support.options import parse

DELETED = PartitionLoss(TopicPartition("old", 0), Cause.DELETED, 5, (OffsetRange(5, 9),), was="a" * 22)
EXPIRED = PartitionLoss(TopicPartition("kept", 0), Cause.EXPIRED, 5, (OffsetRange(5, 7),), 7)


class Run:
    """A run that owns a partition of a topic that was deleted. Its coordinator refuses commits until that is given up."""

    def __init__(self, *, known_after: int = 0, fail: bool = False, patience_s: float = 0.5) -> None:
        self.known_after = known_after
        """How often the brokers that are asked about the topic do not know it yet."""
        self.owned = True
        self.left: list[Sequence[PartitionLoss]] = []
        self.warned: list[PartitionLoss] = []
        options = {"failOnDataLoss": str(fail).lower()}
        watch = SimpleNamespace(just_deleted=self.just_deleted, warn=self.warned.extend)
        joined = SimpleNamespace(do=self.do, once=lambda _: {})
        membership = SimpleNamespace(joined=joined, step_deadline=lambda: Deadline(patience_s))
        self.steps = LedgerSteps(cast(Membership, membership), cast(LossWatch, watch), parse(**options))

    def do(self, step: Callable[[Any], object], *_: object) -> object:
        return step(self)

    def go_on(self, losses: Sequence[PartitionLoss]) -> None:
        self.left.append(losses)
        self.owned &= DELETED not in losses

    def confirm(self) -> str:
        if self.owned:
            raise TopicNotFound("old")
        return "confirmed"

    def just_deleted(self, _: object) -> Sequence[PartitionLoss]:
        self.known_after -= 1
        return [DELETED] if self.known_after < 0 else []

    def carry_out(self) -> object:
        return self.steps.carry_out(lambda ledger: cast(Any, ledger).confirm())


@pytest.mark.parametrize("known_after", [0, 2], ids=["known at once", "known later"])
def test_a_step_is_done_again_once_the_deleted_topic_is_given_up(known_after: int) -> None:
    run = Run(known_after=known_after, patience_s=60)
    assert run.carry_out() == "confirmed"
    assert run.left == [*[[]] * known_after, [DELETED]]
    assert run.warned == [DELETED]


def test_brokers_that_never_agree_end_the_query_when_its_patience_is_over() -> None:
    run = Run(known_after=1000)
    with pytest.raises(TopicNotFound):
        run.carry_out()


def test_a_query_that_ends_because_of_a_loss_gives_up_the_deleted_topic_and_can_commit_on_its_way_out() -> None:
    run = Run(fail=True)
    with pytest.raises(DataLossError, match=r"old-0 \[5, 9\)"):
        run.carry_out()
    assert run.left == [[DELETED]]
    assert run.steps.carry_out(lambda _: run.confirm()) == "confirmed"


def test_what_is_lost_is_warned_of_and_left_behind_or_ends_the_query() -> None:
    run = Run()
    run.steps.go_on([DELETED, EXPIRED])
    assert run.left == [[DELETED, EXPIRED]]
    assert run.warned == [DELETED, EXPIRED]
    run = Run(fail=True)
    with pytest.raises(DataLossError, match="kept-0"):
        run.steps.go_on([DELETED, EXPIRED])
    assert run.left == [[DELETED]], "nothing else moves: the next run finds it again"
    assert run.warned == []
