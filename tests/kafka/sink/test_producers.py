"""What the topic decides: how large a batch of rows may be, which partition a row without a key is in, and what is refused."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient

from devtools.broker import Cluster
from spark_groupsource.brokers.admin_client import make_admin_client
from spark_groupsource.brokers.client import LastError
from spark_groupsource.brokers.client_pool import pool
from spark_groupsource.errors import RecordRefused, RecordTooLarge
from spark_groupsource.fetch import native_consumer
from spark_groupsource.fetch.arrow_schema import arrow_schema
from spark_groupsource.fetch.contract import BUFFER_BYTES, FetchRange, FetchSettings
from spark_groupsource.native.libraries import NativeUnavailable
from spark_groupsource.options.client_settings import consumer_settings
from spark_groupsource.options.sink_model import SinkOptions
from spark_groupsource.sink import producer, topics
from spark_groupsource.sink.writing import write_at_least_once
from tests.conftest import MakeTopic
from tests.support.committed import read_committed
from tests.support.fetching import rows
from tests.support.secured import Secured
from tests.support.sink_queries import Query
from tests.support.waiting import until

KB = 1000


@pytest.fixture(autouse=True, params=["native", "pure"])
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each producer in turn, and its name. Nothing is known of any topic yet."""
    if request.param == "pure":
        unavailable = NativeUnavailable("the test asks for it")
        monkeypatch.setattr(producer, "why_unavailable", lambda: unavailable)
    topics._kept.clear()
    return str(request.param)


def write(query: Query, how: str, rows: pa.RecordBatch) -> None:
    """Write as one task of a stream, or of a batch write."""
    if how == "stream":
        query.write(0, rows)
        return
    given = {name: value for name, value in query.given.items() if name != "transactionalIdPrefix"}
    write_at_least_once(SinkOptions.parse(given, "batch").sink_settings("batch"), iter([rows]))


