"""Finds the id of the streaming query that a process works for: a task gets it from Spark, others from the checkpoint."""

from __future__ import annotations

from pyspark import TaskContext

_QUERY_ID = "sql.streaming.queryId"
"""The local property of Spark's jobs with the id of the query."""


def query_of_task() -> str | None:
    """Return the id of the streaming query that this task belongs to; `None` if there is none, or Spark does not show it."""
    context = TaskContext.get()
    query: str | None = None if context is None else context.getLocalProperty(_QUERY_ID)
    return query


def query_of_checkpoint(location: str | None) -> str | None:
    """Return the query's id from the file `metadata` of its checkpoint; `None` if this process cannot read the file."""
    if location is None:
        return None
    from spark_groupsource.checkpoint.files import CheckpointFiles
    from spark_groupsource.errors import CheckpointUnreadable

    try:
        return CheckpointFiles(location).query_id()
    except CheckpointUnreadable:
        return None
