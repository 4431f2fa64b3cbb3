"""What Spark calls first: the format's name, its schema and its readers."""

from __future__ import annotations

import importlib.util

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from spark_groupsource.fetch.arrow_schema import spark_schema
from spark_groupsource.options.model import Options
from spark_groupsource.spark.batch_reader import GroupKafkaBatchReader
from spark_groupsource.spark.stream_reader import GroupKafkaStreamReader

ADMISSION_CONTROL = importlib.util.find_spec("pyspark.sql.streaming.datasource") is not None
"""Whether this Spark says where a micro-batch starts and what limits it: from 4.2 on."""


class GroupKafkaDataSource(DataSource):
    """`format("groupkafka")`: Spark's Kafka source, as a member of a consumer group."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "groupkafka"

    def schema(self) -> str:
        """The schema of Spark's own Kafka source.

        Raises:
            OptionError: an option is wrong; Spark asks for the schema first, so nothing has been started.
        """
        return spark_schema(Options.parse(self.options).include_headers)

    def reader(self, schema: StructType) -> GroupKafkaBatchReader:
        """A reader for batch queries; nothing is asked before an action plans one.

        Raises:
            OptionError: an option is wrong.
        """
        return GroupKafkaBatchReader(Options.parse(self.options, "batch"))

    def streamReader(self, schema: StructType) -> GroupKafkaStreamReader:
        """A reader for one run of one query; it has not joined the group yet.

        Raises:
            OptionError: an option is wrong.
        """
        options = Options.parse(self.options, "stream")
        if ADMISSION_CONTROL:
            from spark_groupsource.spark.admission_reader import AdmissionControlReader

            return AdmissionControlReader(options)
        from spark_groupsource.spark.startless_reader import StartlessReader

        return StartlessReader(options)


def register(spark: SparkSession) -> None:
    """Make `format("groupkafka")` known to a Spark session."""
    spark.dataSource.register(GroupKafkaDataSource)
