"""What the sink's writers make of Spark's rows."""

from __future__ import annotations

from spark_groupsource.spark.sink_writers import _chunks


def test_rows_of_spark_4_0_become_record_batches_of_so_many_rows_or_so_many_bytes() -> None:
    small = [("k", b"v")] * 25_000
    assert [len(chunk) for chunk in _chunks(iter(small))] == [10_000, 10_000, 5_000]
    large = [(None, bytearray(6 * 1024 * 1024))] * 7
    assert [len(chunk) for chunk in _chunks(iter(large))] == [3, 3, 1]
    assert list(_chunks(iter([]))) == []
