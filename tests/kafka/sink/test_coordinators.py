"""The sink while coordinators move and brokers die: three brokers, and clients that stay."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from spark_groupsource.brokers import group_admin
from spark_groupsource.brokers.group_offsets import GroupOffsets
from spark_groupsource.errors import BrokerUnavailable
from spark_groupsource.sink.tokens import Tokens
from tests.harness.brokers import Brokers
from tests.support.committed import read_committed
from tests.support.sink_queries import LATER_RUN, Query


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with Brokers(3, None) as started:
        yield started


@pytest.fixture
def query(brokers: Brokers) -> Query:
    name = f"out-{uuid.uuid4().hex[:8]}"
    brokers.create_topic(name, 2)
    return Query(brokers, name)


def test_a_client_that_stays_follows_the_coordinator_of_its_group(brokers: Brokers, query: Query, tmp_path: Path) -> None:
    assert query.topic is not None
    offsets = GroupOffsets(query.settings().requests, query.names.driver)
    offsets.commit(query.topic, 1, "one")
    for number in (2, 3):
        brokers.move_coordinator(query.names.driver, tmp_path)
        assert offsets.read([query.topic]) == {query.topic: (number - 1, "one" if number == 2 else "2")}
        offsets.commit(query.topic, number, str(number))
    assert offsets.read([query.topic]) == {query.topic: (3, "3")}
    offsets.close()


def test_what_the_query_wrote_elsewhere_is_found_while_a_broker_is_silent(
    brokers: Brokers, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its groups are not overlooked: they are listed by their next coordinator, when the brokers have noticed."""
    monkeypatch.setattr(group_admin, "REQUEST_TIMEOUT_S", 3.0)
    for task in range(0, 9, 2):
        query.write(0, ["a"], task=task)
    node = brokers.coordinator(query.names.task(8))
    admin = group_admin.GroupAdmin(query.settings().requests)
    assert [name for name in admin.groups(query.names.query) if not name.endswith("-open")] == [
        query.names.task(task) for task in range(0, 9, 2)
    ]
    node.pause()
    try:
        with pytest.raises(BrokerUnavailable):
            admin.groups(query.names.query)
        tokens = Tokens(query.settings().requests, query.names._replace(prefix="another"), query.topic)
        (place,) = tokens.elsewhere()
        assert sorted(place.tasks) == [0, 2, 4, 6, 8]
        tokens.close()
    finally:
        node.resume()


def test_the_coordinator_of_a_token_and_of_a_transaction_dies_between_and_within_tasks(brokers: Brokers, query: Query) -> None:
    query.write(0, ["a"])
    query.finish(0, 1, 1)
    node = brokers.coordinator(query.names.task(0))

    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"value": ["b"]})
        node.kill()
        yield pa.RecordBatch.from_pydict({"value": ["c"]})

    written = query.write_all(1, rows())
    assert written.written == 2
    assert query.write(1, ["b", "c"], run=LATER_RUN).skipped == 2
    query.finish(1, 1, 2, run=LATER_RUN)
    node.start()
    assert query.write(2, ["d"], run=LATER_RUN).written == 1
    assert read_committed(brokers, query.topic) == ["a", "b", "c", "d"]
