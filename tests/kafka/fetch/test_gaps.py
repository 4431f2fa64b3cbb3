"""Offsets without a record are no loss: compaction, transaction markers, aborted records."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer

from devtools.broker import Cluster
from spark_groupsource.fetch.contract import FetchRange, Reader
from tests.conftest import MakeTopic
from tests.support.fetching import MakeSettings, offsets, warnings_of

COMPACTED_AWAY = {0, 1, 5, 9}


def test_what_compaction_removed_is_no_loss(
    read: Reader, using: MakeSettings, compacted: str, caplog: pytest.LogCaptureFixture
) -> None:
    for partition in range(2):
        for start, end in [(0, 15), (0, 1), (0, 2), (1, 3), (0, 10), (4, 6), (5, 6), (5, 9), (5, 10), (9, 10), (8, 12), (14, 15)]:
            began = time.monotonic()
            found = offsets(read, FetchRange(compacted, partition, start, end), using())
            assert found == [offset for offset in range(start, end) if offset not in COMPACTED_AWAY], (partition, start, end)
            assert time.monotonic() - began < 2
    assert not warnings_of(caplog)


@pytest.fixture
def transactions(topic: MakeTopic, cluster: Cluster) -> str:
    """0-2 committed, 3 its marker, 4-6 aborted, 7 its marker, 8-9 committed, 10 its marker, 11-13 aborted, 14 its marker."""
    name = topic()
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(30)
    for count, commit in ((3, True), (3, False), (2, True), (3, False)):
        producer.begin_transaction()
        for number in range(count):
            producer.produce(name, b"%d" % number, partition=0)
        assert producer.flush(30) == 0
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    return name


COMMITTED = [0, 1, 2, 8, 9]

NO_MARKERS = [0, 1, 2, 4, 5, 6, 8, 9, 11, 12, 13]

RANGES = [
    (0, 15),
    (0, 3),
    (0, 4),
    (2, 4),
    (3, 4),
    (3, 5),
    (4, 8),
    (4, 7),
    (5, 6),
    (3, 8),
    (7, 11),
    (6, 9),
    (10, 15),
    (11, 15),
    (14, 15),
]


@pytest.mark.parametrize(
    ("isolation", "visible"), [("read_committed", COMMITTED), ("read_uncommitted", NO_MARKERS), (None, NO_MARKERS)]
)
def test_transactions(isolation: str | None, visible: list[int], read: Reader, using: MakeSettings, transactions: str) -> None:
    how = using({} if isolation is None else {"isolation.level": isolation})
    for start, end in RANGES:
        began = time.monotonic()
        assert offsets(read, FetchRange(transactions, 0, start, end), how) == [each for each in visible if start <= each < end]
        assert time.monotonic() - began < 2, (start, end)
