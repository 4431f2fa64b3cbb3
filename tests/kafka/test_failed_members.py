"""A member that is permanently out of its group: the query hears of it at once, and what there is to do."""

from __future__ import annotations

import time

import pytest

from spark_groupsource.errors import BrokerUnavailable, MembershipError
from spark_groupsource.group.ledger import Ledger
from tests.conftest import MakeTopic
from tests.kafka.conftest import MakeQuery, Query


def test_what_ended_the_member_ends_the_next_call_at_once(topic: MakeTopic, query: MakeQuery) -> None:
    """Also if it is an error that would pass: nothing is tried again without a member."""
    a = query(topic(), assignmentTimeout="60s")
    a.until_planning(1)
    member = a.joined._member
    member.call(lambda: member._fail(BrokerUnavailable("the leader was silent for too long")))
    began = time.monotonic()
    for _ in range(3):
        with pytest.raises(BrokerUnavailable, match="silent for too long"):
            a.plan()
        with pytest.raises(BrokerUnavailable, match="silent for too long"):
            a.joined.do(Ledger.confirm)
    assert time.monotonic() - began < 40


def refused(one: Query) -> MembershipError:
    """The error with which a query ends that cannot join. It comes long before `assignmentTimeout`, 2 minutes, is over."""
    began = time.monotonic()
    with pytest.raises(MembershipError) as ended:
        one.plan()
    assert type(ended.value) is MembershipError
    assert time.monotonic() - began < 40
    return ended.value


def test_a_member_with_another_assignor_than_the_others(topic: MakeTopic, query: MakeQuery) -> None:
    name = topic()
    query(name, **{"kafka.partition.assignment.strategy": "range"}).until_planning(1)
    error = refused(query(name, **{"kafka.partition.assignment.strategy": "roundrobin"}))
    assert "INCONSISTENT_GROUP_PROTOCOL" in str(error)
    assert "kafka.partition.assignment.strategy" in str(error)


def test_an_assignor_that_the_brokers_do_not_have(topic: MakeTopic, query: MakeQuery) -> None:
    error = refused(query(topic(), **{"kafka.group.protocol": "consumer", "kafka.group.remote.assignor": "nonsense"}))
    assert "UNSUPPORTED_ASSIGNOR" in str(error)
    assert "kafka.group.remote.assignor" in str(error)
