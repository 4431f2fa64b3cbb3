"""Decides, from the tokens alone, what a sink task does with its rows, and what the driver must refuse. Pure.

When Spark reruns a micro-batch, the micro-batch has the same number. A task whose rows are already in the topic finds a token
with this number, because the token became visible together with the rows, and writes nothing.

If the tokens do not show what is in the topic, or if the rows differ, the query fails. The user then chooses between rows that
may be duplicated and rows that may be missing (`Choice`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from spark_groupsource.errors import (
    BatchUnknown,
    CheckpointBehindSink,
    ReplayDiffers,
    SinkError,
    TokenUnreadable,
    WrittenElsewhere,
)
from spark_groupsource.partition import listed
from spark_groupsource.sink.names import Names
from spark_groupsource.sink.token import BatchToken, Committed, Token, Written, newest_batch_token, newest_token

NOTHING = Written(0, 0)
"""What a task without rows has written. Such a task leaves no token."""


class Choice(NamedTuple):
    """The user's choice for the one micro-batch that an error named."""

    rewrite: int | None = None
    """The `rewriteBatch` option: write this micro-batch again, whatever is already in the topic. This choice loses no row."""
    skip: int | None = None
    """The `skipBatch` option: write nothing more of this micro-batch. This choice duplicates no row."""

    def covers(self, batch: int) -> bool:
        """Return whether the user has made a choice for this micro-batch."""
        return batch in (self.rewrite, self.skip)


NO_CHOICE = Choice()


class Place(NamedTuple):
    """The tokens that the query has left under one other name: with another prefix or for another topic."""

    prefix: str
    topics: frozenset[str]
    """The topics for which the tokens were committed."""
    driver: BatchToken | None
    tasks: Mapping[int, Token]
    unreadable: bool = False
    """Whether a stored offset could not be read as a token."""

    @classmethod
    def of(cls, names: Names, groups: Mapping[int | None, Mapping[str, Committed]]) -> Place:
        """Parse the tokens under these names.

        Args:
            names: The other names.
            groups: The offsets that each task has committed, by topic. The key is the task's number, or `None` for the driver.
        """
        driver: BatchToken | None = None
        tasks: dict[int, Token] = {}
        unreadable = False
        for task, committed in groups.items():
            try:
                if task is None:
                    driver = newest_batch_token(committed.values(), names.driver, names.query)
                elif (token := newest_token(committed.values(), names.task(task), names.query)) is not None:
                    tasks[task] = token
            except TokenUnreadable:
                unreadable = True
        topics = frozenset(topic for committed in groups.values() for topic in committed)
        return cls(names.prefix, topics, driver, tasks, unreadable)

    @property
    def newest(self) -> int:
        """The latest micro-batch that was partly or completely written under this name. -1: none."""
        return max([-1 if self.driver is None else self.driver.batch, *(token.batch for token in self.tasks.values())])


class Plan(NamedTuple):
    """What a task does with its rows."""

    write: bool
    """Whether the task writes its rows. If not, it only reads them, to compare or count them."""
    before: Written | None = None
    """The rows from this task and micro-batch that are already in the topic. The same rows are never written again."""


def is_behind(batch: int, token: Token | None, driver: BatchToken | None) -> bool:
    """Return whether these tokens fail to show that the previous micro-batch was finished.

    The driver commits its token before Spark writes to the commit log. So when a task from micro-batch n runs, the driver's token
    is for n - 1, or already for n. If the token is older or does not exist, the micro-batches in between were written under
    another name, to another topic, or with another guarantee, or the tokens have expired. In that case, the query's other names
    are searched for tokens.
    """
    if token is not None and token.batch >= batch:
        return False
    return driver is None or driver.batch < batch - 1


