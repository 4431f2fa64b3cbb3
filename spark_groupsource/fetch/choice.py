"""The choice of the reader: the native one, or the pure one with a warning if the native one cannot be used."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from spark_groupsource.fetch import native_consumer as native
from spark_groupsource.fetch import native_shared
from spark_groupsource.fetch import pure_consumer as pure
from spark_groupsource.fetch.contract import FetchRange, Reader, Records
from spark_groupsource.fetch.settings import FetchSettings
from spark_groupsource.fetch.shared import read_one_by_one
from spark_groupsource.native.libraries import NativeUnavailable, why_unavailable

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)


class InstalledReader(NamedTuple):
    """The reader that this machine's installation of the package has."""

    read: Reader
    """The reader itself."""
    name: str
    """`native` or `pure Python`."""
    reason: str | None = None
    """Why the native reader cannot be used. None if it can."""
    advice: str | None = None
    """What to install for the native reader, as a clause. None if it can be used."""


def installed_reader() -> InstalledReader:
    """Return the fastest reader that this process has. It logs nothing."""
    unavailable = why_unavailable()
    if unavailable is None:
        return InstalledReader(native.read, "native")
    return InstalledReader(pure.read, "pure Python", str(unavailable), unavailable.advice)


def reader() -> Reader:
    """Return the fastest reader that this process has. Warn, once in each process, if that is not the native one."""
    found = installed_reader()
    if found.reason is not None:
        _warn(found.reason, found.advice)
    return found.read


def warn_of_pure_python(unavailable: NativeUnavailable) -> None:
    """Warn, once in each process, that rows are written by the pure Python producer."""
    _warn_of_producer(str(unavailable), unavailable.advice)


def fetch(range: FetchRange, settings: FetchSettings) -> Records:  # noqa: A002
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

    Returns:
        See `Records`.

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
    return reader()(range, settings)


def fetch_shared(ranges: Sequence[FetchRange], settings: FetchSettings) -> Iterator[pa.RecordBatch]:
    """Read exactly the records of several ranges, each of another partition, in the order of the offsets of each partition.

    The native reader reads them at the same time. The records of several ranges may come in one batch. Otherwise each range is
    read as by `fetch`, and so are errors: they name the partition.

    Args:
        ranges: What to read. It is made for small ranges.
        settings: How to read.

    Yields:
        Batches as those of `fetch`.

    Raises:
        DataLossError, AuthenticationFailed, NotAuthorized, BrokerUnavailable, BrokerError, OptionError, SchemaError: See `fetch`.
    """
    read = reader()
    return native_shared.read_all(ranges, settings) if read is native.read else read_one_by_one(ranges, settings, read)


def warn_on_driver() -> None:
    """Warn, at the start of a query, if the driver's installation has no native reader.

    The driver reads no records, but its installation is often that of the executors, whose logs few people read.
    """
    found = installed_reader()
    if found.reason is not None:
        log.warning(
            "The driver's installation has no native reader: %s. Executors with the same installation use the %s reader: the "
            "rows are the same, but a header's key ends at its first NUL, and reading is several times slower. To use the native "
            "reader, on the driver and on every executor: %s.",
            found.reason,
            found.name,
            found.advice,
        )


@functools.cache
def _warn(reason: str, advice: str | None) -> None:
    """Warn once in each process for each reason."""
    log.warning(
        "Records are read by the pure Python reader, because the native one cannot be used: %s. The rows are the same, but a "
        "header's key ends at its first NUL, and reading is several times slower. To use the native reader: %s.",
        reason,
        advice,
    )


@functools.cache
def _warn_of_producer(reason: str, advice: str) -> None:
    log.warning(
        "Rows are written by the pure Python producer, because the native one cannot be used: %s. The rows are the same, but "
        "writing is several times slower. To use the native producer: %s.",
        reason,
        advice,
    )
