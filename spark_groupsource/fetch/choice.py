"""Which reader: the native one, unless it is not there or the settings are not for it; then the pure one, and a warning."""

from __future__ import annotations

import functools
import logging

from spark_groupsource.fetch import native_consumer as native
from spark_groupsource.fetch import pure_consumer as pure
from spark_groupsource.fetch.contract import Reader
from spark_groupsource.fetch.native_api import why_unavailable
from spark_groupsource.fetch.settings import FetchSettings

logger = logging.getLogger(__name__)


def reader_for(settings: FetchSettings) -> Reader:
    """Return the fastest reader that there is for these settings in this process."""
    reason = why_unavailable()
    if reason is not None:
        advice = "pip install --force-reinstall --no-deps spark-groupsource, with a C compiler on the machine"
    elif not native.takes(settings.client):
        reason = "it cannot call a Python function for tokens (kafka.oauth_cb)"
        advice = "fetch the tokens by kafka.sasl.oauthbearer.token.endpoint.url, if the OAuth server has one"
    else:
        return native.read
    _warn(reason, advice)
    return pure.read


@functools.cache
def _warn(reason: str, advice: str) -> None:
    """Once in each process, and for each reason."""
    logger.warning(
        "Records are read by the pure Python reader, because the native one cannot be used: %s. The records are the same, "
        "but each becomes a Python object first, which costs most of the throughput and CPU time. To have the native reader: %s.",
        reason,
        advice,
    )
