"""Claims that wait for the next owners of partitions, and that leave out what was deleted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from spark_groupsource.errors import ClaimTimeout, TopicNotFound
from spark_groupsource.group.ledger import Claims, Ledger
from spark_groupsource.handoff.losses import Cause, PartitionLoss
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.partition import OffsetRange, TopicPartition
from spark_groupsource.patience import Deadline
from spark_groupsource.query.claiming import Claiming
from spark_groupsource.query.ledger_steps import LedgerSteps
from spark_groupsource.query.loss_watch import LossWatch
from spark_groupsource.query.membership import Membership
from tests.support.options import parse

ORDERS, RETURNS = TopicPartition("orders", 0), TopicPartition("returns", 0)
STREAM = Stream("me", 4, 3, ranges={ORDERS: (OffsetRange(0, 10),), RETURNS: (OffsetRange(2, 5),)}, topics={})


class Run:
    """A run whose claim of `returns` is another member's decision until that has adopted it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, adopted_after: int = 0, subscribe: str = "orders,returns") -> None:
        self.adopted_after = adopted_after
        self.deleted = False
        self.given_up = 0
        self.attempts: list[set[TopicPartition]] = []
        self.time_of_step: list[float] = []
        monkeypatch.setattr(Ledger, "claim", lambda ledger, stream: cast(Run, ledger).answer(stream))
        joined = SimpleNamespace(do=self.do, positions={ORDERS: 10, RETURNS: 5})
        steps = SimpleNamespace(refuse_or_warn=lambda _: None, give_up_deleted=self.give_up)
        self.claiming = Claiming(
            cast(Membership, SimpleNamespace(joined=joined, deadline=Deadline(0.5), step_deadline=lambda: Deadline(60))),
            cast(LedgerSteps, steps),
            cast(LossWatch, SimpleNamespace(deleted_ranges=self.deleted_ranges)),
            parse(subscribe=subscribe),
        )

    def do(self, step: Callable[[Any], Claims], deadline: Deadline) -> Claims:
        self.time_of_step.append(deadline.left)
        return step(self)

    def answer(self, stream: Stream) -> Claims:
        self.attempts.append(set(stream.ranges))
        self.adopted_after -= 1
        if self.deleted and RETURNS in stream.ranges:
            raise TopicNotFound("returns")
        waiting = frozenset({RETURNS} & stream.ranges.keys()) if self.adopted_after >= 0 else frozenset[TopicPartition]()
        return Claims({ORDERS: stream.ranges[ORDERS]}, waiting)

    def give_up(self) -> None:
        self.given_up += 1

    def deleted_ranges(self, _: Stream) -> Sequence[PartitionLoss]:
        """The brokers know of it once a commit was refused."""
        return [PartitionLoss(RETURNS, Cause.DELETED, None)] if self.given_up else []


def test_a_claim_waits_until_the_next_owner_has_adopted(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, adopted_after=2)
    assert run.claiming.claim(STREAM) == {ORDERS: (OffsetRange(0, 10),)}
    assert run.attempts == [{ORDERS, RETURNS}] * 3


def test_a_claim_that_waits_too_long_says_for_what(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, adopted_after=1000)
    with pytest.raises(ClaimTimeout, match=r"Plan 4 of stream me waits for returns-0 \[2, 5\)\."):
        run.claiming.claim(STREAM)


def test_a_topic_that_is_no_longer_subscribed_is_left_when_nobody_has_adopted_it(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, adopted_after=1000, subscribe="orders")
    assert run.claiming.claim(STREAM) == {ORDERS: (OffsetRange(0, 10),)}
    assert run.attempts[-1] == {ORDERS}
    assert min(run.time_of_step) > 50, "also the attempt after the wait is tried again if it fails"


def test_a_topic_that_is_deleted_during_the_claim_is_given_up_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch)
    run.deleted = True
    assert run.claiming.claim(STREAM) == {ORDERS: (OffsetRange(0, 10),)}
    assert run.attempts == [{ORDERS, RETURNS}, {ORDERS}]
    assert run.given_up == 1
