"""The settings with which a task reads. The driver makes them and sends them to the executors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 10_000
"""The most rows of a record batch."""

BATCH_BYTES = 7 * 1024 * 1024 // 8
"""The most bytes of keys, values and headers in a record batch, unless a single record is larger.

With its other columns such a batch has about 1 MiB, so the JVM finds most of it in the processor's caches, even when it shares
the core with this process. glibc's allocator and Arrow's allocator in the JVM reuse the same memory. The batch's 32-bit offsets
cannot overflow, because only a single record can make a larger batch, and Kafka has no records of 2 GiB.
"""

BUFFER_BYTES = 64 * 1024 * 1024
"""The default of `FetchSettings.buffer_bytes`."""


@dataclass(frozen=True)
class FetchSettings:
    """The settings for reading ranges. They are pickled with the reader, and their `repr` shows no client setting.

    Args:
        client: All settings of the task's consumer, by librdkafka's names and with secrets. `options.client_settings` merges them
            on the driver. A task does not change them, except that a task with several partitions fetches less ahead and waits
            less.
        schema: The columns of the batches (arrow_schema.py). Nothing else of a record is copied.
        fail_on_data_loss: Whether lost records are an error. If not, they are a warning, and the rest is read.
        poll_timeout_ms: The longest wait for the next record, or for any progress, in ms.
        buffer_bytes: The most bytes of records in memory at a time, unless a single record is larger.
    """

    client: Mapping[str, str] = field(repr=False)
    schema: pa.Schema
    fail_on_data_loss: bool = True
    poll_timeout_ms: int = 120_000
    buffer_bytes: int = BUFFER_BYTES

    @property
    def batch_bytes(self) -> int:
        """The most bytes of a batch, an eighth of the buffer at most: its messages and Spark's previous batch need room, too."""
        return min(BATCH_BYTES, self.buffer_bytes // 8)
