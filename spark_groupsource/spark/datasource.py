"""What Spark calls first: the format's name, its schema and its readers.

Spark also sends the data source to each task, for its name. So what only the driver needs is imported in the methods.
"""

from __future__ import annotations

import importlib.util
import logging
from contextlib import nullcontext
from typing import TYPE_CHECKING, Literal

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from spark_groupsource.spark.short_errors import shown_alone

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter

    from spark_groupsource.sink.settings import SinkSettings
    from spark_groupsource.spark.batch_reader import GroupKafkaBatchReader
    from spark_groupsource.spark.refused_reader import RefusedReader
    from spark_groupsource.spark.stream_reader import GroupKafkaStreamReader

log = logging.getLogger(__name__)

ADMISSION_CONTROL = importlib.util.find_spec("pyspark.sql.streaming.datasource") is not None
"""Whether this Spark passes the start and the limit of a micro-batch: true since 4.2."""


class GroupKafkaDataSource(DataSource):
    """The source `format("groupkafka")`: a Kafka source whose driver is a member of a consumer group."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "groupkafka"

    @shown_alone()
    def schema(self) -> StructType:
        """Return the schema of Spark's own Kafka source. Spark calls this in `load()`, unless the user gives a schema.

        Raises:
            OptionError: An option is wrong. Nothing has been started.
        """
        from spark_groupsource.options.model import Options
        from spark_groupsource.spark.default_schema import default_schema

        return default_schema(Options.parse(self.options).include_headers)

    @shown_alone()
    def reader(self, schema: StructType) -> GroupKafkaBatchReader:
        """Return a reader for batch queries. It asks no broker before an action plans one.

        Raises:
            OptionError: An option is wrong.
            SchemaError: A column of the schema cannot be read.
        """
        from spark_groupsource.options.model import Options
        from spark_groupsource.spark.batch_reader import GroupKafkaBatchReader
        from spark_groupsource.spark.columns import requested

        options = Options.parse(self.options, "batch")
        return GroupKafkaBatchReader(options, requested(schema, options.include_headers))

    @shown_alone()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch write, which is at least once.

        Raises:
            OptionError: An option is wrong, or the mode is `overwrite`.
            SchemaError: A column is missing or cannot be written.
            TopicNotFound: The topic does not exist.
        """
        from spark_groupsource.errors import OptionError
        from spark_groupsource.spark.sink_writers import batch_writer

        if overwrite:
            raise OptionError("mode('overwrite') is not possible: Kafka only appends. Write mode('append').")
        return batch_writer(self._sink_settings(schema, "batch"), schema)

    @shown_alone()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of one micro-batch.

        Raises:
            OptionError: An option is wrong.
            SchemaError: A column is missing or cannot be written.
            TopicNotFound: The topic does not exist.
        """
        from spark_groupsource.spark.sink_writers import stream_writer

        return stream_writer(self._sink_settings(schema, "stream"), schema, self.options.get("checkpointLocation"))

    def _sink_settings(self, schema: StructType, use: Literal["stream", "batch"]) -> SinkSettings:
        from spark_groupsource.options.sink_model import SinkOptions
        from spark_groupsource.sink.columns import check_columns
        from spark_groupsource.sink.output_topic import refuse_missing
        from spark_groupsource.spark.stderr_log import log_to_stderr
        from spark_groupsource.subject import work_for

        options = SinkOptions.parse(self.options, use)
        check_columns(schema, options.topic)
        work_for(topic=options.topic)
        log_to_stderr()
        settings = options.sink_settings(use)
        refuse_missing(settings, settings.topic)
        return settings

    def streamReader(self, schema: StructType) -> GroupKafkaStreamReader | RefusedReader:
        """Return a reader for one run of one query. It has not joined the group yet.

        If an option or a column of the schema is wrong, the reader raises the OptionError or SchemaError at Spark's first call.
        """
        from spark_groupsource.errors import OptionError, SchemaError
        from spark_groupsource.options.model import Options
        from spark_groupsource.spark.columns import requested

        try:
            options = Options.parse(self.options, "stream")
            columns = requested(schema, options.include_headers)
        except (OptionError, SchemaError) as wrong:
            from spark_groupsource.spark.refused_reader import RefusedReader

            return RefusedReader(wrong)
        if ADMISSION_CONTROL:
            from spark_groupsource.spark.admission_reader import AdmissionControlReader

            return AdmissionControlReader(options, columns)
        from spark_groupsource.spark.startless_reader import StartlessReader

        return StartlessReader(options, columns)


def register(spark: SparkSession) -> None:
    """Register `format("groupkafka")` with a Spark session, and have finished micro-batches reported to the source.

    A micro-batch is then closed in the group as soon as Spark has finished it, and not with the next trigger. For that a
    listener is added to the session, once. Where a session takes none, and with Spark Connect, where it would run at the client,
    the reader's option `checkpointLocation` does the same. It can be called everywhere, and again. Call it for each session.

    Raises:
        WorkersPythonUnsuitable: With a local master: the Python that Spark starts lacks this package, or has another version.
            With any other master that is logged as a warning.
    """
    from spark_groupsource.spark.durable_listener import listen
    from spark_groupsource.spark.found_source import active, has, is_found
    from spark_groupsource.spark.worker_python import refuse_unsuitable

    here = not type(spark).__module__.startswith("pyspark.sql.connect")
    if here:
        refuse_unsuitable(spark.sparkContext)
    listen(spark)
    if here and is_found(spark, GroupKafkaDataSource.name()):
        return
    try:
        with active(spark) if here else nullcontext():
            spark.dataSource.register(GroupKafkaDataSource)
    except AnalysisException as refused:
        # Spark 4.0 refuses a name that it has found among the installed modules; later ones replace it (SPARK-51919).
        if refused.getCondition() != "DATA_SOURCE_ALREADY_EXISTS" or (here and not has(spark, GroupKafkaDataSource.name())):
            raise
        log.info("Spark keeps the source that it has found by itself: its tasks run with the Python that found it.")
