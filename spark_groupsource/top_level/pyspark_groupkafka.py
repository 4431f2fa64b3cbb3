"""Lets Spark find `format("groupkafka")` without registration in an environment where the package is installed (SPARK-45917).

setup.py installs this file next to the package. When a session first looks up a format that the JVM does not have, Spark imports
every top-level module whose name begins with `pyspark_`. An import that failed here would break the lookup of all other formats,
so this module imports only what Spark has already imported.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource


class DefaultSource(DataSource):
    """Stands for `format("groupkafka")`, whose package is imported only when a query uses it."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "groupkafka"

    def __new__(cls, options: dict[str, str]) -> DataSource:  # type: ignore[misc]
        """Return the real source, which Spark then pickles instead of this class."""
        from spark_groupsource.spark.datasource import GroupKafkaDataSource

        return GroupKafkaDataSource(options)
