"""Defines what every reader takes and returns.

A reader is a function of type `Reader` that does what the docstring of `choice.fetch` promises. The tests in tests/kafka/fetch/
run with every reader. Nothing here imports pyspark.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_groupsource.fetch.settings import FetchSettings

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class FetchRange:
    """The offsets that a Spark task reads from one partition. Contains no secret, and can be pickled.

    Args:
        topic: The topic's name.
        partition: The partition's number.
        start: The first offset, inclusive.
        end: The end of the range, exclusive. If it equals the start, the range is empty.
        epoch: The log's leader epoch when the range was planned, so no record in the range has a later epoch. `None` if it is
            unknown.

    Raises:
        ValueError: The range starts below 0, or ends before it starts.
    """

    topic: str
    partition: int
    start: int
    end: int
    epoch: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"{self.topic}-{self.partition}: [{self.start}, {self.end}) is not a range of offsets")

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


Records = Generator["pa.RecordBatch", None, bool]
"""A range's records. The generator returns whether the range ended early because its log was truncated."""

Reader = Callable[[FetchRange, FetchSettings], Records]
"""Reads a range as described in `choice.fetch`."""

SharedReader = Callable[[Sequence[FetchRange], FetchSettings], "Iterator[pa.RecordBatch]"]
"""Reads several ranges as described in `choice.fetch_shared`."""
