"""How a task writes its rows: at least once, or each row once."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from typing import NamedTuple, cast

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from spark_groupsource.brokers.advertised import refuse_unreachable
from spark_groupsource.brokers.client_pool import ClientPool, PooledClient, digest, pool
from spark_groupsource.brokers.login_trouble import is_refused
from spark_groupsource.errors import BatchUnknown, GroupKafkaError, OptionError, TopicNotFound, WriterFenced, WrittenElsewhere
from spark_groupsource.patience import Deadline
from spark_groupsource.sink.batch_size import with_batch_size
from spark_groupsource.sink.columns import rows_of, topics_of
from spark_groupsource.sink.contract import NotDelivered, Producer, Undelivered
from spark_groupsource.sink.failures import PURGED, failure, undelivered
from spark_groupsource.sink.names import Names
from spark_groupsource.sink.output_topic import refuse_missing
from spark_groupsource.sink.producers import make_producer
from spark_groupsource.sink.remembered import Remembered
from spark_groupsource.sink.rules import NOTHING, check_choice, check_same, is_overtaken, may_be_a_replay, may_continue, plan_task
from spark_groupsource.sink.settings import SinkSettings
from spark_groupsource.sink.token import Token, Written
from spark_groupsource.sink.tokens import Tokens
from spark_groupsource.timeouts import ABORT_S, ADDRESSES_TRIED_AFTER_S, CONNECT_S, INIT_TRY_S, TRANSACTION_S

log = logging.getLogger(__name__)

PARTITIONS_KNOWN_S = 30.0
"""How long a task of the sink writes its rows again since a broker does not know a partition that another one has named. Brokers
learn of added partitions within seconds; one that is cut off is replaced after its session (9 s)."""

REFUSAL_S = 1.0
"""How long a task whose transaction has failed waits for the report of a row that was refused."""

COORDINATOR_BELIEVED_S = 1.0
"""How long before its token is read a task may have looked for the coordinator. A broker that is cut off is replaced after its
session (9 s)."""

PARTITIONS_KNOWN_INTERVAL_S = 0.5
"""Between two of these tries."""


class Attempt(NamedTuple):
    """Which task this is, as Spark's TaskContext says it."""

    batch: int
    """The number of the micro-batch."""
    task: int
    """The number of the task, from 0 on."""
    run: str
    """The run of the query. Empty: the platform does not name it."""
    query: str
    """The query's id."""
    number: int = 0
    """Which attempt of the task this is, from 0 on."""


class _NotKnownYet(Exception):
    """A broker does not know a partition that another one has named: usually it was just added. The text is for the user."""


class _KeptFailed(Exception):
    """A kept producer has failed, and nothing of the task is visible. A new producer can write it from its first row on."""


class Report(NamedTuple):
    """What a task did."""

    written: int = 0
    """Rows."""
    skipped: int = 0
    """Rows that were in the topic already."""
    left: int = 0
    """Rows that are not written because the user chose so (`skipBatch`)."""
    topics: tuple[str, ...] = ()
    commit_s: float = 0.0
    """How long the end of the transaction took, or the wait for the last rows."""


def write_once(settings: SinkSettings, names: Names, attempt: Attempt, batches: Iterator[pa.RecordBatch]) -> Report:
    """Write the rows of one task in a transaction, unless an earlier attempt of the task has written them.

    Args:
        settings: How the query writes.
        names: The query's names.
        attempt: Which task this is.
        batches: Its rows. The iterator must raise an error unless it has seen the end of them: what was cut off must not be
            committed as if it were all.

    Raises:
        CheckpointBehindSink, WrittenElsewhere, BatchUnknown, ReplayDiffers, TokenUnreadable: See rules.py.
        WriterFenced: Another attempt of the task has begun.
        RecordTooLarge, RecordRefused, BrokerError: A row cannot be written. Readers of committed records see none of the task's.
    """
    first, rows = _begun(batches, settings.topic)
    if first is None:
        # Nothing is written, so nothing needs to be known: a replay finds nothing to write, either.
        return Report()
    client = _client(settings, outlasts=attempt.number > 0 or names.driver in _OUTLASTING)
    remembered = _remembered(settings, rows)
    may_be_kept = True
    # Its time begins with the first such failure: before that, Spark may have taken longer to give the rows.
    deadline: Deadline | None = None
    while True:
        try:
            return _write_as(client, settings, names, attempt, topics_of(first), remembered, may_be_kept=may_be_kept)
        except _KeptFailed as failed:
            log.info("a new producer writes the task: %s", failed)
            may_be_kept = False
        except OptionError:
            if client is settings.producer:
                raise
            # The brokers allow less than they do by default. No row has been read yet.
            client = settings.producer
        except _NotKnownYet as error:
            # The failed transaction is aborted, so the rows may be written again. librdkafka asks once: it takes the answer for
            # final when the coordinator refuses other partitions along with the one that it does not know (AddPartitionsToTxn).
            deadline = deadline or Deadline(PARTITIONS_KNOWN_S)
            if not remembered.whole or deadline.over:
                raise TopicNotFound(str(error)) from None
            deadline.pause_after(error, PARTITIONS_KNOWN_INTERVAL_S)


