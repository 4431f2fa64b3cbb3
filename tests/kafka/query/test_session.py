"""Commits whose answers are lost: the query goes on as a new member of its group."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator, Mapping

import pytest

from spark_groupsource.errors import CommitOutcomeUnknown, MemberUnknown
from spark_groupsource.group.fenced_commits import FencedCommits
from spark_groupsource.group.ledger import Ledger
from spark_groupsource.handoff.commit_record import CommitRecord
from spark_groupsource.partition import TopicPartition
from tests.conftest import Produce
from tests.kafka.conftest import Claimed, Filled, MakeQuery
from tests.support.waiting import until


@pytest.fixture
def nothing_is_collected_by_itself() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("nothing_is_collected_by_itself")
@pytest.mark.parametrize("written", [True, False], ids=["it was written", "it was not written"])
def test_a_commit_without_an_answer_does_not_end_the_query_and_each_record_is_read_once(
    filled: Filled,
    produce: Produce,
    query: MakeQuery,
    protocol: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    written: bool,
) -> None:
    """The request is sent to the broker, or not. Only its answer is not heard."""
    name = filled()
    one = query(name, **{"kafka.group.protocol": protocol})
    lose = False
    senders: list[FencedCommits] = []
    ledgers: list[weakref.ref[Ledger]] = []

    def without_answer(commits: FencedCommits, records: Mapping[TopicPartition, CommitRecord]) -> None:
        nonlocal lose
        lost, lose = lose and bool(records), lose and not records
        if written or not lost:
            commit(commits, records)
        if lost:
            senders[:] = [commits]
            raise CommitOutcomeUnknown("no answer")

    commit = FencedCommits.commit
    monkeypatch.setattr(FencedCommits, "commit", without_answer)
    end = one.run_batch()[0][1]
    for count in range(1, 4):
        produce(name, [(None, b"y")] * 5)
        until(lambda: sum(thread.name == "groupkafka-compare" for thread in threading.enumerate()) <= 1, "its threads have ended")
        lose = True
        ledgers.append(weakref.ref(one.session.ledger))
        while end < 10 + 5 * count:
            for start, to in pairs(one.run_batch()):
                assert start == end, "the next record"
                end = to
    assert caplog.text.count("to rejoin it as a new member, because a commit got no response") == 3
    assert [ledger() for ledger in ledgers[:2]] == [None, None], "an earlier membership is not kept"
    (sender,) = senders
    with pytest.raises((MemberUnknown, RuntimeError)):
        commit(sender, one.session.ledger.confirmed_records())


def lose_once(monkeypatch: pytest.MonkeyPatch, after_s: float = 0.0) -> None:
    """Lose the answer to the next commit of a record, which is written."""
    commit, lost = FencedCommits.commit, list[bool]()

    def without_answer(commits: FencedCommits, records: Mapping[TopicPartition, CommitRecord]) -> None:
        commit(commits, records)
        if records and not lost:
            lost.append(True)
            time.sleep(after_s)
            raise CommitOutcomeUnknown("no answer")

    monkeypatch.setattr(FencedCommits, "commit", without_answer)


def test_an_answer_that_is_waited_for_beyond_the_patience_does_not_end_the_query(
    filled: Filled, query: MakeQuery, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = {"assignmentTimeout": "8s", "handoff.drainTimeout": "1s"}
    one = query(filled(), **{"kafka.group.protocol": protocol}, **short)
    assert one.plan()
    lose_once(monkeypatch, after_s=9)
    assert one.claim() == {0: (0, 10)}


def test_the_first_commit_after_a_restart_has_no_answer(
    filled: Filled, query: MakeQuery, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = filled()
    one, other = (query(name, **{"kafka.group.protocol": protocol}) for _ in range(2))
    assert one.plan()
    assert one.claim() == {0: (0, 10)}
    one.cycle.stop()
    other.until_planning(1)
    other.cycle.stop()
    one.restart()
    lose_once(monkeypatch)
    assert one.claim() == {0: (0, 10)}


def pairs(claimed: Claimed) -> list[tuple[int, int]]:
    """The ranges of partition 0."""
    bounds = claimed.get(0, ())
    return list(zip(bounds[::2], bounds[1::2], strict=True))
