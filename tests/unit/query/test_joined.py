"""Which errors of a step are waited for."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from spark_groupsource.errors import BrokerUnavailable, CommitRefused, GroupKafkaError, MemberUnknown
from spark_groupsource.group.ledger import Ledger
from spark_groupsource.group.member import Member
from spark_groupsource.patience import Deadline
from spark_groupsource.query.joined import Joined

LEDGER = cast(Ledger, object())


class Failing:
    """A step that fails so often."""

    def __init__(self, error: GroupKafkaError, times: int) -> None:
        self.error = error
        self.times = times

    def __call__(self, ledger: Ledger) -> str:
        assert ledger is LEDGER
        if self.times:
            self.times -= 1
            raise self.error
        return "done"


def joined(failure: GroupKafkaError | None = None) -> Joined:
    def call(step: Callable[[], object]) -> object:
        if failure is not None:
            raise failure
        return step()

    return Joined(cast(Member, SimpleNamespace(call=call, failure=failure)), LEDGER)


def soon() -> Deadline:
    return Deadline(60, sleep=lambda _: None)


@pytest.mark.parametrize("error", [BrokerUnavailable("no answer"), MemberUnknown("a rebalance")])
def test_an_error_that_passes_is_waited_for(error: GroupKafkaError) -> None:
    assert joined().do(Failing(error, 3), soon()) == "done"


@pytest.mark.parametrize("error", [BrokerUnavailable("no answer"), MemberUnknown("a rebalance")])
def test_an_error_that_stays_is_raised_at_the_deadline(error: GroupKafkaError) -> None:
    with pytest.raises(type(error)):
        joined().do(Failing(error, 1), Deadline(0))


def test_an_error_that_does_not_pass_is_raised_at_once() -> None:
    step = Failing(CommitRefused("too large"), 2)
    with pytest.raises(CommitRefused):
        joined().do(step, soon())
    assert step.times == 1


def test_what_has_ended_the_member_is_raised_at_once_also_if_it_is_an_error_that_passes() -> None:
    with pytest.raises(BrokerUnavailable, match="it has ended"):
        joined(BrokerUnavailable("it has ended")).do(Failing(CommitRefused("unused"), 1), soon())
