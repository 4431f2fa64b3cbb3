"""The id of the query: from Spark in a task, and from the files of a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import TaskContext

from spark_groupsource.options.model import Options
from spark_groupsource.spark.query_id import query_of_checkpoint, query_of_task
from spark_groupsource.spark.readers import GroupKafkaStreamReader
from spark_groupsource.subject import current_subject
from tests.support.options import BASE

QUERY = "5e0bd5ce-5a4a-4d49-a9e1-f1d5a8f9a1d5"


@pytest.fixture
def context() -> Iterator[TaskContext]:
    made = TaskContext._getOrCreate()
    made._localProperties = {}
    yield made
    TaskContext._setTaskContext(None)


def test_the_query_of_a_checkpoint_is_known_if_it_can_be_read(tmp_path: Path) -> None:
    assert query_of_checkpoint(None) is None
    assert query_of_checkpoint(str(tmp_path)) is None
    assert query_of_checkpoint("nowhere://host/path") is None
    (tmp_path / "metadata").write_text(json.dumps({"id": QUERY}))
    assert query_of_checkpoint(f"file://{tmp_path}") == QUERY


def test_a_runner_names_its_stream_and_the_query_once_it_has_read_its_id(tmp_path: Path) -> None:
    reader = GroupKafkaStreamReader(Options.parse({**BASE, "checkpointLocation": str(tmp_path)}, "stream"))
    said = []
    for step in (
        lambda: reader._speak_for(None),
        lambda: reader._speak_for("5e7"),
        reader._look_up_query,
        lambda: (tmp_path / "metadata").write_text(json.dumps({"id": QUERY})),
        reader._look_up_query,
        lambda: reader._speak_for("5e7"),
    ):
        step()
        said.append(current_subject())
    stream, query = "group billing, stream 5e7: ", f"group billing, query {QUERY}, stream 5e7: "
    assert said == ["group billing: ", stream, stream, stream, query, query]


def test_no_query_is_known_outside_of_a_task() -> None:
    assert query_of_task() is None


def test_a_task_knows_the_query_if_spark_says_which_it_is(context: TaskContext) -> None:
    assert query_of_task() is None, "a batch read"
    context._localProperties = {"sql.streaming.queryId": QUERY}
    assert query_of_task() == QUERY
