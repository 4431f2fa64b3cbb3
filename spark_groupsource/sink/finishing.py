"""The end of a micro-batch, at the driver: it checks that a replay was the same, and keeps the driver's token."""

from __future__ import annotations

from typing import NamedTuple

from spark_groupsource.sink.rules import after_batch, check_batch, may_be_a_replay
from spark_groupsource.sink.settings import SinkSettings
from spark_groupsource.sink.tokens import Tokens


class Tasks(NamedTuple):
    """What the tasks of a micro-batch have reported."""

    number: int
    """How many there are."""
    rows: int
    """How many rows they have, whether they were written now or before."""
    topics: tuple[str, ...]
    """The topics that they wrote to."""
    empty: frozenset[int] = frozenset()
    """Those without rows, by number."""
    retried: frozenset[int] = frozenset()
    """Those of which Spark had begun another try before."""


def finish(settings: SinkSettings, prefix: str, batch: int, run: str, tasks: Tasks) -> None:
    """Keep the driver's token once all tasks of a micro-batch have written.

    Args:
        settings: How the query writes.
        prefix: Its `transactionalIdPrefix`.
        batch: The number of the micro-batch.
        run: The run of the query.
        tasks: What its tasks have reported.

    Raises:
        ReplayDiffers, CheckpointBehindSink: See rules.py.
        BrokerError: The token cannot be read or committed.
    """
    tokens = Tokens(settings.requests, prefix, settings.topic)
    try:
        _finish(tokens, batch, run, tasks, settings.accept_batch)
    finally:
        tokens.close()


def _finish(tokens: Tokens, batch: int, run: str, tasks: Tasks, accepted: int | None) -> None:
    before = tokens.of_driver()
    replayed = may_be_a_replay(before, run)
    asked = tasks.empty if replayed else tasks.empty & tasks.retried
    silent = {}
    if accepted != batch:
        silent = tokens.of_tasks(sorted(asked), tasks.topics)
        if replayed:
            silent |= tokens.of_tasks_from(tasks.number, tasks.topics)
    check_batch(batch, tasks.number, tasks.rows, before, silent, accepted)
    if before is None or before.batch != batch:
        tokens.commit(after_batch(batch, tasks.number, tasks.rows, run, tasks.empty), tasks.topics)
