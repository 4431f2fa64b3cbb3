"""Tasks of the sink against a broker: what readers of committed records find after each way of failing."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, Producer

from devtools.broker import Cluster
from spark_groupsource.brokers.client_pool import pool
from spark_groupsource.brokers.group_offsets import GroupOffsets
from spark_groupsource.errors import (
    AuthenticationFailed,
    GroupKafkaError,
    InputIncomplete,
    OptionError,
    RecordRefused,
    RecordTooLarge,
    TopicNotFound,
    WriterFenced,
)
from spark_groupsource.native.libraries import NativeUnavailable
from spark_groupsource.options.sink_model import SinkOptions
from spark_groupsource.sink import producer, token_store, topics, writing
from spark_groupsource.sink.settings import SinkSettings
from spark_groupsource.sink.writing import Report, write_at_least_once
from spark_groupsource.spark.worker import ended_by_signals
from spark_groupsource.timeouts import TRANSACTION_S
from tests.conftest import MakeTopic
from tests.support.committed import read_committed
from tests.support.secured import Secured
from tests.support.sink_queries import LATER_RUN, Query
from tests.support.spark_sinks import hidden
from tests.support.waiting import until


@pytest.fixture(autouse=True, params=["native", "pure"])
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each producer in turn."""
    if request.param == "pure":
        unavailable = NativeUnavailable("the test asks for it")
        monkeypatch.setattr(producer, "why_unavailable", lambda: unavailable)


WITH_ONE_CLIENT = pytest.mark.parametrize("client", ["native"], indirect=True)
"""Of tests of tokens, rules and the driver, to which it does not matter who writes."""


@pytest.fixture
def query(cluster: Cluster, topic: MakeTopic) -> Query:
    return Query(cluster, topic(2))


def test_each_row_is_there_once_however_often_its_task_is_run(query: Query) -> None:
    assert query.write(0, ["a", "b"]).written == 2
    again = query.write(0, ["b", "a"])
    assert (again.written, again.skipped) == (0, 2)
    query.finish(0, 1, 2)
    query.write(1, ["c"])
    query.write(1, ["d"], task=1)
    assert read_committed(query.cluster, query.topic) == ["a", "b", "c", "d"]


def before_close(monkeypatch: pytest.MonkeyPatch, raise_once: Callable[[], None]) -> None:
    close = writing._TaskWriter.close

    def interrupted(writer: writing._TaskWriter) -> None:
        raise_once()
        close(writer)

    monkeypatch.setattr(writing._TaskWriter, "close", interrupted)


def after_the_abort(monkeypatch: pytest.MonkeyPatch, raise_once: Callable[[], None]) -> None:
    after("abort_transaction", monkeypatch, raise_once)


def after_the_begin(monkeypatch: pytest.MonkeyPatch, raise_once: Callable[[], None]) -> None:
    after("begin_transaction", monkeypatch, raise_once)


def after(step: str, monkeypatch: pytest.MonkeyPatch, raise_once: Callable[[], None]) -> None:
    pool().close_kept()
    make = producer.make_producer

    def made(*arguments: Any) -> producer.Producer:
        new = make(*arguments)
        call = getattr(new, step)

        def interrupted(*more: Any) -> None:
            call(*more)
            raise_once()

        monkeypatch.setattr(new, step, interrupted)
        return new

    monkeypatch.setattr(writing, "make_producer", made)


