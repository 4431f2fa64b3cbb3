"""The account of every record: what the outputs have is compared with what was produced.

A long run writes millions of rows in hundreds of thousands of files. So each file is counted as soon as it is in the sink's
log, and then deleted. One byte is kept for each record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from devtools.demo.count import committed_files
from tests.harness.evidence import Row

MOST_NAMED = 5
"""Of many records with one fault so many are named."""
MOST_COUNTED = 255


@dataclass(frozen=True)
class Count:
    """What became of the records. `named` are some of those that are wrong."""

    records: int
    lost: int
    doubled: int
    changed: int
    unknown: int
    named: tuple[str, ...] = ()

    @property
    def exactly_once(self) -> bool:
        return not (self.lost or self.doubled or self.changed or self.unknown)


class Account:
    """How often each offset of each partition was read. The producer counts from 0, so `number` is `offset`."""

    def __init__(self) -> None:
        self._times: dict[int, bytearray] = {}
        self._changed: list[str] = []
        self.rows: Counter[str] = Counter()
        """By stream."""

    def add(self, stream: str, rows: Iterable[Row]) -> None:
        """Count rows that the stream's sink has committed."""
        for row in rows:
            self.rows[stream] += 1
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
            lost += [f"{partition}:{offset}" for offset in _where(times[:there], 0)]
            unknown += [f"{partition}:{offset + there}" for offset, read in enumerate(times[there:]) if read]
            if times.translate(None, b"\0\1"):
                doubled += [f"{partition}:{offset}" for offset, read in enumerate(times) if read > 1]
        found = {"lost": lost, "doubled": doubled, "changed": self._changed, "unknown": unknown}
        named = tuple(f"{kind}: {', '.join(records[:MOST_NAMED])}" for kind, records in found.items() if records)
        return Count(sum(produced.values()), len(lost), len(doubled), len(self._changed), len(unknown), named)


def _where(times: bytearray, value: int) -> list[int]:
    found = []
    place = times.find(value)
    while place >= 0:
        found.append(place)
        place = times.find(value, place + 1)
    return found


class Output:
    """The folder of one file sink, read as it grows."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._counted: set[Path] = set()

    def new_rows(self) -> list[Row]:
        """Return the rows of the files that the sink has committed since the last call, and delete the files."""
        try:
            committed = committed_files(self._folder)
        except FileNotFoundError:  # the sink has just merged its log: the next call finds them
            return []
        found: list[Row] = []
        for file in committed:
            if file not in self._counted:
                table = pq.read_table(file, columns=list(Row._fields), partitioning=None)
                columns = (table.column(name).to_pylist() for name in Row._fields)
                found += (Row(*values) for values in zip(*columns, strict=True))
                file.unlink()
        # Only what the log still has can come up again.
        self._counted = set(committed)
        return found
