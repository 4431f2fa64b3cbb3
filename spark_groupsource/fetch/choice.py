"""Chooses the reader: the native one or, if this process cannot use it, the pure one, with a warning."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from spark_groupsource.fetch import native_consumer as native
from spark_groupsource.fetch import native_shared
from spark_groupsource.fetch import pure_consumer as pure
from spark_groupsource.fetch.contract import FetchRange, FetchSettings, Reader, Records
from spark_groupsource.fetch.shared import read_one_by_one
from spark_groupsource.native.libraries import NativeUnavailable, why_unavailable

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)


def reader() -> Reader:
    """Return the fastest reader that this process can use, and warn once per process if it is not the native one."""
    unavailable = why_unavailable()
    if unavailable is None:
        return native.read
    _warn(unavailable)
    return pure.read


@functools.cache
def warn_of_pure_python(unavailable: NativeUnavailable) -> None:
    """Warn, once per process, that the pure Python producer writes the rows."""
    log.warning(
        "Rows are written by the pure Python producer, because the native one cannot be used: %s. The rows are the same, but "
        "writing is several times slower. To use the native producer: %s.",
        unavailable,
        unavailable.advice,
    )


def fetch(range: FetchRange, settings: FetchSettings) -> Records:  # noqa: A002
    """Read exactly the records in `[start, end)`, in offset order.

    Offsets without a record are skipped, and do not count as lost, because compaction, transaction markers and, under
    `read_committed`, aborted records leave such gaps.

    A timestamp outside Spark's range (about 292,000 years before or after 1970) becomes the nearest millisecond within it. A
    producer may write any 64-bit number, and one such record must not stop a query permanently. Spark's own source fails in this
    case, because its `millisToMicros` refuses to overflow.

    Args:
        range: The range to read.
        settings: How to read.

    Yields:
        Batches with the schema from the settings. No batch is empty, so an empty range yields nothing.

    Returns:
        See `Records`.

    Raises:
        DataLossError: `fail_on_data_loss` is set, and records in the range are lost: they, or their topic or partition, were
            deleted, or the log was truncated.
        AuthenticationFailed: The brokers refuse the credentials.
        NotAuthorized: An ACL is missing.
        BrokerUnavailable: No broker answers within `poll_timeout_ms`.
        BrokerError: The range cannot be read for another reason, such as no progress within `poll_timeout_ms`.
        OptionError: librdkafka refuses the client settings.
        SchemaError: A record has a null in a column that the schema declares as NOT NULL.

    No error shows a secret.
    """
    return reader()(range, settings)


def fetch_shared(ranges: Sequence[FetchRange], settings: FetchSettings) -> Iterator[pa.RecordBatch]:
    """Read exactly the records in several ranges of different partitions, in offset order within each partition.

    The native reader reads the ranges at the same time, and may put records from several ranges into one batch. The pure reader
    reads one range at a time. The errors are the same as for `fetch`, and name the partition.

    Args:
        ranges: The ranges to read, which should be small.
        settings: How to read.

    Yields:
        Batches like those from `fetch`.

    Raises:
        DataLossError, AuthenticationFailed, NotAuthorized, BrokerUnavailable, BrokerError, OptionError, SchemaError: See `fetch`.
    """
    read = reader()
    return native_shared.read_all(ranges, settings) if read is native.read else read_one_by_one(ranges, settings, read)


def warn_on_driver() -> None:
    """Warn when a query starts if the driver's installation has no native reader.

    The driver reads no records, but the executors often have the same installation, and few users read their logs.
    """
    unavailable = why_unavailable()
    if unavailable is not None:
        log.warning(
            "The driver's installation has no native reader: %s. Executors with the same installation use the pure Python "
            "reader. Its rows are the same, except that header keys are truncated at the first NUL, but it is several times "
            "slower. To use the native reader, on the driver and on every executor: %s.",
            unavailable,
            unavailable.advice,
        )


@functools.cache
def _warn(unavailable: NativeUnavailable) -> None:
    """Warn, once per process, that the pure Python reader reads the records."""
    log.warning(
        "Records are read by the pure Python reader, because the native one cannot be used: %s. The rows are the same, except "
        "that header keys are truncated at the first NUL, but reading is several times slower. To use the native reader: %s.",
        unavailable,
        unavailable.advice,
    )
