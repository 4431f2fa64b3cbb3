"""The end of a micro-batch, at the driver: it checks that a replay was the same, and keeps the driver's token."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from spark_groupsource.sink.rules import after_batch, check_batch, may_be_a_replay
from spark_groupsource.sink.settings import SinkSettings
from spark_groupsource.sink.tokens import Tokens


def finish(settings: SinkSettings, prefix: str, batch: int, run: str, tasks: int, rows: int, topics: Iterable[str]) -> None:
    """Keep the driver's token once all tasks of a micro-batch have written.

    Args:
        settings: How the query writes.
        prefix: Its `transactionalIdPrefix`.
        batch: The number of the micro-batch.
        run: The run of the query.
        tasks: How many tasks the micro-batch has.
        rows: How many rows they have, whether they were written now or before.
        topics: The topics that they wrote to.

    Raises:
        ReplayDiffers, CheckpointBehindSink: See rules.py.
        BrokerError: The token cannot be read or committed.
    """
    tokens = Tokens(settings.requests, prefix)
    before = tokens.of_driver()
    others = {}
    if before is not None and may_be_a_replay(before, run):
        found = ((number, tokens.of_task(number)) for number in range(tasks, before.most))
        others = {number: token for number, token in found if token is not None}
    check_batch(batch, tasks, rows, before, others, settings.accept_batch)
    if before is not None and before.batch == batch:
        return
    # Any topic that the user may read will do: its partition 0 only carries the offset.
    own = [settings.topic] if settings.topic is not None else []
    tokens.commit(after_batch(batch, tasks, rows, run, before), itertools.chain(own, topics, tokens.topics()))
