"""The rows of a task, which Spark gives once, for a task that may have to write them again from the first one on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa


class Remembered:
    """An iterator that can be begun again, until it has given more than so many bytes.

    Partitions that were added before the task began show at its first rows, and so does a kept producer that is of no use any
    more.
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

    def from_the_first(self, before_forgetting: Callable[[], None] = lambda: None) -> Iterator[pa.RecordBatch]:
        """Yield all rows. An iterator that was begun earlier must not be used any more.

        Args:
            before_forgetting: Called when the rows become too many. If it raises an error, they are still remembered.
        """
        yield from tuple(self._kept or ())
        while (each := self._next()) is not None:
            if self._kept is not None:
                self._kept.append(each)
                self._left -= each.nbytes
                if self._left < 0:
                    before_forgetting()
                    self._kept = None
            yield each

    def _next(self) -> pa.RecordBatch | None:
        try:
            return next(self._rows, None)
        except BaseException:
            # The rows were cut off. Begun again, they would come to an end, as if there were no more.
            self._kept = None
            raise
