"""Why a start ends: no assignment, or one that nobody says where to read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from spark_groupsource.errors import AssignmentTimeout, BrokerUnavailable
from spark_groupsource.group.ledger import Ledger
from spark_groupsource.group.member import Member
from spark_groupsource.partition import TopicPartition
from spark_groupsource.patience import Deadline
from spark_groupsource.query.joining import Joining
from tests.support.options import parse


@pytest.mark.parametrize(
    ("partitions", "kind", "text"),
    [
        (frozenset[TopicPartition](), AssignmentTimeout, "gave this driver no assignment"),
        (frozenset({TopicPartition("orders", 3)}), BrokerUnavailable, r"gave this driver orders-3, .* where to read it.*leaders"),
    ],
)
def test_a_start_that_takes_too_long(partitions: frozenset[TopicPartition], kind: type[Exception], text: str) -> None:
    closed: list[bool] = []
    member = SimpleNamespace(
        wait_joined=lambda _: True,
        call=lambda step: step(),
        last_trouble=None,
        assignment=SimpleNamespace(partitions=partitions),
        close=lambda: closed.append(True),
    )
    ledger = SimpleNamespace(ready=lambda: False)
    joining = cast(Joining, SimpleNamespace(_options=parse()))
    with pytest.raises(kind, match=text):
        Joining._wait_assigned(joining, cast(Member, member), cast(Ledger, ledger), Deadline(0.05))
    assert closed
