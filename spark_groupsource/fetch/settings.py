"""The settings for a task that reads. The driver creates them and sends them to the executors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 10_000
"""The maximum number of rows in a record batch."""

BATCH_BYTES = 7 * 1024 * 1024 // 8
"""The maximum size of the keys, values and headers in a record batch, in bytes, unless a single record is larger.

Including its other columns, such a batch takes about 1 MiB, so the JVM finds most of it in the CPU caches, even when it shares
the core with this process. glibc's allocator and Arrow's allocator in the JVM reuse the same memory. The batch's 32-bit offsets
cannot overflow, because only a single record can make a batch larger, and Kafka has no 2 GiB records.
"""

BUFFER_BYTES = 64 * 1024 * 1024
"""The default for `FetchSettings.buffer_bytes`."""


@dataclass(frozen=True)
class FetchSettings:
    """How to read ranges. Pickled together with the reader. The `repr` shows no client settings.

    Args:
        client: All settings of the task's consumer, under librdkafka's names and including secrets. `options.client_settings`
            merges them on the driver. Tasks use them unchanged, except that a task with several partitions prefetches less and
            waits less.
        schema: The columns of the batches (arrow_schema.py). Nothing else is copied from a record.
        fail_on_data_loss: Whether lost records are an error. If not, the task logs a warning and reads the rest.
        poll_timeout_ms: The maximum wait for the next record, or for any progress, in ms.
        buffer_bytes: The maximum number of record bytes in memory at a time, unless a single record is larger.
    """

    client: Mapping[str, str] = field(repr=False)
    schema: pa.Schema
    fail_on_data_loss: bool = True
    poll_timeout_ms: int = 120_000
    buffer_bytes: int = BUFFER_BYTES

    @property
    def batch_bytes(self) -> int:
        """The maximum batch size, at most an eighth of the buffer, which also holds the messages and Spark's previous batch."""
        return min(BATCH_BYTES, self.buffer_bytes // 8)