@pytest.mark.parametrize("moment", [before_close, after_the_abort, after_the_begin])
def test_a_signal_at_any_moment_of_a_task_that_is_cut_off_leaves_no_transaction_open(
    query: Query, moment: Callable[[pytest.MonkeyPatch, Callable[[], None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a JVM dies, the end of the rows and the signal of Spark's daemon come at nearly the same time."""
    raised: list[bool] = []

    def raise_once() -> None:
        if not raised:
            raised.append(True)
            signal.raise_signal(signal.SIGHUP)

    def cut() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"value": ["a"] * 1000})
        raise InputIncomplete("cut off")

    query.write(0, ["before"])
    moment(monkeypatch, raise_once)
    with pytest.raises(SystemExit), ended_by_signals():
        query.write_all(1, cut())
    assert raised
    until(lambda: not any(hidden(query.cluster, query.topic or "").values()), "no transaction is open", 30)
    monkeypatch.undo()
    assert query.write(1, ["b"]).written == 1
    assert read_committed(query.cluster, query.topic) == ["b", "before"]


def test_columns_arrive_as_they_were_given(cluster: Cluster, topic: MakeTopic) -> None:
    names = [topic(3), topic(1)]
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = pa.RecordBatch.from_pydict(
        {
            "topic": pa.array([names[0], names[1], names[0], names[0]]),
            "key": pa.array([b"k", None, b"", b"k"], pa.binary()),
            "value": pa.array([b"1", b"2", None, b"4"], pa.binary()),
            "partition": pa.array([2, None, 1, None], pa.int32()),
            "headers": pa.array([[{"key": "h", "value": b"x"}, {"key": "h", "value": None}], None, [], None], headers),
        }
    )
    query = Query(cluster, None)
    assert query.write(0, rows).topics == tuple(sorted(names))
    first, second, third, fourth = sorted(
        read_committed(cluster, *names, whole=True), key=lambda one: (one.value() or b"3", one.partition())
    )
    assert (first.topic(), first.partition(), first.key(), first.value()) == (names[0], 2, b"k", b"1")
    assert first.headers() == [("h", b"x"), ("h", None)]
    assert (second.topic(), second.key(), second.value(), second.headers()) == (names[1], None, b"2", None)
    assert (third.partition(), third.key(), third.value(), third.headers()) == (1, b"", None, None)
    assert fourth.partition() == JAVAS_PARTITION_OF_K
    assert query.write(0, rows, run=LATER_RUN).skipped == 4


JAVAS_PARTITION_OF_K = 2
"""Of three: murmur2 of `k`, made positive, as Java's producer has it (`Utils.murmur2`): 579,986,912 % 3."""


def test_a_task_that_another_try_overtakes_writes_nothing(query: Query) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"value": ["old"]})
        query.write(0, ["new"])
        yield pa.RecordBatch.from_pydict({"value": ["old"]})

    with pytest.raises(WriterFenced, match="Another attempt of this task has started"):
        query.write_all(0, rows())
    assert read_committed(query.cluster, query.topic) == ["new"]


@WITH_ONE_CLIENT
@pytest.mark.parametrize("believed_s", [60.0, 0.0], ids=["a quick fence", "a slow fence"])
def test_after_a_slow_fence_the_token_is_read_by_a_new_client(
    query: Query, monkeypatch: pytest.MonkeyPatch, believed_s: float
) -> None:
    """The coordinator that a client found before may have been replaced, and not know the token of an earlier attempt."""
    monkeypatch.setattr(writing, "COORDINATOR_BELIEVED_S", believed_s)
    made: list[str] = []
    make = token_store.TokenStore._make

    def noted(self: token_store.TokenStore, group: str) -> GroupOffsets:
        made.append(group)
        return make(self, group)

    monkeypatch.setattr(token_store.TokenStore, "_make", noted)
    assert query.write(0, ["a"]).written == 1
    assert made.count(query.names.task(0)) == (1 if believed_s else 2)


def test_an_open_transaction_of_a_dead_try_is_aborted(query: Query) -> None:
    dead = Producer({"bootstrap.servers": query.cluster.bootstrap_servers, "transactional.id": query.names.task(0)})
    dead.init_transactions(60)
    dead.begin_transaction()
    dead.produce(query.topic or "", "dead")
    dead.flush(60)
    query.write(0, ["a"])
    assert read_committed(query.cluster, query.topic) == ["a"]
    with pytest.raises(KafkaException):
        dead.commit_transaction(60)


def test_a_wrong_password_is_named_soon(
    secured: Secured, secured_topic: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "CONNECT_S", 1.0)
    monkeypatch.setattr(writing, "TRY_S", 1.5)
    login = {"kafka.log_level": "0", **secured.login("SCRAM-SHA-512", "wrong-secret")}
    query = Query(secured.cluster, secured_topic("open-"), transactionalIdPrefix="open-billing", **login)
    began = time.monotonic()
    with pytest.raises(AuthenticationFailed) as refused:
        query.write(0, ["a"])
    assert time.monotonic() - began < TRANSACTION_S / 2
    assert "wrong-secret" not in str(refused.value)


@WITH_ONE_CLIENT
def test_a_failing_source_leaves_nothing(query: Query) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"value": ["a"]})
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        query.write_all(0, rows())
    assert read_committed(query.cluster, query.topic) == []
    query.write(0, ["a"])
    assert read_committed(query.cluster, query.topic) == ["a"]


@pytest.mark.parametrize("write", ["once", "at least once"])
def test_a_row_that_is_too_large_is_named(query: Query, write: str) -> None:
    rows = pa.RecordBatch.from_pydict({"value": ["small", "x" * 3_000_000]})
    once = write == "once"

    def call() -> Report:
        return query.write(0, rows) if once else write_at_least_once(at_least_once(query), iter([rows]))

    with pytest.raises(RecordTooLarge, match=rf"a row of 3000000 bytes .* topic {query.topic}.*kafka.max.request.size"):
        call()
    if once:
        assert read_committed(query.cluster, query.topic) == []


def test_a_row_that_the_topic_refuses_is_named(cluster: Cluster, topic: MakeTopic) -> None:
    query = Query(cluster, topic(1, {"max.message.bytes": "2000"}))
    with pytest.raises(RecordTooLarge, match=r"partition 0 of topic .*max.message.bytes"):
        query.write(0, ["x" * 5000])
    assert read_committed(cluster, query.topic) == []


