"""The contract of readers: what holds for each of them.

A reader is a function of the type `Reader` that does what `fetch` says. The tests in tests/kafka/fetch/ run over all
readers. Nothing here imports pyspark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_groupsource.fetch.settings import FetchSettings

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class FetchRange:
    """What one Spark task reads. It holds no secret and can be pickled.

    Args:
        topic: The topic's name.
        partition: The partition's number.
        start: The first offset, inclusive.
        end: The last offset, exclusive. If it equals the start, the range is empty.

    Raises:
        ValueError: The range begins below 0, or ends before it begins.
    """

    topic: str
    partition: int
    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"{self.topic}-{self.partition}: [{self.start}, {self.end}) is not a range of offsets")

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


Reader = Callable[[FetchRange, FetchSettings], "Iterator[pa.RecordBatch]"]
"""A function that reads a range as `fetch` says."""


def fetch(range: FetchRange, settings: FetchSettings) -> Iterator[pa.RecordBatch]:  # noqa: A002
    """Read exactly the records of `[start, end)`, in the order of their offsets.

    Offsets without a record are skipped and are no loss: compaction, transaction markers, and aborted records under
    `read_committed` leave such gaps.

    A timestamp beyond Spark's range (some 292,000 years before or after 1970) becomes the nearest ms within it. A producer may
    write any 64-bit number, and one such record must not stop a query permanently. Spark's own source fails here:
    its `millisToMicros` refuses to overflow.

    Args:
        range: What to read.
        settings: How to read.

    Yields:
        Batches with the schema of the settings. None of them is empty, so an empty range yields nothing.

    Raises:
        DataLossError: `fail_on_data_loss` is set and records of the range are lost. They were deleted, or cut off, or their
            topic or partition was deleted.
        AuthenticationFailed: The brokers refuse the credentials.
        NotAuthorized: An ACL is missing.
        BrokerUnavailable: No broker answers within `poll_timeout_ms`.
        BrokerError: The range cannot be read for another reason. One of them is no progress within `poll_timeout_ms`.
        OptionError: librdkafka refuses the client settings.
        SchemaError: A record has a null in a column that the schema says is not nullable.

    No text of an error shows a secret.
    """
    from spark_groupsource.fetch.choice import reader

    return reader()(range, settings)
