"""What a task of the sink does with its rows, and what the driver checks: decided from the tokens alone. Pure.

A micro-batch that Spark runs again has the same number. A task whose rows are there already finds the token of that number, which
became visible with the rows. So it writes nothing.

Where that cannot be known, or where the rows differ, the query ends, and a person chooses between two prices (`Choice`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from spark_groupsource.errors import BatchUnknown, CheckpointBehindSink, ReplayDiffers, SinkError, WrittenElsewhere
from spark_groupsource.partition import listed
from spark_groupsource.sink.token import BatchToken, Token, Written

NOTHING = Written(0, 0)
"""What a task has written that had no rows. Such a task leaves no token."""


class Choice(NamedTuple):
    """What the user chose for one micro-batch that an error named."""

    rewrite: int | None = None
    """The option `rewriteBatch`: this micro-batch is written again, whatever is in the topic. No row is missing then."""
    skip: int | None = None
    """The option `skipBatch`: nothing more of this micro-batch is written. This choice duplicates no row."""

    def covers(self, batch: int) -> bool:
        """Return whether the user has chosen for this micro-batch."""
        return batch in (self.rewrite, self.skip)


NO_CHOICE = Choice()


class Place(NamedTuple):
    """What the query has written under another name than it has now: with another prefix, or to another topic."""

    prefix: str
    topics: frozenset[str]
    """Where its tokens are."""
    driver: BatchToken | None
    tasks: Mapping[int, Token]
    unreadable: bool = False
    """Whether something there is no token."""

    @property
    def newest(self) -> int:
        """The newest micro-batch that was written there, in part or as a whole. -1: none."""
        return max([-1 if self.driver is None else self.driver.batch, *(token.batch for token in self.tasks.values())])


class Plan(NamedTuple):
    """What a task does with its rows."""

    write: bool
    """Whether it writes them. Otherwise it reads them only, to compare or to count them."""
    before: Written | None = None
    """What is in the topic of this task and micro-batch already. With `write`, the same rows are not written again."""


def is_behind(batch: int, token: Token | None, driver: BatchToken | None) -> bool:
    """Return whether these tokens do not show what became of the micro-batch before.

    The driver keeps its token before Spark's commit log is written. So before a task of micro-batch n runs, the driver's is that
    of n - 1, or already that of n. If it is older, or there is none, the micro-batches between were written under another name,
    to another topic or with another guarantee; or the tokens have expired. Then the query looks for itself elsewhere.
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
        choice: What the user chose.
        elsewhere: What the query has written in other places. `None`: nobody has looked, since the task has a token of this run.

    Raises:
        CheckpointBehindSink: A later micro-batch is in the topic.
        WrittenElsewhere: This one is there under another name, or in another topic, in part or as a whole.
        BatchUnknown: Nothing says whether the task has written this one.
    """
    of_task = -1 if token is None else token.batch
    newest = max(of_task, -1 if driver is None else driver.batch)
    if newest > batch:
        raise _behind(task, batch, newest)
    if newest == batch:
        before = token.written if token is not None and of_task == batch else NOTHING
        return Plan(write=choice.rewrite == batch, before=before)
    if choice.rewrite == batch:
        return Plan(write=True)
    if choice.skip == batch:
        return Plan(write=False)
    if elsewhere is not None and is_behind(batch, token, driver):
        _check_elsewhere(task, batch, driver, elsewhere)
        return Plan(write=True)
    if any(place.newest == batch for place in elsewhere or ()):
        # The name was changed, and changed back: this micro-batch is half written where it was meanwhile.
        raise _written_elsewhere(task, batch, elsewhere or ())
    if token is None and driver is not None and driver.wrote is not None and number in driver.wrote:
        raise _unknown(task, batch, "its own offset has expired, and those of other tasks may have, too")
    return Plan(write=True)


def _check_elsewhere(task: str, batch: int, driver: BatchToken | None, elsewhere: Collection[Place]) -> None:
    """Raise an error unless what is in other places says that this micro-batch is nowhere."""
    newest = max((place.newest for place in elsewhere), default=-1)
    if newest > batch:
        raise _behind(task, batch, newest)
    if newest == batch:
        raise _written_elsewhere(task, batch, elsewhere)
    if any(place.unreadable for place in elsewhere):
        raise _unknown(
            task, batch, "another client, or another version of this package, has committed to a group in which it was kept"
        )
    whole = max((place.driver.batch for place in elsewhere if place.driver is not None), default=-1)
    if whole == batch - 1 or (batch == 0 and driver is None):
        return
    known = max(whole, -1 if driver is None else driver.batch)
    if known < 0:
        raise _unknown(task, batch, "there are none: they have expired, or were deleted with their topic, or never were")
    raise _unknown(task, batch, f"the newest micro-batch that they show as finished is {known}")


def _behind(task: str, batch: int, newest: int) -> CheckpointBehindSink:
    return CheckpointBehindSink(
        f"{task}: micro-batch {batch} is to be written, and micro-batch {newest} is in the topic already. The checkpoint is "
        "older than what the query has written: it was restored, or a second driver runs on a copy of it. Choose:\n"
        "  - Start with the newest checkpoint. No row is missing or duplicated.\n"
        f"  - Set another transactionalIdPrefix, and rewriteBatch={batch}. Then everything after this checkpoint is written "
        f"again. No row is missing. Rows of micro-batches {batch} to {newest} may be duplicated."
    )


def _written_elsewhere(task: str, batch: int, elsewhere: Iterable[Place]) -> WrittenElsewhere:
    rows, where = _there(batch, elsewhere)
    part = "all of it" if any(place.driver is not None and place.driver.batch == batch for place in elsewhere) else "a part of it"
    return WrittenElsewhere(
        f"{task}: micro-batch {batch} is to be written, and {part}, {rows} rows, was written with {where}. transactionalIdPrefix "
        "or topic was changed while this micro-batch was half written. This task has written nothing. "
        "Choose:\n  - Start the query with the prefix and the topic that it had. Once this micro-batch is finished, stop the "
        "query and change them. No row is missing or duplicated.\n"
        f"  - rewriteBatch={batch}: all rows of the micro-batch are written. No row is missing, and {rows} rows are duplicated.\n"
        f"  - skipBatch={batch}: nothing more of it is written. This choice duplicates no row, and all but those {rows} "
        "rows are missing."
    )


def check_elsewhere_again(
    name: str, batch: int, before: BatchToken | None, elsewhere: Collection[Place], choice: Choice = NO_CHOICE
) -> None:
    """Check, at the driver, what the tasks have checked before they wrote.

    While a group moves to its next coordinator, it may be in no broker's list. So the tasks of a first micro-batch may have
    missed what was written under another name. When the driver looks, the group is there again.

    Args:
        name: The group of the driver's token, for the error.
        batch: The number of the micro-batch, which is written.
        before: The driver's token.
        elsewhere: What the query has written in other places.
        choice: What the user chose.

    Raises:
        CheckpointBehindSink: A later micro-batch is in the topic.
        WrittenElsewhere: This one is duplicated, in part or as a whole.
    """
    newest = max((place.newest for place in elsewhere), default=-1)
    if choice.covers(batch) or newest < batch:
        return
    if is_behind(batch, None, before) and newest > batch:
        raise _behind(name, batch, newest)
    if not any(place.newest == batch for place in elsewhere):
        return
    rows, where = _there(batch, elsewhere)
    raise WrittenElsewhere(
        f"{name}: micro-batch {batch} is written, and {rows} rows of it had been written with {where}. transactionalIdPrefix or "
        "topic was changed while this micro-batch was half written, and the brokers did not list those groups when its tasks "
        f"looked for them. So up to {rows} rows are duplicated. To continue with the rows that are in the topic, set "
        f"rewriteBatch={batch} or skipBatch={batch}: nothing more is written or removed."
    )


def _there(batch: int, elsewhere: Iterable[Place]) -> tuple[int, str]:
    """Return how many rows of a micro-batch are in other places, and which these are."""
    there = [place for place in elsewhere if place.newest == batch]
    rows = sum(token.written.rows for place in there for token in place.tasks.values() if token.batch == batch)
    return rows, "; ".join(f"transactionalIdPrefix {place.prefix}, topic {listed(sorted(place.topics))}" for place in there)


def _unknown(task: str, batch: int, why: str) -> BatchUnknown:
    return BatchUnknown(
        f"{task}: nothing says whether micro-batch {batch} is in the topic already. The sink keeps offsets in its groups, and "
        f"{why}. Offsets expire after offsets.retention.minutes (7 days by default) without a micro-batch. Choose:\n"
        f"  - rewriteBatch={batch}: the rows of the micro-batch are written. None is missing. If the query was stopped in this "
        "micro-batch, those that it had written by then are duplicated. If it was stopped while it waited for data, none is.\n"
        f"  - skipBatch={batch}: nothing of the micro-batch is written now. No row is duplicated, and those that the query had "
        "not written by then are missing."
    )


def check_choice(batch: int, run: str, driver: BatchToken | None, choice: Choice, *, begun: bool) -> None:
    """Refuse a choice that was not made for this micro-batch: it is left from another checkpoint, or names another number.

    Args:
        batch: The number of the micro-batch.
        run: The run of the query.
        driver: The driver's token.
        choice: What the user chose.
        begun: Whether the query has written anything by now, under whatever name.

    Raises:
        SinkError: The micro-batch was not half written before this run.
    """
    if not choice.covers(batch):
        return
    option = "rewriteBatch" if choice.rewrite == batch else "skipBatch"
    if driver is not None and driver.batch == batch - 1 and not may_be_a_replay(driver, run):
        raise SinkError(
            f"{option}={batch} is set, and this run has reached micro-batch {batch} by itself: no error has named it. Remove the "
            "option. Nothing of this micro-batch has been written or left out."
        )
    if choice.skip == batch == 0 and not begun:
        raise SinkError(
            f"{option}={batch} is set, but this query has not written anything yet. The option is probably left over from an "
            "earlier checkpoint or from another query. No row has been written or skipped. Remove the option."
        )


def check_same(task: str, batch: int, before: Written, now: Written, choice: Choice = NO_CHOICE) -> bool:
    """Compare the rows of a replay with those that are in the topic.

    Returns:
        Whether they are the same. If not, the user has chosen what becomes of them.

    Raises:
        ReplayDiffers: They are not the same.
    """
    if now == before or choice.covers(batch):
        return now == before
    raise ReplayDiffers(
        f"{task}: the topic has {before.rows} rows of micro-batch {batch} from this task, which now has {now.rows} rows"
        f"{' with different content' if before.rows == now.rows else ''}. The query or its input changed while this micro-batch "
        "was half written: its code, its number of tasks, results that differ on every run, or a range that another query has "
        "since read (heldClaims=reread). Rows that moved from one task to another may already be duplicated. "
        f"{_choices(batch, before.rows, now.rows)}"
    )


def _choices(batch: int, before: int, now: int) -> str:
    return (
        "Choose:\n"
        "  - Start the query as it was. No row is missing or duplicated.\n"
        f"  - rewriteBatch={batch}: the {now} rows are written, and the {before} rows of the earlier attempt stay. No row is "
        f"missing, and up to {min(before, now)} rows are duplicated.\n"
        f"  - skipBatch={batch}: no task writes anything more of the micro-batch. This choice duplicates no row. Up to {now} "
        "rows of this task are missing, and so are the rows of tasks that have not written."
    )


def may_be_a_replay(last: Token | BatchToken | None, run: str) -> bool:
    """Return whether this micro-batch may have been tried by an earlier run of the query. A platform may not name the run.

    Args:
        last: The token of the task, or the driver's.
        run: The run of the query.
    """
    return last is None or not run or last.run != run


def may_continue(last: Token | None, batch: int, run: str, choice: Choice = NO_CHOICE) -> bool:
    """Return whether a task may write with a kept producer, without taking the transactional id and without reading the token.

    While no other producer has taken the id, `last` is the newest transaction under it, so it is the token that the task would
    read. If another producer has taken the id, the brokers refuse the kept one before anything becomes visible. A token of the
    same run and of an earlier micro-batch makes the task write, whatever the driver's token says (`plan_task`). In every other
    case the task has to look: the micro-batch may be written, or the names of the query may have changed between two runs.

    A producer that has not written the micro-batch before is of no use: probably another worker has, and taken the id.

    Args:
        last: What the kept producer has committed last, under the same transactional id.
        batch: The number of the micro-batch.
        run: The run of the query. Empty: the platform does not name it.
        choice: What the user chose.
    """
    return last is not None and bool(run) and last.run == run and last.batch == batch - 1 and not choice.covers(batch)


def is_overtaken(last: Token | None, batch: int, run: str) -> bool:
    """Return whether no task of this run can still continue with a kept producer (`may_continue`), when it is at `batch`.

    Spark gives a task of each micro-batch to another worker, so without this each worker would keep a producer for every task.
    """
    return last is not None and last.run == run and last.batch < batch - 1


def check_batch(
    batch: int, tasks: int, rows: int, before: BatchToken | None, silent: Mapping[int, Token], choice: Choice = NO_CHOICE
) -> None:
    """Check, at the driver, that a replay had the tasks and the rows of the try before.

    Args:
        batch: The number of the micro-batch.
        tasks: How many tasks it has.
        rows: How many rows they have.
        before: The driver's token.
        silent: The tokens of tasks that have no rows now: they looked at no token themselves. Tasks with higher numbers, which
            this attempt does not have, are among them.
        choice: What the user chose.

    Raises:
        CheckpointBehindSink: A later micro-batch is in the topic.
        ReplayDiffers: An earlier attempt wrote rows in a task that there is not now, or another number of rows.
    """
    if before is not None and before.batch > batch:
        raise CheckpointBehindSink(
            f"Micro-batch {batch} was written, and micro-batch {before.batch} is in the topic already: a second driver runs on "
            "the same checkpoint, or on a copy of it. Stop one of the two. No row is missing or duplicated."
        )
    if choice.covers(batch):
        return
    strangers = sorted(number for number, token in silent.items() if token.batch == batch and token.written.rows)
    if strangers:
        there = sum(silent[number].written.rows for number in strangers)
        raise ReplayDiffers(
            f"Micro-batch {batch} now has {tasks} tasks with {rows} rows, all of which are written. An earlier attempt wrote "
            f"{there} rows in tasks that have none now ({listed(strangers, 5)}). The query, its number of tasks, or its input "
            "(heldClaims=reread) changed while this micro-batch was half written. The only choice:\n"
            f"  - rewriteBatch={batch} or skipBatch={batch}: the query continues with the rows that are in the topic. No row is "
            f"missing, and up to {min(there, rows)} rows are duplicated."
        )
    if before is not None and before.batch == batch and before.rows != rows:
        raise ReplayDiffers(
            f"Micro-batch {batch} has {rows} rows now, and an earlier attempt had written all of it with {before.rows}. So its "
            f"results are different each time. {_choices(batch, before.rows, rows)}"
        )


def after_batch(query: str, batch: int, tasks: int, rows: int, run: str, wrote: Collection[int]) -> BatchToken:
    """Return the driver's token once all tasks of a micro-batch have written.

    Args:
        query: The query's id.
        batch: The number of the micro-batch.
        tasks: How many tasks it has.
        rows: How many rows they have.
        run: The run of the query.
        wrote: The numbers of the tasks that have a token of this micro-batch.
    """
    return BatchToken(query, batch, tasks, rows, run, frozenset(wrote))