def _remembered(settings: SinkSettings, rows: Iterator[pa.RecordBatch]) -> Remembered:
    # Half of kafka.buffer.memory: the producer keeps up to twice as much as that.
    return Remembered(rows, int(settings.producer["queue.buffering.max.kbytes"]) * 512)


def _write_as(
    client: Mapping[str, str],
    settings: SinkSettings,
    names: Names,
    attempt: Attempt,
    topics: Collection[str],
    remembered: Remembered,
    *,
    may_be_kept: bool,
) -> Report:
    name = names.task(attempt.task)
    clients = pool()
    client = _with_batch_size({**client, "transactional.id": name}, settings, topics)
    key = _key(client, settings)
    kept = _kept_producer(clients, key, attempt) if may_be_kept else None
    if kept is not None and not may_continue(kept.last, attempt.batch, attempt.run, settings.choice):
        clients.close(kept)
        kept = None
    producer = kept or clients.add(make_producer(client, settings.topic))
    writer = _Writer(settings, client, attempt, name, producer, is_kept=kept is not None)
    tokens = Tokens(settings.requests, names, settings.topic)

    def close() -> None:
        # Without the name of the run, nobody may continue with it.
        if writer.close() and attempt.run:
            clients.keep(key, producer)
        else:
            clients.close(producer)

    try:
        try:
            return writer.write(tokens, topics, remembered.from_the_first(lambda: writer.prove(topics)))
        except (KafkaException, NotDelivered) as failed:
            error = writer.undelivered(failed.undelivered) if isinstance(failed, NotDelivered) else writer.failed(failed.args[0])
            if writer.relies_on_its_last and remembered.whole:
                raise _KeptFailed(str(error)) from None
            raise error from None
        finally:
            open_s = writer.open_s
            try:
                close()
            finally:
                tokens.close(wait=False)
            if open_s * 2000 > int(settings.producer["transaction.timeout.ms"]):
                _OUTLASTING.add(names.driver)
    except SystemExit:
        # The signal may have come while `close` began: when a JVM dies, the end of the rows and Spark's signal come together. The
        # transaction would stay open, and readers would wait for its timeout. No second signal interrupts (`ended_by_signals`).
        close()
        raise


def _with_batch_size(client: Mapping[str, str], settings: SinkSettings, topics: Collection[str]) -> dict[str, str]:
    return with_batch_size(client, topics if settings.topic is None else [settings.topic])


def _key(client: Mapping[str, str], settings: SinkSettings) -> Hashable:
    """Return what a kept producer must have in common with a new one. The transactional id is one of the settings."""
    return "producer", digest(client), settings.topic


def _kept_producer(clients: ClientPool, key: Hashable, attempt: Attempt | None = None) -> Producer | None:
    def useless(client: PooledClient) -> bool:
        last: Token | None = getattr(client, "last", None)
        return attempt is not None and is_overtaken(last, attempt.batch, attempt.run)

    kept = cast("Producer | None", clients.take(key, useless=useless))
    if kept is not None:
        kept.start_over()
    return kept


def _client(settings: SinkSettings, *, outlasts: bool) -> Mapping[str, str]:
    """Return the settings of a task's producer.

    Readers wait for a transaction that nobody ends, until it times out. So that time is short by default, and a task that has
    outlasted it once gets as much as brokers allow.
    """
    if outlasts and settings.longest_transaction_ms is not None:
        return {**settings.producer, "transaction.timeout.ms": str(settings.longest_transaction_ms)}
    return settings.producer