@WITH_ONE_CLIENT
def test_an_unknown_topic_is_named(cluster: Cluster) -> None:
    query = Query(cluster, "no-such-topic", **{"kafka.max.block.ms": "2000"})
    with pytest.raises(TopicNotFound, match=r"topic no-such-topic does not exist.*Create it"):
        query.write(0, ["a"])


@WITH_ONE_CLIENT
def test_a_topic_that_the_brokers_create_is_written_to(
    cluster: Cluster, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The brokers of the tests create none: the topic appears while the task asks for it."""
    monkeypatch.setattr(topics, "TOPIC_ASKED_S", 60.0)
    name = f"{topic()}-appears"
    appears = threading.Timer(1, lambda: cluster.create_topic(name, 1))
    appears.start()
    rows = pa.RecordBatch.from_pydict({"value": ["a"], "topic": [name]})
    assert Query(cluster, None).write(0, rows).written == 1
    appears.join()
    assert read_committed(cluster, name) == ["a"]


def test_a_partition_that_the_topic_does_not_have_is_named(query: Query) -> None:
    rows = pa.RecordBatch.from_pydict({"value": ["a"], "partition": pa.array([7], pa.int32())})
    with pytest.raises(RecordRefused, match="partition 7 of topic"):
        query.write(0, rows)


def test_a_transaction_that_the_brokers_find_too_long_names_the_settings(query: Query) -> None:
    query.given["kafka.transaction.timeout.ms"] = "90000000"
    with pytest.raises(OptionError, match=r"kafka.transaction.timeout.ms is higher than the brokers' transaction.max.timeout.ms"):
        query.write(0, ["a"])


def test_at_least_once_writes_again(query: Query) -> None:
    settings = at_least_once(query)
    for _ in range(2):
        rows = (pa.RecordBatch.from_pydict({"value": [one]}) for one in ("a", "b"))
        assert write_at_least_once(settings, rows).written == 2
    assert read_committed(query.cluster, query.topic) == ["a", "a", "b", "b"]


def test_many_rows_are_written_in_order(query: Query) -> None:
    rows = [f"{number:06}" for number in range(50_000)]
    batches = [
        pa.RecordBatch.from_pydict({"value": rows[at : at + 10_000], "partition": pa.array([0] * 10_000, pa.int32())})
        for at in range(0, len(rows), 10_000)
    ]
    query.write_all(0, iter(batches))
    assert [(one.value() or b"").decode() for one in read_committed(query.cluster, query.topic, whole=True)] == rows


def test_a_full_queue_is_waited_for_and_rows_are_let_go_as_they_are_delivered(query: Query) -> None:
    rows = [f"{number:06}" * 170 for number in range(5_000)]
    query.given |= {"kafka.buffer.memory": "65536", "kafka.max.request.size": "60000"}
    before, held = pa.total_allocated_bytes(), []

    def batches() -> Iterator[pa.RecordBatch]:
        for at in range(0, len(rows), 10):
            held.append(pa.total_allocated_bytes() - before)
            yield pa.RecordBatch.from_pydict({"value": rows[at : at + 10]})

    query.write_all(0, batches())
    assert read_committed(query.cluster, query.topic) == rows
    assert max(held) < 4 * 65536


def test_rows_of_a_slow_partition_do_not_keep_all_that_came_with_them(query: Query) -> None:
    query.given |= {"kafka.buffer.memory": "65536", "kafka.max.request.size": "60000"}
    # A batch of many rows is sent at once, one of a few only after a while.
    query.given |= {"kafka.batch.size": "8000", "kafka.linger.ms": "2000"}
    partitions = pa.array([1] + [0] * 40, pa.int32())
    before, held = pa.total_allocated_bytes(), []

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(12):
            held.append(pa.total_allocated_bytes() - before)
            yield pa.RecordBatch.from_pydict({"value": ["late"] + ["x" * 1000] * 40, "partition": partitions})

    assert query.write_all(0, batches()).written == 12 * 41
    assert max(held) < 4 * 65536


@WITH_ONE_CLIENT
def test_a_broker_that_does_not_answer_is_named(topic: MakeTopic, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "CONNECT_S", 0.5)
    monkeypatch.setattr(writing, "TRANSACTION_S", 2.0)
    query = Query(cluster, topic(), **{"kafka.bootstrap.servers": "127.0.0.1:1"})
    with pytest.raises(GroupKafkaError, match=r"kafka.bootstrap.servers"):
        query.write(0, ["a"])


def at_least_once(query: Query) -> SinkSettings:
    given = {name: value for name, value in query.given.items() if name != "transactionalIdPrefix"}
    return SinkOptions.parse({**given, "deliveryGuarantee": "at-least-once"}, "stream").sink_settings("stream")
