"""Topics that are deleted, or deleted and created again, while a query has a position in them."""

from __future__ import annotations

import re

import pytest

from devtools.broker import Cluster
from spark_groupsource.errors import DataLossError
from tests.conftest import MakeTopic, Produce
from tests.kafka.conftest import Filled, MakeQuery, RecordOf
from tests.kafka.query.losses.conftest import EITHER, GOES_ON, QUICK, Brokers, ended
from tests.support.consumers import commit_as_another_client
from tests.support.waiting import until


@EITHER
def test_a_topic_that_was_made_anew_between_two_batches(
    filled: Filled, query: MakeQuery, brokers: Brokers, caplog: pytest.LogCaptureFixture, fail: bool
) -> None:
    name = filled()
    a = query(name, failOnDataLoss=str(fail))
    assert a.run_batch() == {0: (0, 10)}
    assert not a.plan()
    brokers.recreate(name, 10)
    loss = rf"{name}-0: the next offset to read was 10, and the topic was deleted and recreated .*; the new log starts at 0"
    if fail:
        assert re.search(loss, ended(a))
    else:
        assert a.run_batch() == {0: (0, 10)}
        assert not a.plan()
        assert re.search(loss, caplog.text)


@EITHER
@pytest.mark.parametrize("forgotten", [True, False], ids=["and the commits with it", "and the commits are still there"])
def test_a_topic_that_was_made_anew_while_the_query_was_stopped(
    filled: Filled,
    query: MakeQuery,
    brokers: Brokers,
    record_of: RecordOf,
    caplog: pytest.LogCaptureFixture,
    forgotten: bool,
    fail: bool,
) -> None:
    name = filled()
    a = query(name, failOnDataLoss=str(fail))
    a.run_batch()
    a.plan()
    a.cycle.stop()
    before = record_of(name, 0)
    brokers.recreate(name, 10)
    if not forgotten:
        brokers.restore_commit(name, before)
    a.restart()
    loss = rf"{name}-0: the next offset to read was 10, and the topic was deleted and recreated .*was {before.topic_id} and is"
    if fail:
        assert re.search(loss, ended(a))
    else:
        assert a.run_batch() == {0: (0, 10)}
        assert re.search(loss, caplog.text)


@EITHER
def test_a_batch_that_was_logged_and_whose_topic_was_made_anew_is_not_read_from_the_new_one(
    filled: Filled, query: MakeQuery, brokers: Brokers, caplog: pytest.LogCaptureFixture, fail: bool
) -> None:
    name = filled()
    a = query(name, failOnDataLoss=str(fail))
    assert a.plan()
    assert a.claim() == {0: (0, 10)}
    a.cycle.stop()
    brokers.recreate(name, 12)
    a.restart()
    loss = rf"{name}-0 \[0, 10\) \(10 offsets\): (the next offset to read was 10, and )?the topic was deleted and recreated"
    if fail:
        with pytest.raises(DataLossError, match=loss):
            a.claim()
        return
    assert a.claim() == {}, "the replay has nothing to read"
    assert re.search(loss, caplog.text)
    a.finish()
    assert a.run_batch() == {0: (0, 12)}


@EITHER
def test_the_next_owner_of_a_topic_that_was_made_anew_neither_skips_nor_holds_its_records(
    filled: Filled, query: MakeQuery, brokers: Brokers, record_of: RecordOf, fail: bool
) -> None:
    name = filled()
    a, b = query(name), query(name, failOnDataLoss=str(fail))
    assert a.plan()
    assert a.claim() == {0: (0, 10)}
    a.cycle.stop()
    before = record_of(name, 0)
    brokers.recreate(name, 10)
    brokers.restore_commit(name, before)
    if fail:
        assert re.search(rf"{name}-0 \[0, 10\) .*deleted and recreated", ended(b))
        return
    assert b.run_batch() == {0: (0, 10)}
    record = record_of(name, 0)
    assert (record.stream, record.owed, record.next) == (b.done.stream, (), 10)
    assert record.topic_id != before.topic_id


