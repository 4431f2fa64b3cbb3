"""Which reader: the native one, unless it is not there or the settings are not for it; then the pure one, and a warning."""

from __future__ import annotations

import functools
import logging

from spark_groupsource.fetch import FetchSettings, Reader, native, pure
from spark_groupsource.fetch.librdkafka import why_unavailable

logger = logging.getLogger(__name__)


def reader_for(settings: FetchSettings) -> Reader:
    """Return the fastest reader that there is for these settings in this process."""
    reason = why_unavailable()
    if reason is None and not native.takes(settings.client):
        reason = "a client setting is a Python callback"
    if reason is None:
        return native.read
    _warn(reason)
    return pure.read


@functools.cache
def _warn(reason: str) -> None:
    """Once in each process, and for each reason."""
    logger.warning(
        "Records are read by the pure Python reader, because the native one cannot be used: %s. The records are the same, "
        "but each becomes a Python object first, which costs most of the throughput and CPU time. To have the native reader: "
        "pip install --force-reinstall --no-deps spark-groupsource, with a C compiler on the machine.",
        reason,
    )
