"""Rows that can be written a second time."""

from __future__ import annotations

import pyarrow as pa

from spark_groupsource.sink.remembered import Remembered


def test_rows_are_given_again_from_the_first_one_until_there_are_too_many() -> None:
    batches = [pa.RecordBatch.from_pydict({"value": [text]}) for text in ("a", "b", "c")]
    rows = Remembered(iter(batches), 2 * batches[0].nbytes)
    begun = rows.from_the_first()
    assert [next(begun), next(begun)] == batches[:2]
    assert rows.whole
    again = rows.from_the_first()
    assert list(again) == batches
    assert not rows.whole, "of the third one nothing is remembered"