def plan_task(
    task: str,
    number: int,
    batch: int,
    token: Token | None,
    driver: BatchToken | None,
    choice: Choice = NO_CHOICE,
    elsewhere: Collection[Place] | None = None,
) -> Plan:
    """Decide what a task does before it reads its first row.

    Each of a task's tokens replaces the previous one. So if the task's token is from an earlier micro-batch, the task has not
    written this micro-batch. An earlier token from the driver proves the same, because it was committed before any token from
    this micro-batch could be, and so expires first. But if the driver's token shows that a task had rows, and the task has no
    token, then the tokens are expiring, in the order in which their coordinators check them.

    Args:
        task: The task's transactional id, for the message.
        number: The task's number.
        batch: The micro-batch's number.
        token: The task's token, if it has one.
        driver: The driver's token, which is read if the task has no token from this run. `None`: the driver has none either.
        choice: The user's choice.
        elsewhere: The tokens under other names. `None`: they were not looked up, because the task has a token from this run.

    Raises:
        CheckpointBehindSink: The topic already has a later micro-batch.
        WrittenElsewhere: This micro-batch was partly or completely written under other names.
        BatchUnknown: The tokens do not show whether the task has written this micro-batch.
    """
    of_task = -1 if token is None else token.batch
    newest = max(of_task, -1 if driver is None else driver.batch)
    if newest > batch:
        raise _behind(task, batch, newest)
    if newest == batch:
        before = token.written if token is not None and of_task == batch else NOTHING
        return Plan(write=choice.rewrite == batch, before=before)
    if choice.covers(batch):
        return Plan(write=choice.rewrite == batch)
    if elsewhere is not None and is_behind(batch, token, driver):
        _check_elsewhere(task, batch, token, driver, elsewhere)
    elif any(place.newest == batch for place in elsewhere or ()):
        # The name was changed and then changed back, and in between, part of this micro-batch was written under the other name.
        raise _written_elsewhere(task, batch, elsewhere or ())
    elif token is None and driver is not None and driver.wrote is not None and number in driver.wrote:
        raise _unknown(task, batch, f"This task's offset has expired, and other tasks' offsets may have expired, too. {_EXPIRY}")
    return Plan(write=True)


def _check_elsewhere(task: str, batch: int, token: Token | None, driver: BatchToken | None, elsewhere: Collection[Place]) -> None:
    """Raise an error unless the tokens under other names show that no part of this micro-batch was written."""
    newest = max((place.newest for place in elsewhere), default=-1)
    if newest > batch:
        raise _behind(task, batch, newest)
    if newest == batch:
        raise _written_elsewhere(task, batch, elsewhere)
    if any(place.unreadable for place in elsewhere):
        raise _unknown(
            task,
            batch,
            "Another client, or another version of this package, has committed to a group in which the sink records what it has "
            "written.",
        )
    finished = max((place.driver.batch for place in elsewhere if place.driver is not None), default=-1)
    if finished < batch - 1:
        raise _unknown(task, batch, _why_behind(finished, token, driver))


def _why_behind(finished_elsewhere: int, token: Token | None, driver: BatchToken | None) -> str:
    """Return why no token shows that the previous micro-batch was finished."""
    finished = max(finished_elsewhere, -1 if driver is None else driver.batch)
    if finished < 0:
        return (
            "The query's groups have no offset for a finished micro-batch: it has expired, or was deleted together with its "
            f"topic, or deliveryGuarantee was changed. {_EXPIRY}"
        )
    if token is not None and driver is not None and driver.batch == finished and driver.batch < token.batch:
        # Spark has finished that micro-batch, so the driver once had a newer token, which an older one has replaced.
        return (
            f"The driver's offset is for micro-batch {finished}, but this task has since written micro-batch {token.batch}. So a "
            "second driver that uses this checkpoint, or a copy of it, has committed its offset late, or deliveryGuarantee was "
            "at-least-once for a while. Make sure that only one driver is running. If a second driver was the cause, "
            "rewriteBatch duplicates nothing, because tasks do not write rows again that they have already written."
        )
    return (
        f"According to the query's offsets, the latest finished micro-batch is {finished}. Since then, deliveryGuarantee was "
        "at-least-once, or transactionalIdPrefix or topic was changed and the offsets under the other name have expired, or a "
        "second driver that uses this checkpoint, or a copy of it, has committed its offset late."
    )