@pytest.mark.parametrize("compression", ["none", "lz4"])
@pytest.mark.parametrize("how", ["stream", "batch"])
def test_every_row_that_fits_into_the_topic_alone_is_written(
    cluster: Cluster, topic: MakeTopic, how: str, compression: str
) -> None:
    query = Query(cluster, topic(1, {"max.message.bytes": "5000"}), **{"kafka.compression.type": compression})
    values = [f"{number:06}" * (KB // 6) for number in range(300)] + ["x" * 4900]
    write(query, how, pa.RecordBatch.from_pydict({"value": values}))
    assert read_committed(cluster, query.topic) == sorted(values)


def test_the_smallest_limit_of_the_topics_of_the_first_rows_counts(cluster: Cluster, topic: MakeTopic) -> None:
    small, large = topic(1, {"max.message.bytes": "5000"}), topic(1)
    values = [f"{number:06}" * (KB // 6) for number in range(200)]
    Query(cluster, None).write(0, pa.RecordBatch.from_pydict({"topic": [small, large] * 100, "value": values}))
    assert read_committed(cluster, small, large) == values


def test_a_topic_that_appears_later_and_takes_less_needs_the_setting_that_the_error_names(
    cluster: Cluster, topic: MakeTopic
) -> None:
    small, large = topic(1, {"max.message.bytes": "5000"}), topic(1)
    values = [f"{number:06}" * (KB // 6) for number in range(200)]
    batches = [pa.RecordBatch.from_pydict({"topic": [name] * 200, "value": values}) for name in (large, small)]
    query = Query(cluster, None)
    with pytest.raises(RecordTooLarge, match=r"set kafka\.batch\.size to the topic's max\.message\.bytes"):
        query.write_all(0, iter(batches))
    query.write_all(0, iter(batches), 0, **{"kafka.batch.size": "5000"})
    assert read_committed(cluster, small, large) == sorted(2 * values)


def test_who_may_not_ask_for_the_limit_writes_in_javas_batches(secured: Secured) -> None:
    secured.allow_writing_once("unasked-")
    name = f"unasked-{uuid.uuid4().hex[:8]}"
    secured.cluster.create_topic(name, 1, {"max.message.bytes": "20000"})
    login = {"kafka.log_level": "0", **secured.login("SCRAM-SHA-512")}
    query = Query(secured.cluster, name, transactionalIdPrefix="unasked-billing", **login)
    assert query.write(0, ["x" * KB] * 1000).written == 1000


def test_a_process_asks_once_for_a_topic(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    clients = []

    def make(settings: Mapping[str, str], last_error: LastError) -> AdminClient:
        clients.append(make_admin_client(settings, last_error))
        return clients[-1]

    monkeypatch.setattr("spark_groupsource.sink.topics.make_admin_client", make)
    for batch in range(3):
        query.write(batch, ["a"])
    assert len(clients) == 1


@pytest.fixture
def query(cluster: Cluster, topic: MakeTopic) -> Query:
    return Query(cluster, topic(1))


@pytest.mark.parametrize("how", ["stream", "batch"])
def test_rows_without_a_key_are_spread_evenly(cluster: Cluster, topic: MakeTopic, how: str) -> None:
    query = Query(cluster, topic(10))
    write(query, how, pa.RecordBatch.from_pydict({"value": [f"{number:06}" for number in range(20_000)]}))
    rows: Counter[int | None] = Counter()

    def all_there() -> bool:
        # Brokers end a transaction on one partition after the other, after they have answered.
        rows.clear()
        rows.update(one.partition() for one in read_committed(cluster, query.topic, whole=True))
        return rows.total() == 20_000

    until(all_there, "all rows are visible")
    assert len(rows) == 10
    assert max(rows.values()) < 2 * min(rows.values())


@pytest.mark.parametrize("how", ["stream", "batch"])
@pytest.mark.parametrize("limit", [None, "2000"])
def test_a_row_that_is_too_large_by_its_headers_is_named_with_its_whole_size(
    cluster: Cluster, topic: MakeTopic, how: str, limit: str | None
) -> None:
    query = Query(cluster, topic(1, {} if limit is None else {"max.message.bytes": limit}))
    size = 3_000_000 if limit is None else 5_000
    headers = pa.array(
        [[{"key": "where", "value": b"x" * size}, {"key": "", "value": None}]],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    row = pa.RecordBatch.from_pydict({"key": ["key"], "value": ["small"], "headers": headers})
    with pytest.raises(RecordTooLarge, match=rf"a row of {size + 13} bytes \(key, value and headers\) to .*topic {query.topic}"):
        write(query, how, row)


@pytest.mark.parametrize("how", ["stream", "batch"])
def test_a_headers_key_with_a_nul_is_written_whole_or_refused(cluster: Cluster, topic: MakeTopic, client: str, how: str) -> None:
    name = topic(1)
    query = Query(cluster, name)
    headers = [{"key": "a\0b", "value": b"1"}, {"key": "\0", "value": None}]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    row = pa.RecordBatch.from_pydict({"value": ["v"], "headers": pa.array([headers], kind)})
    if client == "pure":
        with pytest.raises(RecordRefused, match=r"header whose key contains a NUL.* native"):
            write(query, how, row)
        return
    write(query, how, row)
    consumer = consumer_settings({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "look"}, BUFFER_BYTES)
    what, settings = FetchRange(name, 0, 0, 1), FetchSettings(consumer, arrow_schema(include_headers=True))
    assert [found["headers"] for found in rows(native_consumer.read, what, settings)] == [headers]
    pool().close_kept()


@pytest.mark.parametrize("how", ["stream", "batch"])
def test_a_row_without_a_key_in_a_compacted_topic_is_named(cluster: Cluster, topic: MakeTopic, how: str) -> None:
    query = Query(cluster, topic(1, {"cleanup.policy": "compact"}))
    with pytest.raises(RecordRefused, match=r"INVALID_RECORD.* row without a key .*cleanup\.policy=compact"):
        write(query, how, pa.RecordBatch.from_pydict({"value": ["a"]}))
