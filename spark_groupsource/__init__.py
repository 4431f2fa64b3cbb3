"""The Spark source `format("groupkafka")`, whose driver is a member of a Kafka consumer group."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from spark_groupsource.version import __version__

if TYPE_CHECKING:
    from spark_groupsource.brokers.oauth_callback import oauth_callback
    from spark_groupsource.options.properties_file import read_properties
    from spark_groupsource.spark.datasource import GroupKafkaDataSource
    from spark_groupsource.spark.graceful_stop import await_termination, stop_gracefully
    from spark_groupsource.spark.lag_listener import LagListener, LagSnapshot
    from spark_groupsource.spark.register import register

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


_MODULES = {
    "GroupKafkaDataSource": "spark.datasource",
    "LagListener": "spark.lag_listener",
    "LagSnapshot": "spark.lag_listener",
    "await_termination": "spark.graceful_stop",
    "oauth_callback": "brokers.oauth_callback",
    "read_properties": "options.properties_file",
    "register": "spark.register",
    "stop_gracefully": "spark.graceful_stop",
}


def __getattr__(name: str) -> object:
    # Import on demand, because only some of these names need pyspark, and the command line runs without it.
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