def _behind(task: str, batch: int, newest: int) -> CheckpointBehindSink:
    return CheckpointBehindSink(
        f"{task}: the query is about to write micro-batch {batch}, but micro-batch {newest} is already in the topic. The "
        "checkpoint was restored from an older copy, or a second driver is using it, or a copy of it. This task has written "
        "nothing. Choose:\n"
        "  - Start the query from its latest checkpoint. No row is missing or duplicated.\n"
        f"  - Set another transactionalIdPrefix together with rewriteBatch={batch}. The query then rewrites everything after "
        f"this checkpoint. No row is missing, but rows of micro-batches {batch} to {newest} may be duplicated."
    )


def _written_elsewhere(task: str, batch: int, elsewhere: Iterable[Place]) -> WrittenElsewhere:
    rows, places = _rows_elsewhere(batch, elsewhere)
    part = "all" if any(place.driver is not None and place.driver.batch == batch for place in elsewhere) else "part"
    return WrittenElsewhere(
        f"{task}: the query is about to write micro-batch {batch}, but {part} of it, {rows} rows, was written with {places}. "
        "transactionalIdPrefix or topic was changed while this micro-batch was only partly written. This task has written "
        "nothing. Choose:\n"
        "  - Start the query with its old prefix and topic. Once this micro-batch is finished, stop the query and change them. "
        "No row is missing or duplicated.\n"
        f"  - rewriteBatch={batch}: all rows of the micro-batch are written. No row is missing, but {rows} rows are "
        "duplicated.\n"
        f"  - skipBatch={batch}: nothing more of the micro-batch is written. No row is duplicated, but all rows except those "
        f"{rows} are missing."
    )


def check_elsewhere_again(
    name: str, batch: int, before: BatchToken | None, elsewhere: Collection[Place], choice: Choice = NO_CHOICE
) -> None:
    """Repeat, on the driver, the checks for tokens under other names that the tasks made before writing.

    A group may be missing from every broker's list while its coordinator moves. So the tasks in a run's first micro-batch may
    have missed tokens under another name. By the time the driver lists the groups, the move is over.

    Args:
        name: The group of the driver's token, for the message.
        batch: The micro-batch's number. All of its rows have been written.
        before: The driver's token.
        elsewhere: The tokens under other names.
        choice: The user's choice.

    Raises:
        CheckpointBehindSink: The topic already has a later micro-batch.
        WrittenElsewhere: Rows from this micro-batch have been duplicated.
    """
    newest = max((place.newest for place in elsewhere), default=-1)
    if choice.covers(batch) or newest < batch:
        return
    if is_behind(batch, None, before) and newest > batch:
        raise CheckpointBehindSink(
            f"{name}: micro-batch {batch} has been written, but micro-batch {newest} had been written before, with "
            f"{_rows_elsewhere(newest, elsewhere)[1]}. The checkpoint was restored from an older copy, and transactionalIdPrefix "
            "or topic was changed, and the brokers did not list those groups when the tasks looked for them. Rows of "
            f"micro-batch {batch} may be duplicated. Choose:\n"
            "  - Start the query from its latest checkpoint, with the earlier transactionalIdPrefix and topic. No other row is "
            "missing or duplicated.\n"
            f"  - rewriteBatch={batch}: the query continues from this checkpoint, and rewrites everything after it. No row is "
            f"missing, but rows of micro-batches {batch} to {newest} may be duplicated."
        )
    if not any(place.newest == batch for place in elsewhere):
        return
    rows, places = _rows_elsewhere(batch, elsewhere)
    raise WrittenElsewhere(
        f"{name}: micro-batch {batch} has been written, but {rows} of its rows had been written before, with {places}. "
        "transactionalIdPrefix or topic was changed while this micro-batch was only partly written, and the brokers did not "
        f"list those groups when its tasks looked for them. So up to {rows} rows are duplicated. To continue with the rows that "
        f"are in the topic, set rewriteBatch={batch} or skipBatch={batch}: neither option writes or removes any more rows."
    )


