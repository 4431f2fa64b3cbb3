"""The rows of a task, which Spark gives once, for a task that may have to write them again from the first one on."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa


class Remembered:
    """An iterator that can be begun again, until it has given more than so many bytes.

    Partitions that were added before the task began show at its first rows.
    """

    def __init__(self, rows: Iterator[pa.RecordBatch], most_bytes: int) -> None:
        """Begin with nothing remembered."""
        self._rows = rows
        self._left = most_bytes
        self._kept: list[pa.RecordBatch] | None = []

    @property
    def whole(self) -> bool:
        """Whether it can be begun again."""
        return self._kept is not None

    def from_the_first(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows. An iterator that was begun earlier must not be used any more."""
        yield from tuple(self._kept or ())
        for each in self._rows:
            self._left -= each.nbytes
            if self._left < 0:
                self._kept = None
            elif self._kept is not None:
                self._kept.append(each)
            yield each