_OUTLASTING: set[str] = set()
"""Queries of which a transaction took more than half of the default time in this process."""


def write_at_least_once(settings: SinkSettings, batches: Iterator[pa.RecordBatch]) -> Report:
    """Write the rows of one task, and wait until they are delivered.

    Raises:
        RecordTooLarge, RecordRefused, BrokerError: A row cannot be written. Others may have been.
    """
    first, rows = _begun(batches, settings.topic)
    if first is None:
        return Report()
    remembered = _remembered(settings, rows)
    try:
        return _delivered(settings, topics_of(first), remembered, may_be_kept=True)
    except _KeptFailed as failed:
        # What it knows of the topic may be old. Rows that it has delivered are duplicated.
        log.info("a new producer writes the task: %s", failed)
        return _delivered(settings, topics_of(first), remembered, may_be_kept=False)


def _delivered(settings: SinkSettings, topics: Collection[str], remembered: Remembered, *, may_be_kept: bool) -> Report:
    clients = pool()
    client = _with_batch_size(settings.producer, settings, topics)
    key = _key(client, settings)
    kept = _kept_producer(clients, key) if may_be_kept else None
    producer = kept or clients.add(make_producer(client, settings.topic))
    done = False
    try:
        if kept is None:
            _connect(producer, settings)
        for each in remembered.from_the_first():
            producer.write(each)
        began = time.monotonic()
        producer.flush()
        done = True
        return Report(producer.written.rows, topics=tuple(sorted(producer.topics)), commit_s=time.monotonic() - began)
    except NotDelivered as failed:
        error = undelivered(failed.undelivered, producer.errors)
        raise (_KeptFailed(str(error)) if kept is not None and remembered.whole else error) from None
    finally:
        if done:
            clients.keep(key, producer)
        else:
            clients.close(producer)


def _connect(producer: Producer, settings: SinkSettings) -> bool:
    """Wait for a connection to a broker. Return whether there is one.

    Raises:
        BrokerUnavailable: No broker answers at the address that it advertises.
    """
    if producer.connect(CONNECT_S):
        return True
    producer.note_errors()
    if any(map(is_refused, producer.errors.values())):
        return False
    if producer.connect(ADDRESSES_TRIED_AFTER_S - CONNECT_S):
        return True
    refuse_unreachable(settings.requests)
    return False


def _begun(batches: Iterator[pa.RecordBatch], topic: str | None) -> tuple[pa.RecordBatch | None, Iterator[pa.RecordBatch]]:
    """Return the first record batch that has rows, `None` if none has, and all of them, the first one included."""
    rows = (rows_of(batch, topic) for batch in batches if batch.num_rows)
    first = next(rows, None)
    return first, rows if first is None else itertools.chain([first], rows)


