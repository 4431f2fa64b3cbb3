"""What a task of the sink does with its rows, and what the driver checks: decided from the tokens alone. Pure.

A micro-batch that Spark runs again has the same number. A task whose rows are there already finds the token of that number, which
became visible with the rows. So it writes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spark_groupsource.errors import BatchUnknown, CheckpointBehindSink, ReplayDiffers
from spark_groupsource.sink.token import BatchToken, Token, Written

NOTHING = Written(0, 0)
"""What a task has written that had no rows. Such a task leaves no token."""


def written_before(
    task: str, number: int, batch: int, token: Token | None, driver: BatchToken | None, accepted: int | None
) -> Written | None:
    """Decide what a task does, before it reads a row.

    The token of a task replaces the one before, so one of an earlier micro-batch says that this one is not written. So does the
    driver's: it is older than a token of this micro-batch would be, and expires first. A task that had rows in the driver's
    micro-batch has a token; if it has none, the tokens are expiring, in whatever order their coordinators look at them.

    Args:
        task: The task's transactional id, for the error.
        number: The task's number.
        batch: The number of the micro-batch.
        token: The task's token. `None`: it has none.
        driver: The driver's token, if the task has none of this run. `None`: the driver has none, either.
        accepted: The option `acceptBatch`.

    Returns:
        What is in the topic already: the task reads its rows, compares, and writes nothing. `None`: it writes its rows.

    Raises:
        CheckpointBehindSink: A later micro-batch is in the topic.
        BatchUnknown: The tokens have expired, so nobody knows whether the task has written this one.
    """
    of_task = -1 if token is None else token.batch
    newest = max(of_task, -1 if driver is None else driver.batch)
    if newest > batch:
        raise CheckpointBehindSink(
            f"{task}: micro-batch {batch} is to be written, and micro-batch {newest} is in the topic already. The checkpoint is "
            "older than what the query has written: it was restored, or deleted, or belongs to another query. Start with the "
            "newest checkpoint. Or set another transactionalIdPrefix: then what is after this checkpoint is written again."
        )
    if newest == batch:
        return token.written if token is not None and of_task == batch else NOTHING
    has_expired = token is None and driver is not None and driver.had is not None and number in driver.had
    if (newest < 0 < batch or has_expired) and accepted != batch:
        raise BatchUnknown(
            f"{task}: nothing says whether micro-batch {batch} is in the topic already. The sink has no offsets: they expire "
            "after offsets.retention.minutes (7 days by default) without a micro-batch, and are deleted with their topic. Or "
            "transactionalIdPrefix, topic or the guarantee was changed. If no micro-batch was interrupted before, or records may "
            f"be written twice, set acceptBatch={batch}: this micro-batch is then written."
        )
    return None


def is_same(task: str, batch: int, before: Written, now: Written, accepted: int | None) -> bool:
    """Compare the rows of a replay with those that are in the topic.

    Returns:
        Whether they are the same. If not, `acceptBatch` accepts what is in the topic.

    Raises:
        ReplayDiffers: They are not the same.
    """
    if now == before:
        return True
    if accepted == batch:
        return False
    raise ReplayDiffers(
        f"{task}: micro-batch {batch} is in the topic with {before.rows} rows of this task, and now has {now.rows} rows"
        f"{' with other content' if before.rows == now.rows else ''}. So the query has changed while this micro-batch was half "
        "written: its code, its number of tasks, or its results are different each time. Rows that have moved from one task to "
        "another may be in the topic twice by now. Start it as it was before. Or set "
        f"acceptBatch={batch}: then what this task has written stays, these rows are not written, and other tasks write theirs "
        "if the earlier try did not finish the micro-batch."
    )


def may_be_a_replay(last: Token | BatchToken | None, run: str) -> bool:
    """Return whether this micro-batch may have been tried by an earlier run of the query. A platform may not name the run.

    Args:
        last: The token of the task, or the driver's.
        run: The run of the query.
    """
    return last is None or not run or last.run != run


def check_batch(
    batch: int, tasks: int, rows: int, before: BatchToken | None, silent: Mapping[int, Token], accepted: int | None
) -> None:
    """Check, at the driver, that a replay had the tasks and the rows of the try before.

    Args:
        batch: The number of the micro-batch.
        tasks: How many tasks it has.
        rows: How many rows they have.
        before: The driver's token.
        silent: The tokens of tasks that have no rows now: they looked at no token themselves. Tasks with higher numbers, which
            this try does not have, are among them.
        accepted: The option `acceptBatch`.

    Raises:
        CheckpointBehindSink: A later micro-batch is in the topic.
        ReplayDiffers: An earlier try wrote rows in a task that there is not now, or another number of rows.
    """
    if before is not None and before.batch > batch:
        raise CheckpointBehindSink(
            f"Micro-batch {batch} was written, and micro-batch {before.batch} is in the topic already: another query uses the "
            "same transactionalIdPrefix, or the same checkpoint."
        )
    if accepted == batch:
        return
    strangers = sorted(number for number, token in silent.items() if token.batch == batch and token.written.rows)
    if strangers:
        raise ReplayDiffers(
            f"Micro-batch {batch} has {tasks} tasks now, and an earlier try wrote {silent[strangers[0]].written.rows} rows in "
            f"task {strangers[0]}, which has none now. So the query, or its number of tasks, has changed while this "
            "micro-batch was half written, and rows of it may be in the topic twice. To go on all the same, set "
            f"acceptBatch={batch}."
        )
    if before is not None and before.batch == batch and before.rows != rows:
        raise ReplayDiffers(
            f"Micro-batch {batch} has {rows} rows, and an earlier try wrote {before.rows}. So its results are different each "
            f"time, and rows of it may be in the topic twice. To go on all the same, set acceptBatch={batch}."
        )


def after_batch(batch: int, tasks: int, rows: int, run: str, empty: Collection[int]) -> BatchToken:
    """Return the driver's token once all tasks of a micro-batch have written."""
    return BatchToken(batch, tasks, rows, run, frozenset(range(tasks)).difference(empty))
