"""The checksum of rows is the same in C and in Python, and another one for other rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from spark_groupsource.sink.columns import ANY_PARTITION
from spark_groupsource.sink.pure_producer import row_hash
from tests.support.counted_rows import counted


class TestTheChecksum:
    @pytest.mark.parametrize(
        ("row", "expected"),
        [
            (("t", ANY_PARTITION, None, None), 0x51CCE87EB670F35A),
            (("t", ANY_PARTITION, None, b""), 0x29AE5B2C210E3EF6),
            (("t", 3, b"k", bytes(range(7))), 0x8936B361500FDDD7),
            (("t", ANY_PARTITION, None, bytes(range(32))), 0x46817CAE90971F65),
            (("t", ANY_PARTITION, b"key", bytes(range(33))), 0x17AA99098ACD75ED),
            (("topic", 0, None, bytes(range(100)), [("h", b"1"), ("", None)]), 0x956CA94711A9B39F),
        ],
    )
    def test_is_the_same_in_every_version(self, row: Any, expected: int) -> None:
        """Another checksum would end each micro-batch that is half written while a query is upgraded."""
        assert row_hash(*row) == expected

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ({"key": [b"a"], "value": [b"b"]}, {"key": [b"b"], "value": [b"a"]}),
            ({"value": [b""]}, {"value": pa.array([None], pa.binary())}),
            ({"value": [b"a"], "topic": ["x"]}, {"value": [b"a"], "topic": ["y"]}),
            ({"value": [b"a"], "partition": pa.array([0], pa.int32())}, {"value": [b"a"]}),
        ],
    )
    def test_of_other_rows_is_another(self, one: Mapping[str, object], other: Mapping[str, object]) -> None:
        assert counted(pa.RecordBatch.from_pydict(dict(one))) != counted(pa.RecordBatch.from_pydict(dict(other)))

    @pytest.mark.parametrize("before", [b"", bytes(32)])
    def test_of_rows_that_swap_values_with_another_top_bit_in_the_last_word_is_another(self, before: bytes) -> None:
        """A swap is not seen if the bit changes the hashes of both rows by the same number."""
        one, other = before + b"1234567\x01", before + b"1234567\x81"
        keys = [number.to_bytes(4, "big") for number in range(10_000)]
        changes = {(row_hash("t", -1, key, one) - row_hash("t", -1, key, other)) % 2**64 for key in keys}
        assert len(changes) == len(keys)
