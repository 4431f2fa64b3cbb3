"""A query that is stopped gracefully finishes its micro-batch, and nothing stays claimed; signals do that to a program."""

from __future__ import annotations

import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from devtools.broker import Cluster
from spark_groupsource import await_termination, stop_gracefully
from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.checkpoint.offset_log import plans, source_lines
from spark_groupsource.cli.claimed import claimed_in
from spark_groupsource.reports.driver_reports import DriverReports
from spark_groupsource.spark.durable_listener import driver_process
from tests.conftest import MakeTopic, Produce
from tests.support.committed import read_committed
from tests.support.consumers import plain_member
from tests.support.page_programs import blocks, replaced
from tests.support.producing import producing
from tests.support.queries import Pipeline, Queries, needs_admission_control
from tests.support.sinks import written
from tests.support.spark_process import running
from tests.support.waiting import in_background, until

RECORDS = 4000
EACH = {"maxOffsetsPerTrigger": "40"}
"""A hundred micro-batches."""

TRIGGERS = [
    pytest.param({}, id="default"),
    pytest.param({"processingTime": "1 hour"}, id="interval"),
    pytest.param({"availableNow": True}, id="available", marks=pytest.mark.long),
]


@pytest.fixture
def backlog(topic: MakeTopic, produce: Produce) -> str:
    name = topic(partitions=4)
    for partition in range(4):
        produce(name, [(None, b"x")] * (RECORDS // 4), partition)
    return name


@pytest.fixture
def left(cluster: Cluster) -> Callable[[str], tuple[int, int]]:
    """Returns how many ranges of a topic's group are claimed, and how many members it has."""

    def look(topic: str) -> tuple[int, int]:
        view = GroupAdmin({"bootstrap.servers": cluster.bootstrap_servers}).describe(f"group-of-{topic}")
        return len(claimed_in(view)), len(view.members)

    return look


Left = Callable[[str], tuple[int, int]]
WaitsInClaim = Callable[[], AbstractContextManager[tuple[str, Pipeline]]]


def micro_batches(pipeline: Pipeline) -> tuple[int, int]:
    """Return how many micro-batches are in the offset log and in the commit log."""
    folder = pipeline.folder / "checkpoint"
    offsets, commits = (len(list((folder / log).glob("[0-9]*"))) for log in ("offsets", "commits"))
    return offsets, commits


def has_finished(pipeline: Pipeline, count: int) -> Callable[[], bool]:
    """Return whether so many micro-batches are finished; fail with the query's own error."""

    def look() -> bool:
        pipeline.raise_if_ended()
        return micro_batches(pipeline)[1] >= count

    return look


def patiently(stop: Callable[..., bool], *queries: Pipeline) -> bool:
    """Stop queries, with the time that their sources may need on a busy machine to confirm their claims and to leave."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("spark_groupsource.spark.graceful_stop.LEFT_WITHIN_S", 120.0)
        return stop(*(query.running for query in queries), timeout_s=180)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line.message for line in caplog.records if line.name.endswith("graceful_stop")]


def is_asked_to_stop(query: Pipeline) -> bool:
    """Return whether the source of a query with micro-batches is asked to plan nothing new."""
    newest = max((query.folder / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    (stream,) = plans(source_lines(newest.read_text()).values())
    return DriverReports(driver_process()).asked_to_stop(stream) is not None


def send_when_handled(number: signal.Signals, after: Callable[[], object]) -> threading.Thread:
    """Send this process a signal when `await_termination` handles it, and then call `after`."""
    before = signal.getsignal(number)

    def send() -> None:
        until(lambda: signal.getsignal(number) is not before, "the signal is handled")
        os.kill(os.getpid(), number)
        after()

    return in_background(send)


@needs_admission_control
@pytest.mark.parametrize("trigger", TRIGGERS)
def test_a_stop_leaves_the_backlog_and_no_claim_and_the_next_run_reads_it(
    queries: Queries, backlog: str, left: Left, trigger: dict[str, Any]
) -> None:
    """No listener reports anything."""
    query = queries("a", backlog, **EACH).start(**trigger)
    until(has_finished(query, 1), "a micro-batch")
    began = time.monotonic()
    assert patiently(stop_gracefully, query)
    print(f"stopped within {time.monotonic() - began:.1f} s")
    assert not query.running.isActive
    assert left(backlog) == (0, 0)
    planned, finished = micro_batches(query)
    assert planned == finished < 100
    query.options = {**query.options, "maxOffsetsPerTrigger": str(RECORDS // 2)}
    assert len(query.run()) == RECORDS
    assert len(set(query.offsets())) == RECORDS
    assert micro_batches(query)[0] <= planned + 3


def test_the_running_micro_batch_is_finished_however_its_sink_works(queries: Queries, backlog: str, left: Left) -> None:
    """The first one of a run, before there is any progress, into a sink that cannot recognise a micro-batch."""
    rows: list[tuple[int, int]] = []
    is_in_it, may_end = threading.Event(), threading.Event()

    def append(batch: DataFrame, _: int) -> None:
        is_in_it.set()
        may_end.wait()
        rows.extend((row.partition, row.offset) for row in batch.collect())

    query = queries("a", backlog, **EACH)
    for _ in range(2):
        is_in_it.clear()
        may_end.clear()
        query.start(foreach_batch=append)
        assert is_in_it.wait(180)
        threading.Timer(1.0, may_end.set).start()
        assert patiently(stop_gracefully, query)
        assert left(backlog) == (0, 0)
    assert len(rows) == len(set(rows)) == 80
    planned, finished = micro_batches(query)
    assert planned == finished == 2


def test_a_query_that_ends_after_the_micro_batch_in_which_it_is_stopped_leaves_nothing_claimed(
    queries: Queries, backlog: str, left: Left
) -> None:
    """No later trigger and no listener confirms this micro-batch. It ends right after its commit, before the next check."""
    is_in_it, may_end = threading.Event(), threading.Event()

    def block(_: DataFrame, __: int) -> None:
        is_in_it.set()
        may_end.wait()

    query = queries("a", backlog).start(foreach_batch=block, once=True)
    assert is_in_it.wait(180)
    threading.Timer(1.0, may_end.set).start()
    assert patiently(stop_gracefully, query)
    assert left(backlog) == (0, 0)
    planned, finished = micro_batches(query)
    assert planned == finished == 1


def test_past_the_timeout_it_is_interrupted_and_says_what_stays_claimed(
    queries: Queries, backlog: str, left: Left, caplog: pytest.LogCaptureFixture
) -> None:
    """The warning's advice: the next start on the checkpoint, with time enough."""
    is_stopped = threading.Event()

    def slow(_: DataFrame, batch: int) -> None:
        if batch and not is_stopped.is_set():
            is_stopped.wait()  # Spark's interruption does not reach this process
            raise InterruptedError

    query = queries("a", backlog, **EACH).start(foreach_batch=slow)
    until(has_finished(query, 1), "the first micro-batch")
    until(lambda: micro_batches(query)[0] == 2 and left(backlog)[0], "the second one is claimed")

    def release() -> None:
        until(lambda: not query.running.isActive, "the query is being stopped")
        is_stopped.set()

    releasing = in_background(release)
    with caplog.at_level(logging.WARNING):
        assert not stop_gracefully(query.running, timeout_s=0.5)
    releasing.join()
    (warning,) = warnings(caplog)
    assert f"{backlog}-0 [10, 20)" in warning
    assert "Restart the query from its checkpoint" in warning
    until(lambda: left(backlog)[1] == 0, "the member has left")
    assert left(backlog)[0] == 4
    query.start(foreach_batch=slow)
    assert patiently(stop_gracefully, query)
    assert left(backlog) == (0, 0)


@pytest.mark.parametrize("finished", [False, True], ids=["claimed", "finished"])
def test_a_run_that_ends_before_it_has_joined_has_confirmed_nothing(
    queries: Queries, backlog: str, caplog: pytest.LogCaptureFixture, finished: bool
) -> None:
    """The query is started again, and no broker answers."""
    is_in_it = threading.Event()

    def fail(_: DataFrame, __: int) -> None:
        is_in_it.set()
        if not finished:
            raise ValueError("out of paper")

    query = queries("a", backlog, **EACH).start(foreach_batch=fail)
    assert is_in_it.wait(180)
    if finished:
        until(has_finished(query, 1), "a micro-batch")
        assert patiently(stop_gracefully, query)
    else:
        until(lambda: not query.running.isActive, "it has failed")
    query.options = {**query.options, "kafka.bootstrap.servers": "127.0.0.1:1"}
    query.start(foreach_batch=fail)
    until(lambda: query.running._jsq.streamingQuery().availableOffsets().nonEmpty(), "it has read its checkpoint")
    with caplog.at_level(logging.WARNING):
        assert not stop_gracefully(query.running, timeout_s=0.5)
    (warning,) = warnings(caplog)
    assert ("has not confirmed its last micro-batch" if finished else f"{backlog}-0 [0, 10)") in warning


EAGER = {"kafka.partition.assignment.strategy": "range"}
"""With it a member that joins has to wait until all others have let go of their partitions."""


@contextmanager
def slow_group(cluster: Cluster, topic: str) -> Iterator[None]:
    """A member of the topic's group that lets nobody else in."""
    settings = {"partition.assignment.strategy": "range", "heartbeat.interval.ms": "300"}
    with plain_member(cluster, f"group-of-{topic}", topic, settings, lets_go_after_s=200) as member:
        until(lambda: member.owned == 4, "the member has all partitions")
        yield


def is_joining(cluster: Cluster, topic: str) -> bool:
    """Return whether a rebalance of the topic's group waits for a member."""
    view = GroupAdmin({"bootstrap.servers": cluster.bootstrap_servers}).describe(f"group-of-{topic}")
    return "rebalanc" in view.state.lower()


def test_a_new_query_that_waits_to_join_is_stopped_at_once_and_has_claimed_nothing(
    queries: Queries, backlog: str, cluster: Cluster, left: Left, caplog: pytest.LogCaptureFixture
) -> None:
    with slow_group(cluster, backlog):
        query = queries("a", backlog, **EACH, **EAGER).start()
        until(lambda: is_joining(cluster, backlog), "it waits to join")
        began = time.monotonic()
        with caplog.at_level(logging.WARNING):
            assert patiently(stop_gracefully, query)
        assert time.monotonic() - began < 60
    assert warnings(caplog) == []
    until(lambda: left(backlog) == (0, 0), "all have left")
    assert micro_batches(query) == (0, 0)
    query.options = {**query.options, "maxOffsetsPerTrigger": str(RECORDS)}
    assert len(query.run()) == RECORDS


@pytest.mark.long
@pytest.mark.parametrize("crashed", [False, True], ids=["nothing claimed", "claimed"])
def test_a_restarted_query_that_waits_to_join_says_whether_its_earlier_run_has_left_something_claimed(
    queries: Queries, backlog: str, cluster: Cluster, left: Left, caplog: pytest.LogCaptureFixture, crashed: bool
) -> None:
    is_in_it = threading.Event()

    def fail(_: DataFrame, __: int) -> None:
        is_in_it.set()
        if crashed:
            raise ValueError("out of paper")

    query = queries("a", backlog, **EACH, **EAGER).start(foreach_batch=fail)
    assert is_in_it.wait(180)
    if crashed:
        until(lambda: not query.running.isActive, "it has failed")
    else:
        assert patiently(stop_gracefully, query)
    until(lambda: left(backlog)[1] == 0, "it has left")
    with slow_group(cluster, backlog):
        query.start(foreach_batch=lambda _, __: None)
        until(lambda: is_joining(cluster, backlog), "it waits to join")
        began = time.monotonic()
        with caplog.at_level(logging.WARNING):
            if crashed:
                assert not stop_gracefully(query.running, timeout_s=1)
            else:
                assert patiently(stop_gracefully, query)
        assert time.monotonic() - began < 60
        assert left(backlog)[0] == (4 if crashed else 0)
    assert [f"{backlog}-0 [0, 10)" in warning for warning in warnings(caplog)] == [True] * crashed


@pytest.fixture
def waits_in_claim(
    queries: Queries, topic: MakeTopic, produce: Produce, cluster: Cluster, admin: AdminClient, left: Left
) -> WaitsInClaim:
    """Restarts a query whose claim is gone with the group. Until the end of the block another client has its partition."""

    def fail(_: DataFrame, __: int) -> None:
        raise ValueError("out of paper")

    @contextmanager
    def waiting() -> Iterator[tuple[str, Pipeline]]:
        name = topic(partitions=1)
        produce(name, [(None, b"x")] * 10)
        query = queries("a", name).start(foreach_batch=fail)
        until(lambda: not query.running.isActive, "it has failed")
        until(lambda: left(name)[1] == 0, "it has left")
        group = f"group-of-{name}"
        admin.delete_consumer_groups([group])[group].result(60)
        settings = {"partition.assignment.strategy": "cooperative-sticky", "heartbeat.interval.ms": "300"}
        with plain_member(cluster, group, name, settings) as other:
            until(lambda: other.owned == 1, "the other client has the partition")
            query.start(foreach_batch=lambda _, __: None)
            until(lambda: left(name)[1] == 2 and not is_joining(cluster, name), "the query is a member")
            yield name, query

    return waiting


def test_a_query_that_waits_in_its_claim_for_a_partition_finishes_the_micro_batch_if_it_gets_it(
    waits_in_claim: WaitsInClaim, left: Left, caplog: pytest.LogCaptureFixture
) -> None:
    with ExitStack() as other, caplog.at_level(logging.WARNING):
        name, query = other.enter_context(waits_in_claim())

        def let_go() -> None:
            until(lambda: is_asked_to_stop(query), "it is asked to stop")
            other.close()

        letting_go = in_background(let_go)
        assert patiently(stop_gracefully, query)
        letting_go.join()
    assert warnings(caplog) == []
    assert micro_batches(query) == (1, 1)
    assert left(name) == (0, 0)


@pytest.mark.long
def test_a_query_that_waits_in_its_claim_until_the_timeout_leaves_at_once_and_names_its_ranges(
    waits_in_claim: WaitsInClaim, left: Left, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its source answers that something may be claimed, so nothing waits for a confirmation."""
    monkeypatch.setattr("spark_groupsource.spark.graceful_stop.LEFT_WITHIN_S", 120.0)
    with waits_in_claim() as (name, query):
        began = time.monotonic()
        with caplog.at_level(logging.WARNING):
            assert not stop_gracefully(query.running, timeout_s=1)
        assert time.monotonic() - began < 60
        (warning,) = warnings(caplog)
        assert f"{name}-0 [0, 10)" in warning
        until(lambda: left(name) == (0, 1), "only the other client is a member")
    query.start(foreach_batch=lambda _, __: None)
    until(has_finished(query, 1), "the micro-batch")
    assert patiently(stop_gracefully, query)
    assert left(name) == (0, 0)


def test_a_query_that_has_not_read_its_checkpoint_does_not_say_that_nothing_is_claimed(
    queries: Queries, backlog: str, left: Left, caplog: pytest.LogCaptureFixture
) -> None:
    """It is stopped at once after its start. The warning's advice: another start."""

    def fail(_: DataFrame, __: int) -> None:
        raise ValueError("out of paper")

    query = queries("a", backlog, **EACH).start(foreach_batch=fail)
    until(lambda: not query.running.isActive, "it has failed, with a claim")
    query.start(foreach_batch=lambda _, __: None)
    with caplog.at_level(logging.WARNING):
        assert not stop_gracefully(query.running, timeout_s=0)
    (warning,) = warnings(caplog)
    assert "was stopped before it had read its checkpoint" in warning
    query.start(foreach_batch=lambda _, __: None)
    until(has_finished(query, 1), "a micro-batch")
    assert patiently(stop_gracefully, query)
    until(lambda: left(backlog) == (0, 0), "what is claimed is confirmed, and the members of all runs have left")


def test_a_query_that_has_failed_in_a_micro_batch_says_what_stays_claimed(
    queries: Queries, backlog: str, left: Left, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: DataFrame, __: int) -> None:
        raise ValueError("out of paper")

    query = queries("a", backlog, **EACH).start(foreach_batch=fail)
    until(lambda: not query.running.isActive, "it has failed")
    with caplog.at_level(logging.WARNING):
        assert not stop_gracefully(query.running)
    (warning,) = warnings(caplog)
    assert f"{backlog}-0 [0, 10)" in warning
    until(lambda: left(backlog) == (4, 0), "the member has left")


def test_a_query_without_this_source_is_stopped_between_two_micro_batches(spark: SparkSession, tmp_path: Path) -> None:
    """It pauses only after several of them, and none is interrupted until then."""
    begun: list[int] = []
    ended: list[int] = []

    def append(_: DataFrame, batch: int) -> None:
        begun.append(batch)
        time.sleep(3.5 if batch < 4 else 0)
        ended.append(batch)

    rate = spark.readStream.format("rate").option("rowsPerSecond", 1000).load()
    writer = rate.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).foreachBatch(append)
    query = writer.trigger(processingTime="3 seconds").start()
    until(lambda: ended, "a micro-batch")
    assert stop_gracefully(query, timeout_s=180)
    assert begun == ended
    assert ended[-1] >= 4


def test_a_query_that_does_not_end_hides_no_other_and_is_named(
    spark: SparkSession, queries: Queries, backlog: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its code goes on when Spark interrupts it, until after `spark.sql.streaming.stopTimeout`."""
    is_in_it, may_end = threading.Event(), threading.Event()

    def hang(_: DataFrame, __: int) -> None:
        is_in_it.set()
        may_end.wait()

    def fail(_: DataFrame, __: int) -> None:
        raise ValueError("out of paper")

    monkeypatch.setattr("spark_groupsource.spark.graceful_stop.LEFT_WITHIN_S", 2.0)
    before = spark.conf.get("spark.sql.streaming.stopTimeout")
    assert before is not None
    spark.conf.set("spark.sql.streaming.stopTimeout", "1s")
    try:
        query = queries("a", backlog, **EACH).start(foreach_batch=hang)
        assert is_in_it.wait(180)
        failing = queries("b", backlog, **EACH).start(foreach_batch=fail)
        with caplog.at_level(logging.WARNING), pytest.raises(StreamingQueryException, match="out of paper"):
            await_termination(query.running, failing.running, timeout_s=0.5)
        assert [line for line in warnings(caplog) if "has not stopped" in line and "stopTimeout" in line]
    finally:
        may_end.set()
        spark.conf.set("spark.sql.streaming.stopTimeout", before)


def test_one_of_two_queries_is_stopped_and_the_other_goes_on(queries: Queries, backlog: str, left: Left) -> None:
    a, b = (queries(name, backlog, **EACH).start() for name in "ab")
    until(has_finished(a, 1), "a micro-batch of a")
    until(has_finished(b, 1), "a micro-batch of b")
    assert patiently(stop_gracefully, a)
    assert left(backlog)[1] == 1
    until(has_finished(b, micro_batches(b)[1] + 2), "b goes on")
    assert patiently(stop_gracefully, b)
    assert left(backlog) == (0, 0)


def test_a_query_with_other_sources_stops_when_its_ranges_are_confirmed(
    spark: SparkSession, queries: Queries, topic: MakeTopic, backlog: str, produce: Produce, left: Left
) -> None:
    """Two loads of this source, and one of another that never pauses."""
    other = topic(partitions=1)
    produce(other, [(None, b"x")] * 1000, 0)
    query = queries("a", backlog, **EACH)
    second = queries("b", other, **EACH).load().select("partition", "offset")
    rate = spark.readStream.format("rate").option("rowsPerSecond", 1000).load().selectExpr("0 AS partition", "value AS offset")
    query.transform = lambda frame: frame.select("partition", "offset").union(second).union(rate)
    query.start()
    until(has_finished(query, 2), "two micro-batches")
    assert patiently(stop_gracefully, query)
    assert (left(backlog), left(other)) == ((0, 0), (0, 0))


class TestAwaitTermination:
    def test_a_signal_stops_all_queries_gracefully_and_restores_the_handlers(
        self, queries: Queries, backlog: str, left: Left
    ) -> None:
        number = signal.SIGTERM
        before = signal.getsignal(number)
        both = [queries(name, backlog, **EACH).start() for name in "ab"]
        until(lambda: all(has_finished(query, 1)() for query in both), "a micro-batch of each")
        sent = send_when_handled(number, lambda: None)
        assert patiently(await_termination, *both)
        sent.join()
        assert left(backlog) == (0, 0)
        assert signal.getsignal(number) is before
        assert all(planned == finished for planned, finished in map(micro_batches, both))

    def test_a_second_signal_stops_at_once(self, queries: Queries, backlog: str) -> None:
        is_in_it = threading.Event()
        may_end = threading.Event()

        def slow(_: DataFrame, __: int) -> None:
            is_in_it.set()
            may_end.wait()  # Spark's interruption does not reach this process

        query = queries("a", backlog, **EACH).start(foreach_batch=slow)
        assert is_in_it.wait(180)
        before = signal.getsignal(signal.SIGTERM)

        def send_again() -> None:
            until(lambda: is_asked_to_stop(query), "the first one is served")
            os.kill(os.getpid(), signal.SIGTERM)
            until(lambda: signal.getsignal(signal.SIGTERM) is before, "the second one is noted")
            until(lambda: not query.running.isActive, "the query is being stopped")
            may_end.set()

        sent = send_when_handled(signal.SIGTERM, send_again)
        assert not await_termination(query.running, timeout_s=600)
        sent.join()
        assert micro_batches(query)[0] == 1

    def test_a_query_that_fails_stops_the_others_and_its_error_is_raised(self, queries: Queries, backlog: str) -> None:
        def fail(_: DataFrame, batch: int) -> None:
            if batch == 1:
                raise ValueError("out of paper")

        healthy = queries("a", backlog, **EACH).start()
        until(has_finished(healthy, 1), "a micro-batch")
        failing = queries("b", backlog, **EACH).start(foreach_batch=fail)
        with pytest.raises(StreamingQueryException, match="out of paper"):
            patiently(await_termination, healthy, failing)
        planned, finished = micro_batches(healthy)
        assert planned == finished
        assert not healthy.running.isActive

    def test_another_thread_waits_without_handlers(self, queries: Queries, backlog: str) -> None:
        query = queries("a", backlog).start(availableNow=True)
        ended: list[bool] = []
        thread = threading.Thread(target=lambda: ended.append(await_termination(query.running)))
        thread.start()
        thread.join(180)
        assert ended == [True]


PROGRAM = """
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from spark_groupsource import await_termination, register
from spark_groupsource.spark import graceful_stop
from spark_groupsource.spark.datasource import ADMISSION_CONTROL

brokers, topic, sink, rounds = sys.argv[1:]
graceful_stop.LEFT_WITHIN_S = 120.0  # on a busy machine
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", False).getOrCreate()
register(spark)


def append(batch, _):
    lines = [f"{row.partition} {row.offset}" for row in batch.collect()]
    with open("rows", "a") as file:
        file.writelines(line + "\\n" for line in lines)


def start(most, **trigger):
    options = {"kafka.bootstrap.servers": brokers, "kafka.group.id": f"group-of-{topic}", "subscribe": topic}
    reader = spark.readStream.format("groupkafka").options(**options, startingOffsets="earliest", maxOffsetsPerTrigger=most)
    rows = reader.schema("partition INT, offset LONG").load()
    if sink == "files":
        writer = rows.writeStream.format("parquet").option("path", "out")
    elif sink == "foreachBatch":
        writer = rows.writeStream.foreachBatch(append)
    else:
        values = rows.selectExpr("concat(partition, ' ', offset) AS value")
        writer = values.writeStream.format("groupkafka").option("kafka.bootstrap.servers", brokers).option("topic", sink)
    return writer.option("checkpointLocation", "checkpoint").trigger(**trigger).start()


for number in range(int(rounds)):
    query = start(40, **({"availableNow": True} if number % 2 and ADMISSION_CONTROL else {"processingTime": "0 seconds"}))
    print("round", number, file=sys.stderr)
    print("nothing is claimed:", await_termination(query, timeout_s=180), file=sys.stderr)
start(1_000_000, availableNow=True).awaitTermination()
spark.stop()
"""
ROUNDS = int(os.environ.get("GRACEFUL_STOPS", "2"))
"""How often each program is stopped."""


def place(text: str) -> tuple[int, int]:
    """Return the partition and the offset in a row of the program's output."""
    partition, offset = text.split()
    return int(partition), int(offset)


@pytest.mark.parametrize("sink", [*(pytest.param(name, marks=pytest.mark.long) for name in ("files", "foreachBatch")), "topic"])
def test_a_program_that_gets_signals_leaves_nothing_claimed_and_writes_each_row_once(
    sink: str, topic: MakeTopic, produce: Produce, cluster: Cluster, left: Left, tmp_path: Path
) -> None:
    """SIGTERM, and SIGINT for the whole process group, as a terminal sends it for Ctrl-C."""
    name, target = topic(partitions=4), topic(partitions=2)
    for partition in range(4):
        produce(name, [(None, b"x")] * (RECORDS * ROUNDS // 8), partition)
    (tmp_path / "program.py").write_text(PROGRAM)
    commits = tmp_path / "checkpoint" / "commits"
    command = [sys.executable, "program.py", cluster.bootstrap_servers, name, target if sink == "topic" else sink, str(ROUNDS)]
    with running("program", tmp_path, command) as program:
        pid = program._pid()
        for number in range(ROUNDS):
            program.found_in_log(f"(round {number})")
            before = len(list(commits.glob("[0-9]*"))) if number else 0
            until(lambda: program.ended or len(list(commits.glob("[0-9]*"))) > before + 1, "new micro-batches")  # noqa: B023
            time.sleep(random.uniform(0, 0.5))
            began = time.monotonic()
            os.kill(pid, signal.SIGTERM) if number % 2 else os.killpg(pid, signal.SIGINT)
            until(lambda: program.ended or program.log().count("nothing is claimed: True") == number + 1, "stopped")  # noqa: B023
            print(f"{sink}, round {number}: stopped within {time.monotonic() - began:.1f} s")
            assert left(name)[0] == 0
        program.finish()
    if sink == "files":
        rows = written(tmp_path / "out")
    elif sink == "foreachBatch":
        rows = sorted(map(place, (tmp_path / "rows").read_text().splitlines()))
    else:
        rows = sorted(map(place, read_committed(cluster, target)))
    assert rows == [(partition, offset) for partition in range(4) for offset in range(RECORDS * ROUNDS // 8)]


@pytest.mark.long
def test_two_of_the_programs_of_the_readme_get_ctrl_c_in_a_micro_batch_and_nothing_stays_claimed(
    topic: MakeTopic, cluster: Cluster, left: Left, tmp_path: Path
) -> None:
    """At the same time, as somebody does who closes all terminals."""
    name = topic(partitions=4)
    (code,) = blocks("README.md", "python")
    ours = {
        "localhost:9092": cluster.bootstrap_servers,
        '"billing"': f'"group-of-{name}"',
        '"subscribe", "orders"': f'"subscribe", "{name}"',
    }
    (tmp_path / "pipeline.py").write_text(replaced(code, ours))

    def is_in_a_micro_batch(which: str) -> bool:
        offsets, commits = (
            {path.name for path in (tmp_path / "checkpoints" / which / log).glob("[0-9]*")} for log in ("offsets", "commits")
        )
        return bool(commits) and max(map(int, commits)) > 0 and bool(offsets - commits)

    with producing(cluster, name, per_second=2000):
        for number in range(ROUNDS):
            with ExitStack() as programs:
                both = [
                    programs.enter_context(
                        running(which, tmp_path, ["sh", "-c", f"exec {sys.executable} pipeline.py {which} > {which}.out"])
                    )
                    for which in ("first", "second")
                ]
                pids = [program._pid() for program in both]
                until(
                    lambda: any(program.ended for program in both) or all(map(is_in_a_micro_batch, ("first", "second"))),  # noqa: B023
                    "both have partitions, and are in a micro-batch",
                    timeout_s=600,  # two Sparks start
                )
                began = time.monotonic()
                for pid in pids:
                    os.killpg(pid, signal.SIGINT)
                for program in both:
                    assert "may remain claimed" not in program.finish()
                print(f"round {number}: both have ended within {time.monotonic() - began:.1f} s")
            assert left(name) == (0, 0)
