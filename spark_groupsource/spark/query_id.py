"""The id of the streaming query that a process of Spark works for. Tasks learn it from Spark; a checkpoint has it in a file."""

from __future__ import annotations

from pyspark import TaskContext

_QUERY_ID = "sql.streaming.queryId"
"""The local property of Spark's jobs that says which query this is."""


def query_of_task() -> str | None:
    """Return the id of the query that this task belongs to; `None` if it is of no streaming query, or Spark does not say."""
    context = TaskContext.get()
    query: str | None = None if context is None else context.getLocalProperty(_QUERY_ID)
    return query


def query_of_checkpoint(location: str | None) -> str | None:
    """Return the query's id, which its checkpoint has in the file `metadata`; `None` if that cannot be read from here."""
    if location is None:
        return None
    from spark_groupsource.checkpoint.files import CheckpointFiles
    from spark_groupsource.errors import CheckpointUnreadable

    try:
        return CheckpointFiles(location).query_id()
    except CheckpointUnreadable:
        return None