def test_offsets_that_were_reset_for_a_topic_that_was_made_anew_are_believed(
    filled: Filled, query: MakeQuery, brokers: Brokers, cluster: Cluster
) -> None:
    name = filled()
    a = query(name)
    a.run_batch()
    a.plan()
    a.cycle.stop()
    brokers.recreate(name, 10)
    commit_as_another_client(cluster, f"group-of-{name}", name, 4)
    a.restart()
    assert a.run_batch() == {0: (4, 10)}


@pytest.mark.parametrize(
    ("by", "protocol", "fail"),
    [("name", "consumer", False), ("pattern", "classic", False), ("name", "classic", True)],
)
def test_a_topic_that_is_deleted_while_a_batch_of_it_runs(
    topic: MakeTopic,
    produce: Produce,
    query: MakeQuery,
    brokers: Brokers,
    record_of: RecordOf,
    caplog: pytest.LogCaptureFixture,
    by: str,
    protocol: str,
    fail: bool,
) -> None:
    kept = topic()
    going = f"{kept}-going"
    brokers._cluster.create_topic(going, 1)
    for each in (kept, going):
        produce(each, [(None, b"x")] * 10)
    subscription = {"subscribePattern": f"{kept}.*"} if by == "pattern" else {"subscribe": f"{kept},{going}"}
    a = query(kept, **subscription, **QUICK, **{"kafka.group.protocol": protocol}, failOnDataLoss=str(fail))
    a.until_planning(2)
    assert a.plan()
    assert a.logged.ranges == {kept: {"0": ((0, 10),)}, going: {"0": ((0, 10),)}}
    a.claim()
    brokers.delete(going)
    a.finish()
    produce(kept, [(None, b"y")] * 5)
    loss = rf"{going}-0: the next offset to read was 10, and the topic no longer exists"
    if fail:
        assert re.search(loss, ended(a))
        return
    until(a.plan, "something to read")
    assert a.logged.ranges[kept] == {"0": ((10, 15),)}
    assert a.claim() == {0: (10, 15)}
    a.finish()
    a.until_planning(1)
    assert re.search(loss, caplog.text)
    assert (
        len([record for record in caplog.records if f"{going}-0: " in record.getMessage() and "(failOnData" in record.msg]) == 1
    )
    record = record_of(kept, 0)
    assert record.offset == 15, "the rest is confirmed as ever"
    brokers._cluster.create_topic(going, 1)
    brokers.append(going, 7)
    until(a.plan, "the topic is there again")
    assert a.logged.ranges[going] == {"0": ((0, 7),)}
    assert a.claim() == {0: (0, 7)}


def test_a_replay_of_a_plan_whose_topic_is_gone_waits_for_nobody(
    topic: MakeTopic, produce: Produce, query: MakeQuery, brokers: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    kept = topic()
    going = f"{kept}-going"
    brokers._cluster.create_topic(going, 1)
    for each in (kept, going):
        produce(each, [(None, b"x")] * 10)
    a = query(kept, subscribePattern=f"{kept}.*", **GOES_ON)
    a.until_planning(2)
    assert a.plan()
    a.cycle.claim(a.done, a.logged)
    a.cycle.stop()
    brokers.delete(going)
    a.restart()
    granted = a.cycle.claim(a.done, a.logged)
    assert {where.topic for where in granted} == {kept}
    assert re.search(rf"{going}-0 \[0, 10\) \(10 offsets\): the topic no longer exists", caplog.text)


def test_a_topic_that_comes_anew_is_read_from_its_beginning_wherever_the_options_started(
    filled: Filled, query: MakeQuery, brokers: Brokers
) -> None:
    name = filled()
    a = query(name, startingOffsets="latest", **QUICK, **GOES_ON)
    a.until_planning(1)
    assert not a.plan()
    brokers.recreate(name, 6)
    assert a.run_batch() == {0: (0, 6)}
