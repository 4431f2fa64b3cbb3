"""A report that a plan is durable closes its claims without another plan: steps of Spark's, on a real group."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

from spark_groupsource.errors import BrokerUnavailable
from spark_groupsource.group import ledger
from spark_groupsource.reports.driver_reports import Answer, DriverReports
from tests.conftest import Produce
from tests.kafka.conftest import Filled, MakeQuery, Query, RecordOf
from tests.support.waiting import in_background, until


def report(query: Query) -> None:
    """Do what the driver's program does when Spark has the plan in its commit log."""
    DriverReports(os.getppid()).write(query.logged.stream, query.logged.plan)


def settled(record_of: RecordOf, topic: str, partitions: int) -> Callable[[], bool]:
    """Return whether nothing is claimed or owed in any partition."""

    return lambda: not any(record_of(topic, number).unconfirmed for number in range(partitions))


def test_a_reported_plan_is_closed_and_other_reports_change_nothing(
    filled: Filled, produce: Produce, query: MakeQuery, record_of: RecordOf, protocol: str
) -> None:
    name = filled()
    one = query(name, **{"kafka.group.protocol": protocol})
    until(one.plan, "something to read")
    assert one.claim() == {0: (0, 10)}
    for plan in (0, 2, 1):
        one.session.report_durable("another", one.logged.plan)
        one.session.report_durable(one.logged.stream, one.logged.plan + plan + 1)
    one.session.member.call(lambda: None)
    record = record_of(name, 0)
    assert record.open == ((0, 10),)
    report(one)
    until(settled(record_of, name, 1), "the claim is closed")
    record = record_of(name, 0)
    assert (record.offset, record.done) == (10, one.logged.plan)
    one.finish()
    produce(name, [(None, b"y")] * 5)
    assert one.run_batch() == {0: (10, 15)}


def test_a_drain_ends_with_the_micro_batch_and_not_with_the_next_trigger(
    filled: Filled, query: MakeQuery, record_of: RecordOf, protocol: str
) -> None:
    name = filled(partitions=2)
    patience = {"handoff.drainTimeout": "80s", "kafka.group.protocol": protocol}
    slow, newcomer = query(name, **patience), query(name, **patience)
    until(slow.plan, "something to read")
    assert len(slow.claim()) == 2
    joining = in_background(newcomer.plan)
    until(lambda: slow.draining, "a partition drains")
    assert not newcomer.positions
    report(slow)
    until(lambda: len(newcomer.positions) == 1, "the newcomer has its partition", timeout_s=60)
    joining.join()
    assert settled(record_of, name, 2)()


def test_what_is_owed_is_settled_between_triggers(
    filled: Filled, query: MakeQuery, record_of: RecordOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner of the partition has a long trigger, and the stream that it is owed to has finished."""
    monkeypatch.setattr(ledger, "SETTLE_BETWEEN_TRIGGERS_S", 1.0)
    name = filled(partitions=2)
    slow, newcomer = query(name, **{"handoff.drainTimeout": "1s"}), query(name)
    until(slow.plan, "something to read")
    assert len(slow.claim()) == 2
    newcomer.until_planning(1)
    (moved,) = newcomer.positions
    record = record_of(name, moved.partition)
    assert [entry.stream for entry in record.owed] == [slow.logged.stream]
    report(slow)
    until(settled(record_of, name, 2), "the newcomer has settled what it owed, and it has no trigger")


def test_a_query_that_is_stopped_closes_what_is_reported_after_the_stop_began(
    filled: Filled, query: MakeQuery, record_of: RecordOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = filled()
    one = query(name)
    monkeypatch.setattr("spark_groupsource.query.cycle.AT_STOP_S", 30.0)
    until(one.plan, "something to read")
    one.claim()
    watch = one.cycle._durable_watch
    conclude = watch.conclude

    def report_then_conclude(wait_s: float) -> bool:
        report(one)
        return conclude(wait_s)

    watch.conclude = report_then_conclude  # type: ignore[method-assign]
    one.cycle.stop()
    assert settled(record_of, name, 1)()


def test_a_stop_does_not_wait_for_a_member_that_has_failed(
    filled: Filled, query: MakeQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("cycle.AT_STOP_S", "durable_watch.CLOSED_S"):
        monkeypatch.setattr(f"spark_groupsource.query.{limit}", 120.0)
    one = query(filled())
    until(one.plan, "something to read")
    one.claim()
    member = one.session.member
    member.call(lambda: member._fail(BrokerUnavailable("the leader was silent for too long")))
    report(one)
    request = DriverReports(os.getppid()).ask_to_stop(one.logged.stream)
    began = time.monotonic()
    one.cycle.stop()
    assert time.monotonic() - began < 60
    assert DriverReports(os.getppid()).answer(one.logged.stream, request) is Answer.LEFT_WITH_CLAIMS


def test_a_run_that_was_just_stopped_may_close_what_the_next_run_has_finished(
    filled: Filled, produce: Produce, query: MakeQuery, record_of: RecordOf, protocol: str
) -> None:
    """A program stops a query in a micro-batch and starts it again. Both runs see the report of the plan that was run again."""
    name = filled()
    stopped, again = (query(name, **{"kafka.group.protocol": protocol}) for _ in range(2))
    until(stopped.plan, "something to read")
    assert stopped.claim() == {0: (0, 10)}
    again.done, again.logged = stopped.done, stopped.logged
    assert again.claim() == {0: (0, 10)}
    again.finish()
    stopped.session.report_durable(stopped.logged.stream, stopped.logged.plan)
    until(settled(record_of, name, 1), "the run that was stopped has closed the claim")
    leaving = in_background(stopped.cycle.stop)
    assert not again.plan(), "nothing new, and no error"
    leaving.join()
    produce(name, [(None, b"y")] * 5)
    assert again.run_batch() == {0: (10, 15)}


def test_a_run_that_is_asked_to_stop_plans_nothing_new_and_the_next_run_does(
    filled: Filled, produce: Produce, query: MakeQuery, record_of: RecordOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_groupsource.query.cycle.AT_STOP_S", 0.5)
    requests = DriverReports(os.getppid())
    name = filled()
    one = query(name, maxOffsetsPerTrigger="4")
    requests.ask_to_stop(one.done.stream)  # for an earlier run of this checkpoint, which was killed meanwhile
    assert one.run_batch() == {0: (0, 4)}
    request = requests.ask_to_stop(one.done.stream)
    assert not one.plan(), "nothing, although there is a backlog"
    assert settled(record_of, name, 1)(), "the last micro-batch is confirmed"
    one.restart()
    assert requests.answer(one.done.stream, request) is Answer.LEFT, "it has left with nothing claimed"
    assert one.run_batch() == {0: (4, 8)}
    requests.ask_to_stop(one.done.stream)
    assert not one.plan()
    produce(name, [(None, b"y")])
    requests.end_stop(one.done.stream)
    until(one.plan, "the backlog again")
    one.claim()
    request = requests.ask_to_stop(one.done.stream)
    one.restart()
    assert requests.answer(one.done.stream, request) is Answer.LEFT_WITH_CLAIMS, "it has left in the middle of a micro-batch"
