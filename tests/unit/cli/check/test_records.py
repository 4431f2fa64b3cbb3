"""Which reader a query would use, and which records are tried."""

from __future__ import annotations

import pytest

from spark_groupsource.cli.check import records
from spark_groupsource.cli.check.findings import Level
from spark_groupsource.cli.check.records import fetch_records, last_offsets, name_reader
from spark_groupsource.fetch import native_consumer, pure_consumer
from spark_groupsource.fetch.choice import InstalledReader
from spark_groupsource.fetch.contract import FetchRange
from spark_groupsource.handoff.losses import LogState
from tests.support.check_sources import ONE, ZERO, only, source


def test_the_reader_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "installed_reader", lambda: InstalledReader(native_consumer.read, "native"))
    native = only(name_reader(source()))
    reader = InstalledReader(pure_consumer.read, "pure Python", "no compiler", "install one")
    monkeypatch.setattr(records, "installed_reader", lambda: reader)
    pure = only(name_reader(source()))
    assert (native.level, pure.level) == (Level.OK, Level.WARNING)
    assert "native reader, with librdkafka 2." in native.text
    assert "cannot be used: no compiler." in pure.text
    assert "To use the native reader: install one." in pure.text


@pytest.mark.parametrize("name", ["native", "pure Python"])
def test_the_reader_is_named_that_a_query_would_use(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(records, "installed_reader", lambda: InstalledReader(pure_consumer.read, name))
    empty = source()
    empty.logs = LogState({}, {ZERO: 5}, {ZERO: 5})
    assert f"the {name} reader" in only(fetch_records(empty)).text


def test_nothing_is_fetched_of_logs_that_nobody_has_described() -> None:
    assert not list(fetch_records(source()))


def test_the_last_offsets_of_a_partition_are_tried() -> None:
    assert last_offsets(LogState({}, {ZERO: 7, ONE: 40}, {ZERO: 7, ONE: 1000})) == FetchRange(*ONE, 900, 1000)
    assert last_offsets(LogState({}, {ZERO: 7, ONE: 40}, {ZERO: 9})) == FetchRange(*ZERO, 7, 9)
    assert last_offsets(LogState({}, {ZERO: 7}, {})) is None
