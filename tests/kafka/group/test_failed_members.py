"""A member that is permanently out of its group: the query hears of it at once, and what there is to do."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

from devtools.broker import Cluster
from spark_groupsource.cli.main import main
from spark_groupsource.errors import BrokerUnavailable, CommitOutcomeUnknown, MembershipError
from spark_groupsource.group.ledger import Ledger
from tests.conftest import NOT_FENCED, SELDOM, SHORT_SESSIONS, MakeTopic
from tests.kafka.conftest import MakeQuery, Query
from tests.support.waiting import until

SECONDS = 20.0
"""In what time a refused query has to end, also on a busy machine. `assignmentTimeout` is 2 minutes."""


@pytest.fixture(scope="module")
def strict() -> Iterator[Mapping[str, str]]:
    """A broker whose groups have one member, with the bounds of sessions that Kafka has by default."""
    one_member = {"group.max.size": "1", "group.consumer.max.size": "1", "group.min.session.timeout.ms": "6000"}
    with Cluster(config={**SHORT_SESSIONS, **NOT_FENCED, **SELDOM, **one_member}) as running:
        running.create_topic("orders")
        yield {"kafka.bootstrap.servers": running.bootstrap_servers, "subscribe": "orders"}


def test_what_ended_the_member_ends_the_next_call_at_once(topic: MakeTopic, query: MakeQuery) -> None:
    """Also if it is an error that would pass: nothing is tried again without a member."""
    a = query(topic(), assignmentTimeout="60s")
    a.until_planning(1)
    member = a.session.member
    member.call(lambda: member._fail(BrokerUnavailable("the leader was silent for too long")))
    began = time.monotonic()
    for _ in range(3):
        with pytest.raises(BrokerUnavailable, match="silent for too long"):
            a.plan()
        with pytest.raises(BrokerUnavailable, match="silent for too long"):
            a.session.step(Ledger.confirm)
    assert time.monotonic() - began < 40


def refused(one: Query) -> str:
    """Return the error with which a query ends that cannot join."""
    began = time.monotonic()
    with pytest.raises(MembershipError) as ended:
        one.plan()
    assert type(ended.value) is MembershipError
    assert time.monotonic() - began < SECONDS
    return str(ended.value)


def test_a_member_with_another_assignor_than_the_others(topic: MakeTopic, query: MakeQuery) -> None:
    name = topic()
    query(name, **{"kafka.partition.assignment.strategy": "range"}).until_planning(1)
    error = refused(query(name, **{"kafka.partition.assignment.strategy": "roundrobin"}))
    assert "INCONSISTENT_GROUP_PROTOCOL" in error
    assert "kafka.partition.assignment.strategy" in error


def test_an_assignor_that_the_brokers_do_not_have(topic: MakeTopic, query: MakeQuery) -> None:
    error = refused(query(topic(), **{"kafka.group.protocol": "consumer", "kafka.group.remote.assignor": "nonsense"}))
    assert "UNSUPPORTED_ASSIGNOR" in error
    assert "kafka.group.remote.assignor" in error


def test_a_session_that_the_brokers_refuse(strict: Mapping[str, str], query: MakeQuery, tmp_path: Path) -> None:
    """The check shows the bounds, as the error says, and a session within them is accepted."""
    short = {**strict, "kafka.session.timeout.ms": "2000"}
    error = refused(query("short", **short))
    assert "INVALID_SESSION_TIMEOUT" in error
    assert "kafka.session.timeout.ms" in error
    assert "`groupkafka check` shows both limits" in error
    file = tmp_path / "query.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in {**short, "kafka.group.id": "short"}.items()))
    checked = CliRunner().invoke(main, ["check", "--conf", str(file)])
    assert checked.exit_code == 1
    assert "Set it to 6000 to 1800000" in checked.output
    query("short", **{**strict, "kafka.session.timeout.ms": "6000"}).until_planning(1)


def test_a_group_that_is_full(strict: Mapping[str, str], query: MakeQuery, protocol: str) -> None:
    full = {**strict, "kafka.group.protocol": protocol}
    first, second = query(f"full-{protocol}", **full), query(f"full-{protocol}", **full)
    first.until_planning(1)
    error = refused(second)
    assert "GROUP_MAX_SIZE_REACHED" in error
    assert "group.max.size (group.consumer.max.size with kafka.group.protocol=consumer)" in error
    first.cycle.stop()
    second.restart()
    second.until_planning(1)


def test_a_run_that_joins_a_full_group_again_waits_for_its_place(
    strict: Mapping[str, str], query: MakeQuery, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a commit without an answer, when the request to leave is lost, too: the earlier member counts for a while."""
    caplog.set_level(logging.INFO)
    full = {**strict, "kafka.group.protocol": protocol, "assignmentTimeout": "100s"}
    first, second = query(f"again-{protocol}", **full), query(f"again-{protocol}", **full)
    first.until_planning(1)
    asked: list[str] = []

    def step() -> str:
        asked.append("asked")
        if len(asked) == 1:
            raise CommitOutcomeUnknown("no answer")
        return "done"

    def leave() -> None:
        leave_group()
        second.until_planning(1)

    session = first.session
    leave_group, session.leave = session.leave, leave  # type: ignore[method-assign]
    session.begin_call()
    with ThreadPoolExecutor(1) as threads:
        taken = threads.submit(session.as_member, first.cycle._stream(first.done, first.done.plan), first.done, step)
        until(lambda: caplog.text.count("GROUP_MAX_SIZE_REACHED") >= 2 or taken.done(), "two refusals")
        assert not taken.done(), taken.exception()
        second.cycle.stop()
        assert taken.result(180) == "done"
    session.leave = leave_group  # type: ignore[method-assign]
    first.until_planning(1)
