"""Rows that can be written a second time."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

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


def test_rows_are_still_remembered_if_the_caller_needs_them_when_they_become_too_many() -> None:
    batches = [pa.RecordBatch.from_pydict({"value": [text]}) for text in ("a", "b", "c")]
    rows = Remembered(iter(batches), batches[0].nbytes)

    def refused() -> None:
        raise ValueError("fenced")

    with pytest.raises(ValueError, match="fenced"):
        list(rows.from_the_first(refused))
    assert rows.whole
    assert list(rows.from_the_first()) == batches


def test_rows_that_were_cut_off_are_not_given_again_as_if_they_were_all() -> None:
    def cut() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"value": ["a"]})
        raise ValueError("cut off")

    rows = Remembered(cut(), 1_000_000)
    with pytest.raises(ValueError, match="cut off"):
        list(rows.from_the_first())
    assert not rows.whole
