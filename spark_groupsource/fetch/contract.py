"""The executors' side: a range of one partition in, Arrow record batches out.

This module is the contract. A reader is a function of the type `Reader`; whatever it is made of, it holds to what
`fetch` says, and the tests in tests/kafka/test_fetch.py run over all of them. Nothing here imports pyspark.
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
    """What one Spark task reads. Nothing secret in it; it pickles.

    Args:
        topic: the topic's name.
        partition: the partition's number.
        start: the first offset, inclusive.
        end: the last offset, exclusive; an end at the start is an empty range.

    Raises ValueError for a range that begins below 0 or ends before it begins.
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


def fetch(range: FetchRange, settings: FetchSettings) -> Iterator[pa.RecordBatch]:  # noqa: A002
    """Read exactly the records of `[start, end)`, in the order of their offsets.

    Offsets without a record (compacted away, transaction markers, aborted under `read_committed`) are passed over: they
    are no loss. Yields batches with `schema.arrow_schema`, none of them empty, so an empty range yields nothing.

    A timestamp beyond Spark's range (some 292,000 years before or after 1970) becomes the nearest ms within it. A producer may
    write any 64-bit number, and one such record must not stop a query permanently. Spark's own source fails here.

    Raises DataLossError when records of the range are gone (deleted, cut off, or the topic or partition with them) and
    `fail_on_data_loss` is set; AuthenticationFailed, NotAuthorized or BrokerUnavailable when that is the reason why
    nothing can be read; BrokerError for any other, a wait of more than `poll_timeout_ms` among them; OptionError when
    librdkafka refuses the client settings. No text of them holds a secret.
    """
    from spark_groupsource.fetch.choice import reader_for

    return reader_for(settings)(range, settings)
