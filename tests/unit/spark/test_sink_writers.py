"""What a task of the sink reports to the driver."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark import TaskContext
from pyspark.sql.types import StructType

from spark_groupsource.options.sink_model import SinkOptions
from spark_groupsource.spark.sink_writers import Done, StreamWriter

GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "deliveryGuarantee": "at-least-once"}


@pytest.fixture
def context() -> Iterator[TaskContext]:
    made = TaskContext._getOrCreate()
    made._partitionId, made._localProperties = 3, {}
    yield made
    TaskContext._setTaskContext(None)


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_task_reports_whether_it_was_tried_before(context: TaskContext, number: int) -> None:
    """The driver then asks for what the earlier try has written. Without rows a task needs no broker."""
    context._attemptNumber = number
    writer = StreamWriter(SinkOptions.parse(GIVEN, "stream").sink_settings("stream"), StructType().add("value", "string"))
    done = writer.write(iter(()))
    assert isinstance(done, Done)
    assert (done.task, done.retried) == (3, number > 0)
