"""The executors' side: a range of one partition in, Arrow record batches out.

This module is the contract. A reader is a function of the type `Reader`; whatever it is made of, it holds to what
`fetch` says, and the tests in tests/kafka/test_fetch.py run over all of them. Nothing here imports pyspark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

# A batch has at most so many rows, and so many bytes of keys, values and headers. With its other columns it has about 2 MiB:
# Arrow's memory pools, here and in the JVM, then use the same memory again, where a larger batch has its pages made anew by
# the system. Its 32-bit offsets are far from overflow: only one record that is larger by itself makes a larger batch, and no
# record of Kafka's has 2 GiB.
BATCH_ROWS = 10_000
BATCH_BYTES = 7 * 1024 * 1024 // 4
BUFFER_BYTES = 64 * 1024 * 1024


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


@dataclass(frozen=True)
class FetchSettings:
    """How to read: it travels to the executors inside the pickled reader. Its repr shows no client setting.

    Args:
        client: librdkafka settings, with `bootstrap.servers`, the user's own `group.id`, and the secrets.
        include_headers: whether the batches have the column `headers`.
        fail_on_data_loss: True: records that are gone are an error; False: a warning, and the rest is read.
        poll_timeout_ms: the longest wait for the next record, or for any progress, in ms.
        buffer_bytes: at most so many bytes of records are in memory at a time, but for one record that is larger.
    """

    client: Mapping[str, str] = field(repr=False)
    include_headers: bool = False
    fail_on_data_loss: bool = True
    poll_timeout_ms: int = 120_000
    buffer_bytes: int = BUFFER_BYTES

    @property
    def batch_bytes(self) -> int:
        """The most that a batch has: it is there as messages, as Arrow, and the one before it in Spark's hands."""
        return min(BATCH_BYTES, self.buffer_bytes // 8)

    @property
    def prefetch_kbytes(self) -> int:
        """How far librdkafka may fetch ahead; it goes over by one response. What it fetches beyond a range's end is lost."""
        return self.buffer_bytes // 4 // 1024

    @property
    def response_bytes(self) -> int:
        """The most that one response has, compressed as it is in the log, but for a single batch of a producer's.

        librdkafka unpacks all of it at once: with 1 MiB of well compressed small records a worker grew to hundreds of MB.
        """
        return self.buffer_bytes // 256


Reader = Callable[[FetchRange, FetchSettings], "Iterator[pa.RecordBatch]"]


def fetch(range: FetchRange, settings: FetchSettings) -> Iterator[pa.RecordBatch]:  # noqa: A002
    """Read exactly the records of `[start, end)`, in the order of their offsets.

    Offsets without a record (compacted away, transaction markers, aborted under `read_committed`) are passed over: they
    are no loss. Yields batches with `schema.arrow_schema`, none of them empty, so an empty range yields nothing.

    Raises DataLossError when records of the range are gone (deleted, cut off, or the topic or partition with them) and
    `fail_on_data_loss` is set; AuthenticationFailed, NotAuthorized or BrokerUnavailable when that is the reason why
    nothing can be read; BrokerError for any other, a wait of more than `poll_timeout_ms` among them; OptionError when
    librdkafka refuses the client settings. No text of them holds a secret.
    """
    from spark_groupsource.fetch.choice import reader_for

    return reader_for(settings)(range, settings)
