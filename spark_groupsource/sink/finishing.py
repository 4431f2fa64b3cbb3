"""The end of a micro-batch, at the driver: check that a replay was the same, end what earlier attempts left, and keep a token."""

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
from spark_groupsource.sink.producers import make_producer
from spark_groupsource.sink.rules import after_batch, check_batch, check_elsewhere_again, may_be_a_replay
from spark_groupsource.sink.settings import SinkSettings
from spark_groupsource.sink.token import Mark
from spark_groupsource.sink.tokens import Tokens
from spark_groupsource.timeouts import ABORT_S, CONNECT_S, INIT_TRY_S, TRANSACTION_S

log = logging.getLogger(__name__)


class Tasks(NamedTuple):
    """What the tasks of a micro-batch have reported."""

    number: int
    """How many there are."""
    rows: int
    """How many rows of theirs are in the topic, whether they were written now or before."""
    topics: tuple[str, ...]
    """The topics that they wrote to."""
    wrote: frozenset[int] = frozenset()
    """Those with a token of this micro-batch, by number."""
    empty: frozenset[int] = frozenset()
    """Those without rows."""
    retried: frozenset[int] = frozenset()
    """Those of which Spark had begun another attempt before."""


def finish(settings: SinkSettings, names: Names, batch: int, run: str, tasks: Tasks) -> None:
    """Keep the driver's token once all tasks of a micro-batch have written.

    Args:
        settings: How the query writes.
        names: The query's names.
        batch: The number of the micro-batch.
        run: The run of the query.
        tasks: What its tasks have reported.

    Raises:
        ReplayDiffers, WrittenElsewhere, CheckpointBehindSink: See rules.py.
        BrokerError: The token cannot be read or committed.
    """
    clients = pool()
    # A new run never takes the client of an earlier one: the coordinator that it has found first may be cut off from the others,
    # and not know of what the earlier run has written since.
    key = "tokens", run, names, digest(settings.requests), settings.topic
    kept = cast("Tokens | None", clients.take(key)) if run else None
    tokens = kept or clients.add(Tokens(settings.requests, names, settings.topic))
    try:
        if kept is None:
            tokens.connect_driver()
        # 1. Read the driver's token: is this the first micro-batch of a run, which may be a replay?
        before = tokens.of_driver()
        first = may_be_a_replay(before, run)
        # 2. End what earlier attempts left open, before 3 reads their tokens. A transaction that is still open could commit one
        #    afterwards, and its rows would be there besides those of this attempt.
        left = _left_by_earlier_tries(settings, names, tokens, tasks, first=first)
        # 3. Compare what the tasks have written with what was there.
        if first:
            check_elsewhere_again(names.driver, batch, before, tokens.elsewhere(tasks.topics), settings.choice)
        check_batch(batch, tasks.number, tasks.rows, before, tokens.of_tasks(left, tasks.topics), settings.choice)
        # 4. Keep the token. From here on a replay of the micro-batch is known as one.
        if before is None or before.batch != batch:
            token = after_batch(names.query, batch, tasks.number, tasks.rows, run, tasks.wrote)
            tokens.commit(token, tasks.topics)
        # 5. Take back the marks, and not before 4: a restart has to find what a driver that dies in between has not finished.
        #    Those of this run stay, because a worker relies on the mark that it has left.
        others = [number for number, mark in left.items() if number >= tasks.number or mark.run != run]
        tokens.unmark(others, run, tasks.topics)
    except BaseException:
        clients.close(tokens)
        raise
    tokens.close_others()
    if run:
        clients.keep(key, tokens)
    else:
        clients.close(tokens)


def _left_by_earlier_tries(
    settings: SinkSettings, names: Names, tokens: Tokens, tasks: Tasks, *, first: bool
) -> Mapping[int, Mark]:
    """End the transactions of tasks that had rows in an earlier attempt and have none now, and return their marks.

    Nobody else ends them: a task without rows takes no transactional id. Until they end, no reader of committed records sees what
    comes after them. Without a mark a task has neither a transaction nor a token of this micro-batch.

    Args:
        settings: See `finish`.
        names: See `finish`.
        tokens: The query's tokens.
        tasks: See `finish`.
        first: Whether this may be the first micro-batch of a run: then an earlier run may have had more tasks.
    """
    silent = {*tasks.empty, *range(tasks.number, tokens.reach())} if first else tasks.empty & tasks.retried
    marked = tokens.marks(sorted(silent))
    for number in sorted(marked):
        end_transaction(settings, names.task(number), TRANSACTION_S)
    return marked


def abort(settings: SinkSettings, names: Names, unfinished: Collection[int]) -> None:
    """End the transactions of a micro-batch that Spark has given up, best effort: a worker that was killed has not done it.

    Args:
        settings: How the query writes.
        names: The query's names.
        unfinished: The numbers of the tasks that have not reported that they have written.
    """
    deadline = Deadline(ABORT_S)
    tokens = Tokens(settings.requests, names, settings.topic)
    try:
        for number in sorted(tokens.marks(sorted(unfinished))):
            end_transaction(settings, names.task(number), deadline.left)
    except GroupKafkaError as failed:
        log.warning(
            "%s: a transaction of the micro-batch that was given up may still be open, and readers of committed records wait "
            "until the query is started again, or for kafka.transaction.timeout.ms: %s",
            names.driver,
            failed,
        )
    finally:
        tokens.close(wait=False)


def end_transaction(settings: SinkSettings, name: str, patience_s: float) -> None:
    """Take a transactional id, and with it end the transaction that another producer may have open.

    Args:
        settings: How the query writes.
        name: The transactional id.
        patience_s: For how long that is tried again, in seconds.

    Raises:
        GroupKafkaError: It was not taken.
    """
    # It writes no row.
    producer = make_producer({**settings.producer, "transactional.id": name}, None)
    try:
        producer.connect(CONNECT_S)
        Deadline(patience_s).retry(lambda: producer.init_transactions(INIT_TRY_S), _passes)
    except KafkaException as failed:
        raise failure(failed.args[0], f"ending the transaction of {name}", producer.errors) from None
    finally:
        producer.close()


def _passes(error: Exception) -> bool:
    return isinstance(error, KafkaException) and bool(error.args[0].retriable())
