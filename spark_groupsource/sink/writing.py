"""How a task writes its rows: at least once, or each row once."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

import pyarrow as pa
from confluent_kafka import KafkaException

from spark_groupsource.brokers.login_trouble import is_refused
from spark_groupsource.errors import GroupKafkaError
from spark_groupsource.patience import Deadline
from spark_groupsource.sink.columns import rows_of, topics_of
from spark_groupsource.sink.contract import NotDelivered, Producer, Undelivered
from spark_groupsource.sink.failures import PURGED, failure, undelivered
from spark_groupsource.sink.producers import make_producer
from spark_groupsource.sink.rules import is_same, may_be_a_replay, written_before
from spark_groupsource.sink.settings import SinkSettings
from spark_groupsource.sink.token import Token, Written
from spark_groupsource.sink.tokens import Tokens, task_id
from spark_groupsource.timeouts import ABORT_S, CONNECT_S, INIT_TRY_S, TRANSACTION_S

log = logging.getLogger(__name__)


class Attempt(NamedTuple):
    """Which task this is, as Spark's TaskContext says it."""

    batch: int
    """The number of the micro-batch."""
    task: int
    """The number of the task, from 0 on."""
    run: str
    """The run of the query."""


class Report(NamedTuple):
    """What a task did."""

    written: int = 0
    """Rows."""
    skipped: int = 0
    """Rows that were in the topic already."""
    topics: tuple[str, ...] = ()
    commit_s: float = 0.0
    """How long the end of the transaction took, or the wait for the last rows."""


def write_once(settings: SinkSettings, prefix: str, attempt: Attempt, batches: Iterator[pa.RecordBatch]) -> Report:
    """Write the rows of one task in a transaction, unless an earlier try of the task has written them.

    Raises:
        CheckpointBehindSink, BatchUnknown, ReplayDiffers, TokenUnreadable: See rules.py.
        WriterFenced: Another try of the task has begun.
        RecordTooLarge, RecordRefused, BrokerError: A row cannot be written. Readers of committed records see none of the task's.
    """
    first, rows = _begun(batches, settings.topic)
    if first is None:
        # Nothing is written, so nothing needs to be known: a replay finds nothing to write, either.
        return Report()
    name = task_id(prefix, attempt.task)
    producer = make_producer({**settings.producer, "transactional.id": name}, settings.topic, topics_of(first))
    tokens = Tokens(settings.requests, prefix, settings.topic)
    writer = _Writer(settings, attempt, name, producer)
    try:
        return writer.write(tokens, topics_of(first), rows)
    except KafkaException as failed:
        raise failure(failed.args[0], writer.doing, producer.errors) from None
    except NotDelivered as failed:
        raise writer.cause(failed.undelivered) from None
    finally:
        try:
            tokens.close()
        finally:
            writer.close()


def write_at_least_once(settings: SinkSettings, batches: Iterator[pa.RecordBatch]) -> Report:
    """Write the rows of one task, and wait until they are delivered.

    Raises:
        RecordTooLarge, RecordRefused, BrokerError: A row cannot be written. Others may have been.
    """
    first, rows = _begun(batches, settings.topic)
    if first is None:
        return Report()
    producer = make_producer(settings.producer, settings.topic, topics_of(first))
    try:
        producer.connect(CONNECT_S)
        for each in rows:
            producer.write(each)
        began = time.monotonic()
        producer.flush()
        return Report(producer.written.rows, topics=tuple(sorted(producer.topics)), commit_s=time.monotonic() - began)
    except NotDelivered as failed:
        raise undelivered(failed.undelivered, producer.errors) from None
    finally:
        producer.close()


def _begun(batches: Iterator[pa.RecordBatch], topic: str | None) -> tuple[pa.RecordBatch | None, Iterator[pa.RecordBatch]]:
    """Return the first record batch that has rows, `None` if none has, and all of them, the first one included."""
    rows = (rows_of(batch, topic) for batch in batches if batch.num_rows)
    first = next(rows, None)
    return first, rows if first is None else itertools.chain([first], rows)


