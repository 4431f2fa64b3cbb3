"""Readers of committed records do not wait for a task that is dead: whoever comes next ends its transaction."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from devtools.broker import Cluster
from spark_groupsource.brokers.client_pool import pool
from spark_groupsource.errors import OptionError, ReplayDiffers, WriterFenced
from spark_groupsource.sink import writing
from spark_groupsource.sink.finishing import Tasks, abort, finish
from spark_groupsource.sink.token_store import TokenStore
from spark_groupsource.sink.writing import Attempt, write_once
from tests.conftest import MakeTopic
from tests.support.committed import read_committed
from tests.support.sink_queries import LATER_RUN, RUN, Query
from tests.support.spark_sinks import hidden
from tests.support.waiting import until

ROOT = Path(__file__).parents[3]


@pytest.fixture
def query(cluster: Cluster, topic: MakeTopic) -> Query:
    return Query(cluster, topic(1))


@contextmanager
def left_open(query: Query, task: int, run: str = RUN) -> Iterator[None]:
    """A try of a task whose worker is dead: it has left its mark, and written a row."""
    with closing(query.tokens) as tokens:
        tokens.commit_mark(task, run, () if query.topic else ("any",))
    dead = Producer({"bootstrap.servers": query.cluster.bootstrap_servers, "transactional.id": query.names.task(task)})
    dead.init_transactions(60)
    dead.begin_transaction()
    dead.produce(query.topic or "", "dead")
    dead.flush(60)
    assert waits(query)
    yield
    del dead


def waits(query: Query) -> bool:
    """Whether something is written and not visible."""
    return any(hidden(query.cluster, query.topic or "").values())


def until_nothing_waits(query: Query) -> None:
    """Brokers end a transaction on one partition after the other, after they have answered."""
    until(lambda: not waits(query), "nothing waits for the end of a transaction")


@pytest.mark.parametrize("task", [3, 17, 200], ids=["", "its reach is marked", "its reach is the next one"])
def test_a_restart_with_fewer_tasks_ends_those_that_it_does_not_have(query: Query, task: int) -> None:
    with left_open(query, task):
        query.run(0, [["a"], ["b"]])
        until_nothing_waits(query)
        assert read_committed(query.cluster, query.topic) == ["a", "b"]
        with closing(query.tokens) as tokens:
            assert task not in tokens.read_marks([task]), "the next restart has nothing to end"


def test_a_restart_ends_that_of_a_task_without_rows(query: Query) -> None:
    with left_open(query, 1):
        query.run(0, [["a"], []])
        until_nothing_waits(query)


def test_a_restart_that_is_refused_has_ended_it_all_the_same(query: Query) -> None:
    query.write(0, ["b"], 2)
    with left_open(query, 3):
        with pytest.raises(ReplayDiffers):
            query.run(0, [["a"], ["b"]])
        until_nothing_waits(query)


def test_a_micro_batch_that_is_given_up_leaves_none_open(query: Query) -> None:
    with left_open(query, 1):
        abort(query.settings(), query.names, {0, 1, 2, 3})
        until_nothing_waits(query)


def test_a_retried_task_that_has_no_rows_any_more_is_asked_in_the_middle_of_a_run(query: Query) -> None:
    """Its first try had written, and its worker died before it could report that."""
    query.run(0, [["a"], ["b"]], run=RUN)
    query.write(1, ["c"], 0)
    query.write(1, ["d"], 1)
    tasks = Tasks(2, 1, (query.topic or "",), wrote=frozenset({1}), empty=frozenset({0}))
    finish(query.settings(), query.names, 1, RUN, tasks)
    query.write(2, ["e"], 0)
    with pytest.raises(ReplayDiffers, match="An earlier attempt wrote 1 rows"):
        finish(query.settings(), query.names, 2, RUN, tasks._replace(retried=frozenset({0})))


def test_a_token_is_on_every_topic_and_the_drivers_stays_where_it_is(cluster: Cluster, topic: MakeTopic) -> None:
    """One of them may be deleted. And a token that moves is missing when it is looked for."""
    first, second = sorted([topic(), topic()])
    query = Query(cluster, None)
    query.write(0, pa.RecordBatch.from_pydict({"value": ["a", "b"], "topic": [first, second]}))
    with closing(query.tokens) as tokens:
        assert sorted(tokens._read(query.names.task(0))) == [first, second]
        for batch, name in enumerate([second, first, first]):
            finish(query.settings(), query.names, batch, RUN, Tasks(1, 1, (name,), frozenset({0})))
            assert sorted(tokens._read(query.names.driver)) == [second]


def slow_rows(seconds: float) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"value": ["a"]})
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        time.sleep(0.1)
    yield pa.RecordBatch.from_pydict({"value": ["b"]})


def test_a_task_that_takes_too_long_is_named_and_has_more_time_when_it_is_tried_again(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_OUTLASTING", set())
    short = {f"kafka.{name}.timeout.ms": "5000" for name in ("transaction", "delivery", "request")}
    settings = replace(query.settings(**short), longest_transaction_ms=60_000)
    attempt = Attempt(0, 0, RUN, query.names.query)
    with pytest.raises(
        WriterFenced, match=r"the task wrote for \d+ s, but its transaction may take no longer than 5 s .*maxOffsetsPerTrigger"
    ):
        write_once(settings, query.names, attempt, slow_rows(9))
    until_nothing_waits(query)
    assert read_committed(query.cluster, query.topic) == []
    assert write_once(settings, query.names, attempt._replace(number=1), slow_rows(7)).written == 2


def test_brokers_that_allow_less_than_that_are_asked_for_the_default(query: Query) -> None:
    settings = replace(query.settings(), longest_transaction_ms=90_000_000)
    rows = [pa.RecordBatch.from_pydict({"value": ["a"]})]
    with pytest.raises(OptionError):
        write_once(
            replace(settings, producer={**settings.producer, "transaction.timeout.ms": "90000000"}),
            *(query.names, Attempt(0, 0, RUN, query.names.query), iter(rows)),
        )
    assert write_once(settings, query.names, Attempt(0, 0, LATER_RUN, query.names.query, 1), iter(rows)).written == 1
    assert read_committed(query.cluster, query.topic) == ["a"]


def test_the_micro_batches_of_a_run_share_a_client_and_a_later_run_makes_its_own(query: Query) -> None:
    """What a client knows of the coordinator may be from before an earlier run wrote."""

    def kept(run: str) -> TokenStore | None:
        found = [idle.client for key, idle in pool()._idle.items() if key[:3] == ("tokens", run, query.names)]  # type: ignore[index]
        return cast("TokenStore", found[0]) if found else None

    query.run(0, [["a"]], run=RUN)
    of_first = kept(RUN)
    query.run(1, [["b"]], run=RUN)
    assert of_first is not None
    assert kept(RUN) is of_first
    query.run(2, [["c"]], run=LATER_RUN)
    assert kept(LATER_RUN) not in (None, of_first)
    with pytest.raises(ReplayDiffers):
        query.finish(2, 1, 5, run=LATER_RUN)
    assert kept(LATER_RUN) is None, "after an error nothing is relied on"
    query.finish(2, 1, 1, run="")
    assert kept("") is None, "a platform that does not name its runs"
    assert read_committed(query.cluster, query.topic) == ["a", "b", "c"]


ENDING = """
import sys
from types import SimpleNamespace
from tests.support.sink_queries import Query

query = Query(SimpleNamespace(bootstrap_servers=sys.argv[1]), sys.argv[2])
for batch in range(2):
    query.finish(batch, 1, 0, empty=(0,))
print("ends")
"""


def test_a_process_that_keeps_clients_ends(cluster: Cluster, topic: MakeTopic) -> None:
    arguments = [sys.executable, "-c", ENDING, cluster.bootstrap_servers, topic()]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "ends\n"), done.stderr
