"""Makes the producer of a task: the native one, or the pure Python one with a warning if the native one cannot be used."""

from __future__ import annotations

from collections.abc import Mapping

from spark_groupsource.fetch.choice import warn_of_pure_python
from spark_groupsource.native.libraries import why_unavailable
from spark_groupsource.sink.contract import Producer
from spark_groupsource.sink.native_producer import NativeProducer
from spark_groupsource.sink.pure_producer import PureProducer


def make_producer(client: Mapping[str, str], topic: str | None) -> Producer:
    """Make the fastest producer that this process has.

    Args:
        client: The finished settings.
        topic: The topic of rows that name none.

    Raises:
        OptionError: librdkafka refuses the settings.
        AuthenticationFailed: `kafka.oauth_cb` returns no token.
    """
    unavailable = why_unavailable()
    if unavailable is None:
        return NativeProducer(client, topic)
    warn_of_pure_python(unavailable)
    return PureProducer(client, topic)
