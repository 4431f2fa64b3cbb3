"""The native producer counts rows in C as the pure one does in Python: a replay may run on another executor."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_groupsource.sink.native_producer import NativeProducer
from spark_groupsource.sink.token import Written
from tests.support.counted_rows import HEADERS, NOWHERE, counted
from tests.support.fetching import NATIVE

pytestmark = NATIVE

TABLE = {
    "key": pa.array([b"a", None, b"", b"abcdefghi"], pa.binary()),
    "value": pa.array(["1", "", None, "äöü" * 7], pa.string()),
    "topic": pa.array(["x", "y", "x", "x"], pa.string()),
    "partition": pa.array([0, None, 2, None], pa.int32()),
    "headers": pa.array([None, [], [{"key": "h", "value": b"1"}, {"key": "", "value": None}], None], HEADERS),
}


@pytest.mark.parametrize("names", [["value"], ["key", "value"], list(TABLE)])
@pytest.mark.parametrize("wide", [False, True])
def test_the_checksum_is_the_same_in_c_and_in_python(names: list[str], wide: bool) -> None:
    batch = pa.RecordBatch.from_arrays([TABLE[name] for name in names], names=names)
    if wide:
        batch = batch.set_column(names.index("value"), "value", batch["value"].cast(pa.large_string()))
    assert counted(batch) == counted(batch, native=False) != Written(4, 0)


def test_the_checksum_is_the_same_for_every_size() -> None:
    for size in range(140):
        batch = pa.RecordBatch.from_pydict({"value": [bytes(range(size))]})
        assert counted(batch) == counted(batch, native=False)


def test_the_checksum_of_a_slice_is_that_of_its_rows() -> None:
    batch = pa.RecordBatch.from_pydict(TABLE)
    assert counted(batch.slice(1, 3)) == counted(batch.slice(1, 3), native=False)
    parts = [counted(batch.slice(row, 1)).checksum for row in range(4)]
    assert sum(parts) % 2**64 == counted(batch).checksum


def test_without_rows_nothing_is_counted_and_no_topic_is_used() -> None:
    producer = NativeProducer(NOWHERE, "t")
    producer.count(pa.RecordBatch.from_pydict({"value": pa.array([], pa.binary())}))
    assert (producer.written, producer.topics) == (Written(0, 0), frozenset())
    producer.count(pa.RecordBatch.from_pydict({"value": [b"a"]}))
    assert (producer.written.rows, producer.topics) == (1, frozenset({"t"}))
    producer.close()
