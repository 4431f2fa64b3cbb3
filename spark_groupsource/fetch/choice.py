"""The choice of the reader: the native one, or the pure one with a warning if the native one cannot be used."""

from __future__ import annotations

import functools
import logging

from spark_groupsource.fetch import native_consumer as native
from spark_groupsource.fetch import pure_consumer as pure
from spark_groupsource.fetch.contract import Reader
from spark_groupsource.fetch.native_api import why_unavailable
from spark_groupsource.fetch.settings import FetchSettings

log = logging.getLogger(__name__)


def reader_for(settings: FetchSettings) -> Reader:
    """Return the fastest reader that this process has for these settings."""
    reason = why_unavailable()
    if reason is not None:
        advice = "pip install --force-reinstall --no-deps spark-groupsource, with a C compiler on the machine"
    elif not native.takes(settings.client):
        reason = "it cannot call the Python function of kafka.oauth_cb"
        advice = "set kafka.sasl.oauthbearer.token.endpoint.url instead, if the OAuth server has such an endpoint"
    else:
        return native.read
    _warn(reason, advice)
    return pure.read


@functools.cache
def _warn(reason: str, advice: str) -> None:
    """Warn once in each process for each reason."""
    log.warning(
        "Records are read by the pure Python reader, because the native one cannot be used: %s. The rows are the same, but "
        "reading is several times slower. To use the native reader: %s.",
        reason,
        advice,
    )
