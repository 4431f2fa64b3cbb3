"""The choice of the reader: the native one, or the pure one with a warning if the native one cannot be used."""

from __future__ import annotations

import functools
import logging
from typing import NamedTuple

from spark_groupsource.fetch import native_consumer as native
from spark_groupsource.fetch import pure_consumer as pure
from spark_groupsource.fetch.contract import Reader
from spark_groupsource.fetch.native_api import why_unavailable

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


def warn_on_driver() -> None:
    """Warn, at the start of a query, if the driver's installation has no native reader.

    The driver reads no records, but its installation is often that of the executors, whose logs few people read.
    """
    found = installed_reader()
    if found.reason is not None:
        log.warning(
            "The driver's installation has no native reader: %s. Executors with the same installation use the %s reader: the "
            "rows are the same, but reading is several times slower. To use the native reader, on the driver and on every "
            "executor: %s.",
            found.reason,
            found.name,
            found.advice,
        )


@functools.cache
def _warn(reason: str, advice: str | None) -> None:
    """Warn once in each process for each reason."""
    log.warning(
        "Records are read by the pure Python reader, because the native one cannot be used: %s. The rows are the same, but "
        "reading is several times slower. To use the native reader: %s.",
        reason,
        advice,
    )
