"""Lets Spark find `format("groupkafka")` by itself in an environment that has the package installed (SPARK-45917).

Packaging places this file beside the package. Spark imports every top-level module whose name begins with `pyspark_` when a
session first looks for a format that the JVM does not know. A failed import here would break the lookup of every other format,
so this module imports only what Spark has already imported.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource


class DefaultSource(DataSource):
    """Stands for the source `format("groupkafka")`, whose package is imported only when a query uses it."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "groupkafka"

    def __new__(cls, options: dict[str, str]) -> DataSource:  # type: ignore[misc]
        """Return the source itself, which Spark pickles instead of this class."""
        from spark_groupsource.spark.datasource import GroupKafkaDataSource

        return GroupKafkaDataSource(options)
