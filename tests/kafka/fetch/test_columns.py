"""The columns that the settings ask for, and no others: what both readers make of a schema."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from devtools.broker import Cluster
from spark_groupsource.errors import SchemaError
from spark_groupsource.fetch.arrow_schema import arrow_schema, as_type
from spark_groupsource.fetch.contract import BATCH_ROWS, FetchRange, Reader
from tests.conftest import MakeTopic
from tests.kafka.conftest import Filled
from tests.support.fetching import MakeSettings
from tests.support.producing import IN_ORDER

EVERY = {field.name: field for field in arrow_schema(include_headers=True)}
BYTES = [b"text", b"\xff\xfe\x80abc", b"", None, "\u00e9\U0001f600".encode(), b"\xed\xa0\x80", b"half \xc3"]
"""Of these some are no UTF-8."""


@pytest.fixture
def mixed(topic: MakeTopic, cluster: Cluster) -> str:
    """One record for each of BYTES as key and the next one as value, with and without headers."""
    name = topic()
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, **IN_ORDER})
    for number, (key, value) in enumerate(zip(BYTES, BYTES[1:] + BYTES[:1], strict=True)):
        producer.produce(name, value, key, 0, headers=[("h", value)] if number % 2 else [], timestamp=1_700_000_000_000 + number)
    assert producer.flush(10) == 0
    return name


def columns_of(batches: list[pa.RecordBatch]) -> dict[str, list[Any]]:
    """Each column, with texts as bytes: they need not be UTF-8."""
    table = pa.Table.from_batches(batches).combine_chunks()
    found = {}
    for name, column in zip(table.schema.names, table.columns, strict=True):
        only = column.chunk(0)
        found[name] = (as_type(only, pa.binary()) if only.type == pa.string() and name != "topic" else only).to_pylist()
    return found


def test_each_pair_of_columns_in_both_orders_is_the_same_as_among_all(read: Reader, using: MakeSettings, mixed: str) -> None:
    what = FetchRange(mixed, 0, 0, len(BYTES))
    everything = columns_of(list(read(what, using(include_headers=True))))

    for names in [*itertools.permutations(EVERY, 2), *((name,) for name in EVERY)]:
        schema = pa.schema([EVERY[name] for name in names])
        batches = list(read(what, using(schema=schema)))
        assert all(batch.schema.equals(schema, check_metadata=True) for batch in batches)
        assert columns_of(batches) == {name: everything[name] for name in names}


def test_a_text_has_the_bytes_of_the_record_whatever_they_are(read: Reader, using: MakeSettings, mixed: str) -> None:
    schema = pa.schema([("offset", pa.int64()), ("VALUE", pa.string()), ("Key", pa.string())])

    batches = list(read(FetchRange(mixed, 0, 0, len(BYTES)), using(schema=schema)))

    assert columns_of(batches) == {"offset": list(range(len(BYTES))), "VALUE": BYTES[1:] + BYTES[:1], "Key": BYTES}


@pytest.mark.parametrize(
    ("strict", "column"),
    [
        (EVERY["value"].with_nullable(False), "value"),
        (EVERY["key"].with_type(pa.string()).with_nullable(False), "key"),
        (EVERY["headers"].with_nullable(False), "headers"),
    ],
    ids=["value", "key", "headers"],
)
def test_a_null_that_the_schema_does_not_allow_is_an_error(
    strict: pa.Field, column: str, read: Reader, using: MakeSettings, mixed: str
) -> None:
    how = using(schema=pa.schema([EVERY["offset"].with_nullable(False), strict]))

    with pytest.raises(SchemaError, match=rf"{mixed}-0 \[0, 7\): a record before offset 7 has no {column}, .* NOT NULL"):
        list(read(FetchRange(mixed, 0, 0, len(BYTES)), how))

    (batch,) = read(FetchRange(mixed, 0, 1, 2), how)
    assert batch.column("offset").to_pylist() == [1]


@pytest.mark.parametrize("size", [10, 50_000], ids=["rows", "bytes"])
def test_batches_are_bounded_by_what_is_in_memory_though_only_offsets_are_asked_for(
    size: int, read: Reader, using: MakeSettings, filled: Filled
) -> None:
    how = using(schema=pa.schema([EVERY["offset"]]))
    most = min(BATCH_ROWS, how.batch_bytes // size)
    count = most * 6 // 5
    name = filled(count=count, value=b"v" * size)

    batches = list(read(FetchRange(name, 0, 0, count), how))

    assert [offset for batch in batches for offset in batch.column("offset").to_pylist()] == list(range(count))
    assert [batch.num_rows for batch in batches] == [most, count - most]
