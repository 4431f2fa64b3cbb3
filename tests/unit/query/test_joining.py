"""Why a start ends: no assignment, or one that nobody says where to read."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from spark_groupsource.brokers.topic_ids import TopicIds
from spark_groupsource.brokers.topics import Topics
from spark_groupsource.errors import AssignmentTimeout, BrokerUnavailable, MemberFenced
from spark_groupsource.group.ledger import Ledger
from spark_groupsource.group.member import Member
from spark_groupsource.handoff.plan_offset import PlanOffset
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.options.model import Options
from spark_groupsource.partition import TopicPartition
from spark_groupsource.patience import Deadline
from spark_groupsource.query import session as module
from spark_groupsource.query.session import Session
from tests.support.options import BASE, parse


@pytest.mark.parametrize(
    ("partitions", "kind", "text"),
    [
        (frozenset[TopicPartition](), AssignmentTimeout, "gave this driver no assignment"),
        (
            frozenset({TopicPartition("orders", 3)}),
            BrokerUnavailable,
            r"assigned orders-3 to this driver, .* return the offsets to start from .*leaders",
        ),
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
    session = cast(Session, SimpleNamespace(_options=parse(), deadline=Deadline(0.05)))
    with pytest.raises(kind, match=text):
        Session._wait_assigned(session, cast(Member, member), cast(Ledger, ledger), Stream("a"))
    assert closed


@pytest.mark.parametrize(("may_be_claimed", "durable"), [(False, 4), (True, 4), (False, 3)])
def test_a_query_that_is_stopped_waits_to_join_only_if_it_has_something_to_confirm_or_to_run_again(
    may_be_claimed: bool, durable: int
) -> None:
    member = SimpleNamespace(
        wait_joined=lambda _: False,
        last_trouble=None,
        assignment=SimpleNamespace(partitions=frozenset[TopicPartition]()),
        close=lambda: None,
    )
    ledger = SimpleNamespace(may_be_claimed=may_be_claimed)
    session = cast(Session, SimpleNamespace(_options=parse(), deadline=Deadline(0.05), _is_stopping=lambda _: True))
    waits = pytest.raises(AssignmentTimeout) if may_be_claimed or durable < 4 else nullcontext()
    with waits:
        Session._wait_assigned(session, cast(Member, member), cast(Ledger, ledger), Stream("a", 4, durable))


@pytest.mark.parametrize(("protocol", "attempts"), [("classic", 1), ("consumer", 3)])
def test_a_query_whose_instance_id_is_taken_joins_again_only_under_the_new_protocol(protocol: str, attempts: int) -> None:
    """Under the classic protocol it would take the id back from the newer one, and end that."""
    joined: list[bool] = []

    def join_once(*_: object) -> None:
        joined.append(True)
        raise MemberFenced("another process has the id")

    options = parse(**{"kafka.group.protocol": protocol, "kafka.group.instance.id": "driver-1"})
    starting_offsets = SimpleNamespace(begin=lambda _: None)
    newest = PlanOffset.build(stream="s", plan=4, generation=1, member="m", group="billing", ranges={})
    deadline = Deadline(100, clock=lambda: 200.0 * (len(joined) >= attempts), sleep=lambda _: None)
    parts = {"_options": options, "_starting_offsets": starting_offsets, "_join_once": join_once, "deadline": deadline}
    with pytest.raises(MemberFenced):
        Session._join_group(cast(Session, SimpleNamespace(**parts)), Stream("s", 4, 3), newest)
    assert len(joined) == attempts


class Made(Exception):
    """The ledger is made, and the test has what it gets."""


def given_to_its_parts(monkeypatch: pytest.MonkeyPatch, options: Options) -> dict[str, object]:
    """What a query with these options gives to its member, its ledger and its tasks."""
    given: dict[str, object] = {"tasks": options.fetch_settings()}

    def member(settings: dict[str, str], subscription: list[str], **more: object) -> SimpleNamespace:
        given.update(more, settings=settings, subscription=subscription)
        return SimpleNamespace(consumer=None)

    def ledger(*_: object, **more: object) -> None:
        given.update(more)
        raise Made

    monkeypatch.setattr(module, "Member", member)
    monkeypatch.setattr(module, "FencedCommits", lambda *_, **__: None)
    monkeypatch.setattr(module, "Ledger", ledger)
    topics = cast(Topics, SimpleNamespace(cluster_id=lambda: "cluster", starts=None))
    parts: Any = (TopicIds(lambda _: {}), None, None)
    session = Session(options, topics, *parts, is_stopping=lambda _: False)
    with pytest.raises(Made):
        session._join_once(Stream("a"))
    return {name: value for name, value in given.items() if name not in {"survey", "reader", "observer"}}


@pytest.mark.parametrize(
    ("option", "value", "receivers"),
    [
        ("subscribe", "payments", {"subscription"}),
        ("handoff.drainTimeout", "10s", {"drain_timeout_s"}),
        ("assignmentTimeout", "3m", {"patience_s"}),
        ("heldClaims", "reread", {"held_claims"}),
        ("failOnDataLoss", "false", {"fail_on_data_loss", "tasks"}),
        ("includeHeaders", "true", {"tasks"}),
        ("kafkaConsumer.pollTimeoutMs", "500", {"tasks"}),
        ("kafkaConsumer.bufferBytes", "2000000", {"tasks"}),
        ("kafka.session.timeout.ms", "30000", {"settings"}),
    ],
)
def test_an_option_reaches_the_member_the_ledger_and_the_tasks(
    monkeypatch: pytest.MonkeyPatch, option: str, value: str, receivers: set[str]
) -> None:
    usual = given_to_its_parts(monkeypatch, Options.parse(BASE))
    changed = given_to_its_parts(monkeypatch, Options.parse({**BASE, option: value}))
    assert {name for name in usual if usual[name] != changed[name]} == receivers
