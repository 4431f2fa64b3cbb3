"""Finishes a micro-batch on the driver: aborts leftover transactions, checks a replay, and commits the driver's token."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import NamedTuple, cast

from confluent_kafka import KafkaException

from spark_groupsource.brokers.client_pool import digest, pool
from spark_groupsource.errors import GroupKafkaError
from spark_groupsource.patience import Deadline
from spark_groupsource.sink.failures import failure
from spark_groupsource.sink.names import Names
from spark_groupsource.sink.producer import is_retriable, make_producer
from spark_groupsource.sink.rules import check_batch, check_elsewhere_again, may_be_a_replay
from spark_groupsource.sink.settings import SinkSettings
from spark_groupsource.sink.token import BatchToken, Mark
from spark_groupsource.sink.token_store import TokenStore
from spark_groupsource.timeouts import ABORT_S, CONNECT_S, TRANSACTION_S, TRY_S

log = logging.getLogger(__name__)


class Tasks(NamedTuple):
    """The combined reports from a micro-batch's tasks."""

    number: int
    """The number of tasks."""
    rows: int
    """How many of the tasks' rows are in the topic, whether they were written now or earlier."""
    topics: tuple[str, ...]
    """The topics that the tasks wrote to."""
    wrote: frozenset[int] = frozenset()
    """The numbers of the tasks that have a token from this micro-batch."""
    empty: frozenset[int] = frozenset()
    """The numbers of the tasks without rows."""
    retried: frozenset[int] = frozenset()
    """The numbers of the tasks that had an earlier attempt."""


def finish(settings: SinkSettings, names: Names, batch: int, run: str, tasks: Tasks) -> None:
    """Commit the driver's token once all tasks of a micro-batch have written.

    Args:
        settings: How the query writes.
        names: The query's names.
        batch: The micro-batch's number.
        run: The query's run.
        tasks: The reports from its tasks.

    Raises:
        ReplayDiffers, WrittenElsewhere, CheckpointBehindSink: See rules.py.
        BrokerError: The token cannot be read or committed.
    """
    clients = pool()
    # A new run never reuses an earlier run's client. The client's coordinator may have been cut off from the cluster since then,
    # and so may not have the tokens that the earlier run committed in the meantime.
    key = "tokens", run, names, digest(settings.requests), settings.topic
    kept = cast("TokenStore | None", clients.take(key))
    tokens = kept or clients.add(TokenStore(settings.requests, names, settings.topic))
    done = False
    try:
        if kept is None:
            tokens.connect_driver()
        # 1. Read the driver's token: is this the first micro-batch of a run, which may be a replay?
        before = tokens.read_driver()
        first = may_be_a_replay(before, run)
        # 2. Abort the transactions that earlier attempts left open, before step 3 reads their tokens. Otherwise, one could commit
        #    afterwards, and the topic would have its rows in addition to this attempt's.
        ended = _end_earlier_attempts(settings, names, tokens, tasks, first=first)
        # 3. Compare the tasks' rows with those that were written before.
        if first:
            check_elsewhere_again(names.driver, batch, before, tokens.list_elsewhere(tasks.topics), settings.choice)
        check_batch(batch, tasks.number, tasks.rows, before, tokens.read_tasks(ended, tasks.topics), settings.choice)
        # 4. Commit the token. From now on, a replay of the micro-batch is recognized.
        if before is None or before.batch != batch:
            token = BatchToken(names.query, batch, tasks.number, tasks.rows, run, tasks.wrote)
            tokens.commit_driver(token, tasks.topics)
        # 5. Replace the marks, but not before step 4: if the driver dies in between, the restart needs them. Keep the marks of
        #    this run's tasks, because their workers rely on them.
        others = [number for number, mark in ended.items() if number >= tasks.number or mark.run != run]
        tokens.commit_ended(others, run, tasks.topics)
        tokens.close_others()
        done = True
    finally:
        # If the run is unknown, no later micro-batch may reuse these clients.
        if done and run:
            clients.keep(key, tokens)
        else:
            clients.close(tokens)


def _end_earlier_attempts(
    settings: SinkSettings, names: Names, tokens: TokenStore, tasks: Tasks, *, first: bool
) -> Mapping[int, Mark]:
    """Abort the transactions of tasks that had rows in an earlier attempt but have none now, and return these tasks' marks.

    A task without rows does not take its transactional id, so it does not abort a transaction that an earlier attempt left open.
    `read_committed` consumers see nothing after that transaction until it is aborted. A task without a mark has neither a
    transaction nor a token from this micro-batch.
    """
    # In the first micro-batch of a run, an earlier run may have had more tasks.
    without_rows = {*tasks.empty, *range(tasks.number, tokens.read_reach())} if first else tasks.empty & tasks.retried
    marked = tokens.read_marks(sorted(without_rows))
    for number in sorted(marked):
        end_transaction(settings, names.task(number), TRANSACTION_S)
    return marked


def abort(settings: SinkSettings, names: Names, unfinished: Collection[int]) -> None:
    """Abort the transactions of a micro-batch that has failed, best effort: killed workers may have left theirs open.

    Args:
        settings: How the query writes.
        names: The query's names.
        unfinished: The numbers of the tasks that have not reported success.
    """
    deadline = Deadline(ABORT_S)
    tokens = TokenStore(settings.requests, names, settings.topic)
    try:
        for number in sorted(tokens.read_marks(sorted(unfinished))):
            end_transaction(settings, names.task(number), deadline.left)
    except GroupKafkaError as failed:
        log.warning(
            "%s: a transaction from the failed micro-batch may still be open. Nothing is lost, but `read_committed` consumers "
            "cannot read past it until the query is restarted, or kafka.transaction.timeout.ms has passed: %s",
            names.driver,
            failed,
        )
    finally:
        tokens.close(wait=False)


def end_transaction(settings: SinkSettings, name: str, patience_s: float) -> None:
    """Take a transactional id, which aborts any transaction that another producer has open under this id.

    Args:
        settings: How the query writes.
        name: The transactional id.
        patience_s: How long to try, in seconds.

    Raises:
        GroupKafkaError: The id was not taken.
    """
    producer = make_producer({**settings.producer, "transactional.id": name}, None)
    try:
        producer.connect(CONNECT_S)
        # Unlike `retried`, do not give up after two refused logins: restarting brokers may interrupt two handshakes, and
        # Spark does not retry the driver.
        deadline = Deadline(patience_s)
        deadline.retry(lambda: producer.init_transactions(min(TRY_S, max(deadline.left, 1.0))), is_retriable)
    except KafkaException as failed:
        raise failure(failed.args[0], f"aborting the transaction of {name}", producer.errors) from None
    finally:
        producer.close()
