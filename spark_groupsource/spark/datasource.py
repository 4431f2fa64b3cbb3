"""Implements Spark's `DataSource`, which names the format and creates its schema, readers and writers.

Spark also sends the data source to each task, where only its name is needed. So everything that only the driver needs is imported
inside the methods.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Literal

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from spark_groupsource.errors import OptionError, SchemaError
from spark_groupsource.spark.messages import log_to_stderr, shown_alone
from spark_groupsource.subject import work_for

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter

    from spark_groupsource.sink.settings import SinkSettings
    from spark_groupsource.spark.readers import GroupKafkaBatchReader, GroupKafkaStreamReader, RefusedReader

ADMISSION_CONTROL = importlib.util.find_spec("pyspark.sql.streaming.datasource") is not None
"""Whether this Spark version passes a micro-batch's start and limit, as versions since 4.2 do."""


class GroupKafkaDataSource(DataSource):
    """The `groupkafka` format: a Kafka source whose driver is a member of a consumer group, and a Kafka sink."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "groupkafka"

    @shown_alone()
    def schema(self) -> StructType:
        """Return the schema of Spark's own Kafka source. Spark calls this in `load()`, unless the user gives a schema.

        Raises:
            OptionError: An option is invalid. Nothing has been started.
        """
        from spark_groupsource.options.model import Options
        from spark_groupsource.spark.columns import default_schema

        return default_schema(Options.parse(self.options).include_headers)

    @shown_alone()
    def reader(self, schema: StructType) -> GroupKafkaBatchReader:
        """Return a reader for batch queries. It contacts no broker until an action plans the query.

        Raises:
            OptionError: An option is invalid.
            SchemaError: A column in the schema cannot be read.
        """
        from spark_groupsource.options.model import Options
        from spark_groupsource.spark.columns import requested
        from spark_groupsource.spark.readers import GroupKafkaBatchReader

        options = Options.parse(self.options, "batch")
        return GroupKafkaBatchReader(options, requested(schema, options.include_headers))

    @shown_alone()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer for a batch write, which writes each row at least once.

        Raises:
            OptionError: An option is invalid, or the mode is `overwrite`.
            SchemaError: A column is missing or cannot be written.
            TopicNotFound: The topic does not exist.
        """
        from spark_groupsource.spark.sink_writers import BatchWriter

        if overwrite:
            raise OptionError("mode('overwrite') is not supported, because Kafka can only append. Use mode('append').")
        return BatchWriter(self._sink_settings(schema, "batch"), schema)

    @shown_alone()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return a writer for one micro-batch.

        Raises:
            OptionError: An option is invalid.
            SchemaError: A column is missing or cannot be written.
            TopicNotFound: The topic does not exist.
        """
        from spark_groupsource.spark.sink_writers import StreamWriter

        return StreamWriter(self._sink_settings(schema, "stream"), schema, self.options.get("checkpointLocation"))

    def _sink_settings(self, schema: StructType, use: Literal["stream", "batch"]) -> SinkSettings:
        from spark_groupsource.options.sink_model import SinkOptions
        from spark_groupsource.sink.columns import check_columns
        from spark_groupsource.sink.topics import refuse_missing

        options = SinkOptions.parse(self.options, use)
        check_columns(schema, options.topic)
        work_for(topic=options.topic)
        log_to_stderr()
        settings = options.sink_settings(use)
        refuse_missing(settings, settings.topic)
        return settings

    def streamReader(self, schema: StructType) -> GroupKafkaStreamReader | RefusedReader:
        """Return a reader for one run of one query. The reader has not joined the group yet.

        If an option or a column in the schema is invalid, the reader raises OptionError or SchemaError when Spark first calls it.
        """
        from spark_groupsource.options.model import Options
        from spark_groupsource.spark.columns import requested

        try:
            options = Options.parse(self.options, "stream")
            columns = requested(schema, options.include_headers)
        except (OptionError, SchemaError) as wrong:
            from spark_groupsource.spark.readers import RefusedReader

            return RefusedReader(wrong)
        if ADMISSION_CONTROL:
            from spark_groupsource.spark.version_readers import AdmissionControlReader

            return AdmissionControlReader(options, columns)
        from spark_groupsource.spark.version_readers import StartlessReader

        return StartlessReader(options, columns)