def _rows_elsewhere(batch: int, elsewhere: Iterable[Place]) -> tuple[int, str]:
    """Return how many of a micro-batch's rows were written under other names, and a description of these names."""
    places = [place for place in elsewhere if place.newest == batch]
    rows = sum(token.written.rows for place in places for token in place.tasks.values() if token.batch == batch)
    return rows, "; ".join(f"transactionalIdPrefix {place.prefix}, topic {listed(sorted(place.topics))}" for place in places)


_EXPIRY = "Offsets expire after offsets.retention.minutes (7 days by default) without a micro-batch."


def _unknown(task: str, batch: int, why: str) -> BatchUnknown:
    return BatchUnknown(
        f"{task}: the sink cannot tell whether micro-batch {batch} is already in the topic. {why} This task has written nothing. "
        "Choose:\n"
        f"  - rewriteBatch={batch}: all rows of the micro-batch are written. No row is missing. If the query was stopped during "
        "this micro-batch, the rows that it had written by then are duplicated. If it was stopped while it was waiting for "
        "data, none are.\n"
        f"  - skipBatch={batch}: no row of the micro-batch is written now. No row is duplicated, but the rows that the query had "
        "not written by then are missing."
    )


def check_choice(batch: int, run: str, driver: BatchToken | None, choice: Choice, *, begun: bool) -> None:
    """Refuse a choice that was not meant for this micro-batch, such as one left over from another checkpoint.

    Args:
        batch: The micro-batch's number.
        run: The query's run.
        driver: The driver's token.
        choice: The user's choice.
        begun: Whether the query has already written anything, under any name.

    Raises:
        SinkError: No earlier run can have left this micro-batch half written.
    """
    if not choice.covers(batch):
        return
    option = "rewriteBatch" if choice.rewrite == batch else "skipBatch"
    if driver is not None and driver.batch == batch - 1 and not may_be_a_replay(driver, run):
        raise SinkError(
            f"{option}={batch} is set, but this run has reached micro-batch {batch} without an error that asked for the option. "
            "Nothing of this micro-batch has been written or skipped. Remove the option."
        )
    if choice.skip == batch == 0 and not begun:
        raise SinkError(
            f"{option}={batch} is set, but this query has not written anything yet. The option is probably left over from an "
            "earlier checkpoint or from another query. No row has been written or skipped. Remove the option."
        )


def check_same(task: str, batch: int, before: Written, now: Written, choice: Choice = NO_CHOICE) -> bool:
    """Compare a replay's rows with the rows that are already in the topic.

    Returns:
        Whether they are the same. If not, the user has chosen what to do.

    Raises:
        ReplayDiffers: The rows are not the same, and the user has not made a choice.
    """
    if now == before or choice.covers(batch):
        return now == before
    raise ReplayDiffers(
        f"{task}: the topic has {before.rows} rows of micro-batch {batch} from this task, which now has {now.rows} "
        f"rows{' with different content' if before.rows == now.rows else ''}. The query or its input changed while this "
        "micro-batch was only partly written: its code or its number of tasks was changed, its results differ on every run, "
        "or another query has since read one of its ranges (heldClaims=reread). Rows that moved from one task to another may "
        f"already be duplicated. {_choices(batch, before.rows, now.rows)}"
    )


def _choices(batch: int, before: int, now: int) -> str:
    return (
        "Choose:\n"
        "  - Start the query as it was before. No row is missing or duplicated.\n"
        f"  - rewriteBatch={batch}: the {now} rows are written, and the {before} rows from the earlier attempt stay in the "
        f"topic. No row is missing, but up to {min(before, now)} rows are duplicated.\n"
        f"  - skipBatch={batch}: no task writes any more rows of the micro-batch. No row is duplicated, but up to {now} of these "
        "rows are missing, and so are the rows of tasks that have not written yet."
    )


