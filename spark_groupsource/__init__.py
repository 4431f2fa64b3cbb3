"""The Spark source `format("groupkafka")`, whose driver is a member of a Kafka consumer group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_groupsource.version import __version__

if TYPE_CHECKING:
    from spark_groupsource.brokers.oauth_callback import oauth_callback
    from spark_groupsource.options.properties_file import read_properties
    from spark_groupsource.spark.datasource import GroupKafkaDataSource, register
    from spark_groupsource.spark.graceful_stop import await_termination, stop_gracefully
    from spark_groupsource.spark.lag_listener import LagListener, LagSnapshot

__all__ = [
    "GroupKafkaDataSource",
    "LagListener",
    "LagSnapshot",
    "__version__",
    "await_termination",
    "oauth_callback",
    "read_properties",
    "register",
    "stop_gracefully",
]


def __getattr__(name: str) -> object:
    # Imported on demand: the command line runs without pyspark, and only these names need it.
    if name in {"GroupKafkaDataSource", "register"}:
        from spark_groupsource.spark import datasource

        return getattr(datasource, name)
    if name in {"await_termination", "stop_gracefully"}:
        from spark_groupsource.spark import graceful_stop

        return getattr(graceful_stop, name)
    if name in {"LagListener", "LagSnapshot"}:
        from spark_groupsource.spark import lag_listener

        return getattr(lag_listener, name)
    if name == "oauth_callback":
        from spark_groupsource.brokers.oauth_callback import oauth_callback

        return oauth_callback
    if name == "read_properties":
        from spark_groupsource.options.properties_file import read_properties

        return read_properties
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