class _Writer:
    """One try of one task."""

    def __init__(self, settings: SinkSettings, attempt: Attempt, name: str, producer: Producer) -> None:
        self._settings = settings
        self._attempt = attempt
        self._id = name
        self._producer = producer
        self._open = False
        self._refusals = 0
        self.doing = f"beginning to write as {name}"

    def write(self, tokens: Tokens, topics: Collection[str], rows: Iterator[pa.RecordBatch]) -> Report:
        """Take the transactional id, and write what is not written yet. `topics` are those of the first rows."""
        accepted, batch = self._settings.accept_batch, self._attempt.batch
        self._producer.connect(CONNECT_S)
        self._retried(self._producer.init_transactions, INIT_TRY_S)
        # Not before: the transaction of an earlier try has ended now, and no other try can commit one.
        token = tokens.of_task(self._attempt.task, topics)
        driver = tokens.of_driver() if may_be_a_replay(token, self._attempt.run) else None
        before = written_before(self._id, self._attempt.task, batch, token, driver, accepted)
        return self._written(rows) if before is None else self._compared(before, rows)

    def cause(self, first: Undelivered) -> GroupKafkaError:
        """Return why a row was not delivered. If the transaction has failed, its rows are purged, and it knows why."""
        if first.error.code() in PURGED:
            try:
                self._producer.send_offset(self._id, first.topic, self._attempt.batch, "", ABORT_S)
            except KafkaException as failed:
                return failure(failed.args[0], self.doing, self._producer.errors)
        return undelivered(first, self._producer.errors)

    def close(self) -> None:
        """Abort the transaction if it is still open, as well as that goes: the next try of the task does it otherwise."""
        try:
            if self._open:
                self._producer.abort_transaction(ABORT_S)
        except KafkaException as refused:
            log.info("%s: the transaction was not aborted, and the next try aborts it: %s", self._id, refused.args[0].str())
        finally:
            self._producer.close()

    def _written(self, rows: Iterator[pa.RecordBatch]) -> Report:
        producer = self._producer
        self.doing = f"writing as {self._id}"
        producer.begin_transaction()
        self._open = True
        for each in rows:
            producer.write(each)
        began = time.monotonic()
        producer.flush()
        topics = tuple(sorted(producer.topics))
        token = Token(self._attempt.batch, producer.written, self._attempt.run)
        self.doing = f"committing as {self._id}"
        # On each topic: one of them may be deleted later, and its offsets with it.
        for topic in topics:
            self._send(topic, token)
        self._retried(producer.commit_transaction)
        self._open = False
        return Report(token.written.rows, topics=topics, commit_s=time.monotonic() - began)

    def _send(self, topic: str, token: Token) -> None:
        offset, metadata = token.offset, token.metadata()
        self._retried(lambda left: self._producer.send_offset(self._id, topic, offset, metadata, left))

    def _compared(self, before: Written, rows: Iterator[pa.RecordBatch]) -> Report:
        for each in rows:
            self._producer.count(each)
        now, batch = self._producer.written, self._attempt.batch
        if is_same(self._id, batch, before, now, self._settings.accept_batch):
            log.info("%s: the %d rows of micro-batch %d are in the topic already", self._id, now.rows, batch)
        else:
            log.warning(
                "%s: micro-batch %d is in the topic with %d rows, and the %d rows that it has now are not written (acceptBatch)",
                self._id,
                batch,
                before.rows,
                now.rows,
            )
        return Report(skipped=now.rows, topics=tuple(sorted(self._producer.topics)))

    def _retried(self, step: Callable[[float], None], most_s: float = TRANSACTION_S) -> None:
        """Take a step of a transaction again while its outcome is not known: coordinators move, and brokers restart."""
        deadline = Deadline(TRANSACTION_S)
        deadline.retry(lambda: step(min(most_s, max(deadline.left, 1.0))), self._passes)

    def _passes(self, error: Exception) -> bool:
        if not isinstance(error, KafkaException) or not error.args[0].retriable():
            return False
        self._producer.hear()
        if any(map(is_refused, self._producer.errors.values())):
            self._refusals += 1
            if self._refusals > 1:
                return False
            # A broker that stops may interrupt a handshake, which looks like a refusal. Only a later one is accepted.
            self._producer.errors.clear()
        return True
