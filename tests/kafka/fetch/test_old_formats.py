"""Records of the message formats 0 and 1, which brokers keep in their logs and no client writes any more."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pytest

from devtools.broker import Cluster
from spark_groupsource.fetch.contract import FetchRange, Reader
from tests.support.fetching import MakeSettings, rows
from tests.support.written_logs import APPENDED_MS, OLD_RECORDS, broker_with_old_records


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker whose topic `old` has these records."""
    with broker_with_old_records(tmp_path_factory.mktemp("old")) as cluster:
        yield cluster


def test_every_record_is_read_and_one_without_a_time_has_that_of_java(read: Reader, using: MakeSettings, old: Cluster) -> None:
    found = rows(read, FetchRange("old", 0, 0, len(OLD_RECORDS)), using({"bootstrap.servers": old.bootstrap_servers}))

    assert [row["offset"] for row in found] == list(range(len(OLD_RECORDS)))
    assert [(row["key"], row["value"]) for row in found] == [(record.key, record.value) for record in OLD_RECORDS]
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    times = [((row["timestamp"] - epoch) // timedelta(milliseconds=1), row["timestampType"]) for row in found]
    of_broker = [(APPENDED_MS, 1)] * 2
    assert times == [(-1, -1)] * 11 + [(record.time_ms, 0) for record in OLD_RECORDS[11:22]] + of_broker + [(-1, -1)]
