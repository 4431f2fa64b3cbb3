"""What a task of the sink reports to the driver, and what the driver knows of its query."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import TaskContext
from pyspark.sql.types import StructType

from spark_groupsource.options.sink_model import SinkOptions
from spark_groupsource.spark.sink_writers import Done, RowStreamWriter, _query_of

QUERY = "5e0bd5ce-5a4a-4d49-a9e1-f1d5a8f9a1d5"
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
    writer = RowStreamWriter(SinkOptions.parse(GIVEN, "stream").sink_settings("stream"), StructType().add("value", "string"))
    done = writer.write(iter(()))
    assert isinstance(done, Done)
    assert (done.task, done.retried) == (3, number > 0)


def test_the_query_of_a_checkpoint_is_known_if_it_can_be_read(tmp_path: Path) -> None:
    assert _query_of(None) is None
    assert _query_of(str(tmp_path)) is None
    for text in ("", "{", "[]", json.dumps({"id": "../etc"}), json.dumps({"id": 7})):
        (tmp_path / "metadata").write_text(text)
        assert _query_of(str(tmp_path)) is None
    (tmp_path / "metadata").write_text(json.dumps({"id": QUERY}))
    assert _query_of(f"file://{tmp_path}") == QUERY
