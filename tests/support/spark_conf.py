"""A setting of a Spark session that is changed for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Set a setting of the session, and unset it at the end."""
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.unset(name)
