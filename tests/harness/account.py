"""Accounts for every record: compares the outputs with what was produced.

A long run writes millions of rows, so only one byte is kept for each record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from tests.harness.evidence import Row

MOST_NAMED = 5
"""Of many findings of one kind so many are named."""
MOST_COUNTED = 255


@dataclass(frozen=True)
class Count:
    """The number of records, and the wrong ones."""

    records: int = 0
    lost: Sequence[str] = ()
    doubled: Sequence[str] = ()
    changed: Sequence[str] = ()
    unknown: Sequence[str] = ()

    @property
    def wrong(self) -> dict[str, Sequence[str]]:
        return {"lost": self.lost, "doubled": self.doubled, "changed": self.changed, "unknown": self.unknown}


class Account:
    """How often each offset in each partition was read. The producer counts from 0, so `number` is `offset`."""

    def __init__(self) -> None:
        self._times: dict[int, bytearray] = {}
        self._changed: list[str] = []

    def add(self, stream: str, rows: Iterable[Row]) -> None:
        """Count rows that the stream's sink has committed."""
        for row in rows:
            if row.number != row.offset:
                self._changed.append(f"{row.partition}:{row.offset} has {row.number} in {stream}")
            times = self._times.setdefault(row.partition, bytearray())
            if row.offset >= len(times):
                times.extend(bytes(row.offset + 1 - len(times) + 4096))
            times[row.offset] = min(times[row.offset] + 1, MOST_COUNTED)

    def count(self, produced: Mapping[int, int]) -> Count:
        """Compare what was read with the number of records in each partition."""
        lost, doubled, unknown = [], [], []
        for partition in sorted(produced.keys() | self._times.keys()):
            there = produced.get(partition, 0)
            times = self._times.get(partition, bytearray()).ljust(there, b"\0")
            lost += [f"{partition}:{offset}" for offset, read in enumerate(times[:there]) if not read]
            unknown += [f"{partition}:{offset}" for offset, read in enumerate(times[there:], there) if read]
            doubled += [f"{partition}:{offset}" for offset, read in enumerate(times) if read > 1]
        return Count(sum(produced.values()), lost, doubled, self._changed, unknown)


def rows_in(file: Path) -> list[Row]:
    """Return the rows of a file that a sink has committed."""
    table = pq.read_table(file, columns=list(Row._fields), partitioning=None)
    columns = (table.column(name).to_pylist() for name in Row._fields)
    return [Row(*values) for values in zip(*columns, strict=True)]