def may_be_a_replay(last: Token | BatchToken | None, run: str) -> bool:
    """Return whether an earlier run of the query may have started this micro-batch.

    Args:
        last: The task's token or the driver's.
        run: The query's run. Empty: the platform does not provide it.
    """
    return last is None or not run or last.run != run


def may_continue(last: Token | None, batch: int, run: str, choice: Choice = NO_CHOICE) -> bool:
    """Return whether a task may write with a cached producer, without taking the transactional id or reading its token.

    As long as no other producer has taken the id, `last` belongs to the latest transaction under this id, so it is the token that
    the task would read. If another producer has taken the id, the brokers refuse the cached producer before anything becomes
    visible. With a token from the same run and an earlier micro-batch, a task writes no matter what the driver's token is
    (`plan_task`). In all other cases, the task must read first: the micro-batch may have been written already, or the query's
    names may have changed between two runs.

    A producer that did not write the previous micro-batch is useless, because another worker probably wrote it and took the id.

    Args:
        last: The last token that the cached producer has committed, under the same transactional id.
        batch: The micro-batch's number.
        run: The query's run. Empty: the platform does not provide it.
        choice: The user's choice.
    """
    return last is not None and bool(run) and last.run == run and last.batch == batch - 1 and not choice.covers(batch)


def is_overtaken(last: Token | None, batch: int, run: str) -> bool:
    """Return whether a cached producer can no longer be used in this run, starting with micro-batch `batch` (`may_continue`).

    Spark may assign a task to a different worker in each micro-batch. If such producers were not closed, each worker's cache
    would soon have a producer for every task.
    """
    return last is not None and last.run == run and last.batch < batch - 1


def check_batch(
    batch: int, tasks: int, rows: int, before: BatchToken | None, silent: Mapping[int, Token], choice: Choice = NO_CHOICE
) -> None:
    """Check, on the driver, that a replay had the same tasks and the same number of rows as the previous attempt.

    Args:
        batch: The micro-batch's number.
        tasks: The number of its tasks.
        rows: The number of their rows.
        before: The driver's token.
        silent: The tokens of tasks that now have no rows, and so have not read their own tokens. They include tasks whose numbers
            are higher than any in this attempt.
        choice: The user's choice.

    Raises:
        CheckpointBehindSink: The topic already has a later micro-batch.
        ReplayDiffers: An earlier attempt wrote rows in a task that now has none, or wrote a different number of rows.
    """
    if before is not None and before.batch > batch:
        raise CheckpointBehindSink(
            f"Micro-batch {batch} has been written, but micro-batch {before.batch} is already in the topic: a second driver is "
            "using the same checkpoint, or a copy of it. No row is missing or duplicated. Stop one of the two drivers."
        )
    if choice.covers(batch):
        return
    strangers = sorted(number for number, token in silent.items() if token.batch == batch and token.written.rows)
    if strangers:
        earlier = sum(silent[number].written.rows for number in strangers)
        raise ReplayDiffers(
            f"Micro-batch {batch} now has {tasks} tasks with {rows} rows, all of which are written. An earlier attempt wrote "
            f"{earlier} rows in tasks that now have none ({listed(strangers, 5)}). The query, its number of tasks, or its input "
            "(heldClaims=reread) changed while this micro-batch was only partly written. No row is missing, but up to "
            f"{min(earlier, rows)} rows are duplicated. To continue with the rows that are in the topic, set "
            f"rewriteBatch={batch} or skipBatch={batch}: both have the same effect here."
        )
    if before is not None and before.batch == batch and before.rows != rows:
        raise ReplayDiffers(
            f"Micro-batch {batch} now has {rows} rows, but an earlier attempt had written all of it, with {before.rows} rows. So "
            f"its results differ on every run. {_choices(batch, before.rows, rows)}"
        )