class _Writer:
    """One attempt of one task."""

    def __init__(
        self,
        settings: SinkSettings,
        client: Mapping[str, str],
        attempt: Attempt,
        name: str,
        producer: Producer,
        *,
        is_kept: bool = False,
    ) -> None:
        self._settings = settings
        self._client = client
        self._attempt = attempt
        self._id = name
        self._producer = producer
        self.relies_on_its_last = is_kept
        """Whether the producer is a kept one, and no broker has confirmed in this transaction that it still has its id."""
        self._open = False
        self._committed = False
        self._began: float | None = None
        self._refusals = 0
        self.doing = f"beginning to write as {name}"

    def write(self, tokens: Tokens, topics: Collection[str], rows: Iterator[pa.RecordBatch]) -> Report:
        """Write what is not written yet. `topics` are those of the first rows."""
        task, batch, run = self._attempt.task, self._attempt.batch, self._attempt.run
        if self.relies_on_its_last:
            # Steps 1 to 3 below are not needed (`may_continue`): unless the id is still this producer's, the brokers refuse its
            # first row.
            self._mark(tokens, topics)
            return self._written(rows, None)
        if _connect(self._producer, self._settings):
            # The clients of 2 find their coordinators meanwhile. Without a broker each would try to connect 70 times a second.
            tokens.connect(task, run)
        # 1. Take the id. That fences every earlier attempt of the task, and ends its transaction: it can commit nothing any more.
        began = time.monotonic()
        self._retried(self._producer.init_transactions, INIT_TRY_S)
        if time.monotonic() - began > COORDINATOR_BELIEVED_S:
            # The coordinators may have moved meanwhile, and one that is cut off does not know what an earlier attempt committed.
            tokens.close(wait=False)
        # 2. Read the token, and never before 1: an earlier attempt that is still alive could then commit its rows and its token
        #    after this one has read that there is none. This one would write the same rows again, and consumers would see them
        #    twice.
        token = tokens.of_task(task, topics)
        driver, elsewhere, choice = None, None, self._settings.choice
        if may_be_a_replay(token, run) or choice.covers(batch):
            driver = tokens.of_driver()
            # In the first micro-batch of a run only: names do not change while a query runs.
            elsewhere = tokens.elsewhere(topics) if may_be_a_replay(driver, run) else None
        if choice.covers(batch):
            begun = token is not None or driver is not None or elsewhere or tokens.marks(range(tokens.reach()))
            check_choice(batch, run, driver, choice, begun=bool(begun))
        # 3. Decide.
        try:
            plan = plan_task(self._id, task, batch, token, driver, choice, elsewhere)
        except (BatchUnknown, WrittenElsewhere) as unknown:
            raise type(unknown)(f"{unknown}\nThis task has {self._counted(rows).rows} rows of it now.") from None
        if not plan.write:
            return self._left(plan.before, self._counted(rows))
        # 4. Leave a mark, and only then begin. Without one nobody would find the transaction of a process that dies, if the next
        #    run has fewer tasks. Readers of committed records would wait until it times out.
        self._mark(tokens, topics)
        # 5. Write the rows and the token.
        return self._written(rows, plan.before)

    @property
    def open_s(self) -> float:
        """For how many seconds its transaction has been open by now; 0 if it never was."""
        return 0.0 if self._began is None else time.monotonic() - self._began

    def failed(self, error: KafkaError) -> GroupKafkaError | _NotKnownYet:
        """Return why a step of the transaction failed."""
        found = self._explained(failure(error, self.doing, self._producer.errors))
        return _NotKnownYet(str(found)) if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART else found

    def undelivered(self, first: Undelivered) -> GroupKafkaError | _NotKnownYet:
        """Return why a row was not delivered. If the transaction has failed, its rows are purged, and it knows why."""
        if first.error.code() in PURGED:
            try:
                self._producer.send_offset(self._id, first.topic, self._attempt.batch, "", ABORT_S)
            except KafkaException as failed:
                return self.failed(failed.args[0])
        return self._explained(undelivered(first, self._producer.errors))

    def _explained(self, error: GroupKafkaError) -> GroupKafkaError:
        """Return the error, or another one if the transaction has failed because it took too long."""
        timeout_ms = int(self._client["transaction.timeout.ms"])
        if not isinstance(error, WriterFenced) or self.open_s * 1000 < timeout_ms:
            return error
        return WriterFenced(
            f"{self.doing}: the task wrote for {self.open_s:.0f} s, and its transaction may take {timeout_ms / 1000:g} s "
            "(kafka.transaction.timeout.ms). So its coordinator has aborted it, and no reader of committed records sees a row of "
            "it. Set kafka.transaction.timeout.ms higher; brokers allow up to transaction.max.timeout.ms, 900000 by default. Or "
            "make the micro-batches smaller, as with maxOffsetsPerTrigger."
        )

    def prove(self, topics: Collection[str]) -> None:
        """Have the coordinator confirm that a kept producer still has its id, before rows are let go that a new one needs.

        The offset that this takes is replaced by the token, in the same transaction.

        Args:
            topics: The topics of the first rows, if rows name theirs.
        """
        if self.relies_on_its_last:
            topic = self._settings.topic if self._settings.topic is not None else min(topics)
            self._send(topic, Token(self._attempt.query, self._attempt.batch, NOTHING, self._attempt.run))
            self.relies_on_its_last = False

    def close(self) -> bool:
        """Abort the transaction if it is still open, best effort: the next attempt of the task does it otherwise.

        If a signal interrupts it, it continues where it was when it is called again.

        Returns:
            Whether the producer has committed, so it can be kept.
        """
        if self._open:
            try:
                self._producer.abort_transaction(ABORT_S)
            except KafkaException as refused:
                log.info(
                    "%s: the transaction was not aborted, and the next attempt aborts it: %s", self._id, refused.args[0].str()
                )
            self._open = False
        return self._committed

    def _written(self, rows: Iterator[pa.RecordBatch], before: Written | None) -> Report:
        """Write the rows and the token in a transaction. If `before` are the same rows, abort it: they are there already."""
        producer = self._producer
        self.doing = f"writing as {self._id}"
        # 1. The rows, in a transaction that nobody sees until it is committed.
        self._open = True  # before it is: a signal in between would leave it open
        producer.begin_transaction()
        self._began = time.monotonic()
        for each in rows:
            producer.write(each)
        # The rows have come to their end here: the iterator has raised an error if they were cut off.
        ended = time.monotonic()
        topics = tuple(sorted(producer.topics))
        if before is not None and before == producer.written:
            producer.flush()  # the abort is tried once, and has no time to wait for rows
            return Report(skipped=before.rows, topics=topics)
        token = Token(self._attempt.query, self._attempt.batch, producer.written, self._attempt.run)
        # 2. The token, in the same transaction. In one of its own, a crash in between would leave rows without a token, and the
        #    next attempt would write them again. On each topic: one of them may be deleted later with its offsets. The last
        #    rows are delivered meanwhile.
        try:
            for topic in topics:
                self._send(topic, token)
            self.relies_on_its_last = False
        except KafkaException as failed:
            # A row that was refused says more than the failure of its transaction, and may be reported after that.
            for _ in Deadline(REFUSAL_S if failed.args[0].txn_requires_abort() else 0.0).attempts():
                producer.refuse_undelivered()
            if failed.args[0].code() == KafkaError._STATE:
                # It had failed before it was asked. Asked once more, it says why.
                self._send(topics[0], token)
            raise
        # 3. Every row is delivered before the commit. A row that is refused raises here, and `close` aborts, the token as well.
        producer.flush()
        self.doing = f"committing as {self._id}"
        # 4. Both become visible at once. Without an answer the outcome is not known, so the step is repeated until there is one.
        self._retried(producer.commit_transaction)
        self._open = False
        producer.last, self._committed = token, True
        return Report(token.written.rows, topics=topics, commit_s=time.monotonic() - ended)

    def _mark(self, tokens: Tokens, topics: Collection[str]) -> None:
        task, run = self._attempt.task, self._attempt.run
        try:
            tokens.mark(task, run, topics)
        except TopicNotFound:
            # It would be created by the first row, if the brokers do that.
            for topic in topics or (self._settings.topic,):
                refuse_missing(self._settings, topic)
            tokens.mark(task, run, topics)

    def _send(self, topic: str, token: Token) -> None:
        offset, metadata = token.offset, token.metadata()
        self._retried(lambda left: self._producer.send_offset(self._id, topic, offset, metadata, left))

    def _counted(self, rows: Iterator[pa.RecordBatch]) -> Written:
        for each in rows:
            self._producer.count(each)
        return self._producer.written

    def _left(self, before: Written | None, now: Written) -> Report:
        """Report rows that are not written: they are there already, or the user chose so."""
        batch, topics = self._attempt.batch, tuple(sorted(self._producer.topics))
        there = NOTHING if before is None else before
        if before is not None and check_same(self._id, batch, before, now, self._settings.choice):
            log.info("%s: the %d rows of micro-batch %d are in the topic already", self._id, now.rows, batch)
            return Report(skipped=now.rows, topics=topics)
        log.warning(
            "%s: micro-batch %d is in the topic with %d rows of this task. Its %d rows of now are not written (skipBatch)",
            self._id,
            batch,
            there.rows,
            now.rows,
        )
        return Report(skipped=there.rows, left=now.rows, topics=topics)

    def _retried(self, step: Callable[[float], None], most_s: float = TRANSACTION_S) -> None:
        """Take a step of a transaction again while its outcome is not known: coordinators move, and brokers restart."""
        deadline = Deadline(TRANSACTION_S)
        deadline.retry(lambda: step(min(most_s, max(deadline.left, 1.0))), self._passes)

    def _passes(self, error: Exception) -> bool:
        if not isinstance(error, KafkaException) or not error.args[0].retriable():
            return False
        self._producer.note_errors()
        if any(map(is_refused, self._producer.errors.values())):
            self._refusals += 1
            if self._refusals > 1:
                return False
            # A broker that stops may interrupt a handshake, which looks like a refusal. Only a later one is accepted.
            self._producer.errors.clear()
        return True
