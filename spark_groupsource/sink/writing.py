"""Writes a task's rows, either at least once or exactly once in a transaction."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from typing import NamedTuple, cast

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from spark_groupsource.brokers.advertised import refuse_unreachable
from spark_groupsource.brokers.client_pool import PooledClient, digest, pool
from spark_groupsource.brokers.login_trouble import is_refused
from spark_groupsource.errors import BatchUnknown, GroupKafkaError, OptionError, TopicNotFound, WriterFenced, WrittenElsewhere
from spark_groupsource.patience import Deadline
from spark_groupsource.sink.columns import rows_of, topics_of
from spark_groupsource.sink.failures import PURGED, NotDelivered, Undelivered, failure, undelivered
from spark_groupsource.sink.names import Names
from spark_groupsource.sink.producer import Producer, make_producer, retried
from spark_groupsource.sink.rules import NOTHING, check_choice, check_same, is_overtaken, may_be_a_replay, may_continue, plan_task
from spark_groupsource.sink.settings import SinkSettings
from spark_groupsource.sink.token import Token, Written
from spark_groupsource.sink.token_store import TokenStore
from spark_groupsource.sink.topics import refuse_missing, with_batch_size
from spark_groupsource.timeouts import ABORT_S, ADDRESSES_TRIED_AFTER_S, ASK_AGAIN_S, CONNECT_S, TRANSACTION_S, TRY_S

log = logging.getLogger(__name__)

PARTITIONS_KNOWN_S = 30.0
"""How long a task keeps retrying because a broker does not know a partition that another broker has named. Brokers learn about
added partitions within seconds, and a broker that is cut off from the cluster is replaced once its session expires (9 s)."""

REFUSAL_S = 1.0
"""How long a task whose transaction has failed waits for a refused row to be reported."""

COORDINATOR_BELIEVED_S = 1.0
"""How old a coordinator lookup may be when a task reads its token. A broker that is cut off from the cluster is replaced once
its session expires (9 s)."""


class Attempt(NamedTuple):
    """Identifies a task attempt, with values from Spark's TaskContext."""

    batch: int
    """The micro-batch's number."""
    task: int
    """The task's number, starting at 0."""
    run: str
    """The query's run. Empty: the platform does not provide it."""
    query: str
    """The query's id."""
    number: int = 0
    """The attempt's number, starting at 0."""


class _NotKnownYet(Exception):
    """A broker does not know a partition that another broker has named, usually because it was just added.

    Users see the message.
    """


class _KeptFailed(Exception):
    """A cached producer has failed, and none of the task's rows are visible. A new producer can write all of them."""


class Report(NamedTuple):
    """What a task reports after it has finished writing."""

    written: int = 0
    """The number of rows that the task wrote."""
    skipped: int = 0
    """The number of rows that were already in the topic."""
    left: int = 0
    """The number of rows that the task did not write because the user set `skipBatch`."""
    topics: tuple[str, ...] = ()
    commit_s: float = 0.0
    """How long it took to commit the transaction or, with at-least-once, to deliver the last rows."""


class RememberedRows:
    """A task's rows, remembered so that the task can start over, because Spark provides them only once.

    A task has to start over if, for example, writing its first rows shows that partitions have just been added, or that a cached
    producer has lost its transactional id. Only a limited number of bytes is remembered.
    """

    def __init__(self, rows: Iterator[pa.RecordBatch], most_bytes: int, topics: Collection[str] = ()) -> None:
        """Start without any remembered rows."""
        self._rows = rows
        self._left = most_bytes
        self._kept: list[pa.RecordBatch] | None = []
        self.topics = topics
        """The topics in the first rows, if rows name their topics."""

    @property
    def whole(self) -> bool:
        """Whether all rows yielded so far are remembered, so that they can be yielded again."""
        return self._kept is not None

    def from_the_first(self, before_forgetting: Callable[[], None] = lambda: None) -> Iterator[pa.RecordBatch]:
        """Yield all rows from the first one. Iterators from earlier calls must no longer be used.

        Args:
            before_forgetting: Called when there are too many rows to remember. If it raises an error, the rows are still
                remembered.
        """
        yield from tuple(self._kept or ())
        while (batch := self._next()) is not None:
            if self._kept is not None:
                self._kept.append(batch)
                self._left -= batch.nbytes
                if self._left < 0:
                    before_forgetting()
                    self._kept = None
            yield batch

    def _next(self) -> pa.RecordBatch | None:
        try:
            return next(self._rows, None)
        except BaseException:
            # The input is incomplete. Iterating over it again would end without an error, as if there were no more rows.
            self._kept = None
            raise


def write_once(settings: SinkSettings, names: Names, attempt: Attempt, batches: Iterator[pa.RecordBatch]) -> Report:
    """Write a task's rows in a transaction, unless an earlier attempt of the task has written them.

    Args:
        settings: How the query writes.
        names: The query's names.
        attempt: The task attempt.
        batches: Its rows. The iterator must raise an error if the input is incomplete. Otherwise, some of the rows would
            be committed as if they were all of them.

    Raises:
        CheckpointBehindSink, WrittenElsewhere, BatchUnknown, ReplayDiffers, TokenUnreadable: See rules.py.
        WriterFenced: Another attempt of the task has started.
        RecordTooLarge, RecordRefused, BrokerError: A row cannot be written. `read_committed` consumers see none of the task's
            rows.
    """
    rows = _begun(settings, batches)
    if rows is None:
        # A task without rows needs no token, because a replay would have nothing to write either.
        return Report()
    client = settings.producer
    if (attempt.number > 0 or names.driver in _OUTLASTING) and settings.longest_transaction_ms is not None:
        # If a crash leaves a transaction open, `read_committed` consumers wait until it times out. So the timeout is short by
        # default, but a task that has already outlasted it gets the longest one that brokers allow by default.
        client = {**client, "transaction.timeout.ms": str(settings.longest_transaction_ms)}
    # Set at the first `_NotKnownYet`, because Spark may have taken longer than this to provide the rows.
    deadline: Deadline | None = None
    while True:
        try:
            return _write_as(client, settings, names, attempt, rows)
        except _KeptFailed as failed:
            log.info(_NEW_PRODUCER, failed)
        except OptionError:
            if client is settings.producer:
                raise
            # These brokers allow less than the default, so use the shorter timeout. No row has been written yet.
            client = settings.producer
        except _NotKnownYet as error:
            # The failed transaction has been aborted, so the rows can be written again. librdkafka does not retry
            # AddPartitionsToTxn when the coordinator refuses other partitions along with one that it does not know.
            deadline = deadline or Deadline(PARTITIONS_KNOWN_S)
            if not rows.whole or deadline.over:
                raise TopicNotFound(str(error)) from None
            deadline.pause_after(error, ASK_AGAIN_S)


_OUTLASTING: set[str] = set()
"""The queries with a transaction in this process that took more than half of the default timeout."""

_NEW_PRODUCER = "the reused producer has failed, so a new one will write the task's rows: %s"


def _begun(settings: SinkSettings, batches: Iterator[pa.RecordBatch]) -> RememberedRows | None:
    """Return a task's rows, or `None` if it has none."""
    rows = (rows_of(batch, settings.topic) for batch in batches if batch.num_rows)
    first = next(rows, None)
    if first is None:
        return None
    # Half of kafka.buffer.memory, because the producer itself may hold up to twice kafka.buffer.memory.
    most_bytes = int(settings.producer["queue.buffering.max.kbytes"]) * 512
    return RememberedRows(itertools.chain([first], rows), most_bytes, topics_of(first))


def _lent(
    client: Mapping[str, str], settings: SinkSettings, topics: Collection[str], attempt: Attempt | None = None
) -> tuple[Hashable, Producer, bool]:
    """Take a cached producer out of the pool, or create a new one.

    Args:
        client: The producer's settings, except for its batch size.
        settings: How the query writes.
        topics: The topics in the first rows, if rows name their topics.
        attempt: The task attempt that writes in a transaction. `None`: the rows are written at least once.

    Returns:
        The key under which the producer may be returned to the pool, the producer, and whether it came from the pool.
    """

    def useless(kept: PooledClient) -> bool:
        last: Token | None = getattr(kept, "last", None)
        return attempt is not None and is_overtaken(last, attempt.batch, attempt.run)

    clients = pool()
    client = with_batch_size(client, topics if settings.topic is None else [settings.topic])
    # The settings include the transactional id.
    key = "producer", digest(client), settings.topic
    kept = cast("Producer | None", clients.take(key, useless=useless))
    if kept is not None and attempt is not None and not may_continue(kept.last, attempt.batch, attempt.run, settings.choice):
        clients.close(kept)
        kept = None
    if kept is not None:
        kept.start_over()
        return key, kept, True
    return key, clients.add(make_producer(client, settings.topic)), False


def _write_as(client: Mapping[str, str], settings: SinkSettings, names: Names, attempt: Attempt, rows: RememberedRows) -> Report:
    client = {**client, "transactional.id": names.task(attempt.task)}
    key, producer, is_kept = _lent(client, settings, rows.topics, attempt)
    tokens = TokenStore(settings.requests, names, settings.topic)
    writer = _TaskWriter(settings, client, attempt, producer, tokens, rows, is_kept=is_kept)

    def close() -> None:
        # If the run is unknown, no later task may reuse this producer.
        if writer.close() and attempt.run:
            pool().keep(key, producer)
        else:
            pool().close(producer)

    try:
        try:
            return writer.write()
        except (KafkaException, NotDelivered) as failed:
            error = writer.explained(failed)
            if writer.relies_on_its_last and rows.whole:
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
        # When a JVM dies, the rows end early and Spark sends a signal at nearly the same time. So the signal may have
        # interrupted `close`. The transaction would then stay open, and `read_committed` consumers would wait until it times out.
        # A second signal cannot interrupt this call (`ended_by_signals`).
        close()
        raise


def write_at_least_once(settings: SinkSettings, batches: Iterator[pa.RecordBatch]) -> Report:
    """Write a task's rows, and wait until they have been delivered.

    Raises:
        RecordTooLarge, RecordRefused, BrokerError: A row cannot be written. Other rows may already be in the topic.
    """
    rows = _begun(settings, batches)
    if rows is None:
        return Report()
    while True:
        key, producer, is_kept = _lent(settings.producer, settings, rows.topics)
        done = False
        try:
            if not is_kept:
                _connect(producer, settings)
            for batch in rows.from_the_first():
                producer.write(batch)
            began = time.monotonic()
            producer.flush()
            done = True
            return Report(producer.written.rows, topics=tuple(sorted(producer.topics)), commit_s=time.monotonic() - began)
        except NotDelivered as failed:
            error = undelivered(failed.args[0], producer.errors)
            if not is_kept or not rows.whole:
                raise error from None
            # A cached producer may have outdated metadata. Rows that it has already delivered are duplicated, as at-least-once
            # allows.
            log.info(_NEW_PRODUCER, error)
        finally:
            if done:
                pool().keep(key, producer)
            else:
                pool().close(producer)


def _connect(producer: Producer, settings: SinkSettings) -> bool:
    """Wait for a broker connection, and return whether there is one.

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


class _TaskWriter:
    """Writes the rows of one task attempt exactly once."""

    def __init__(
        self,
        settings: SinkSettings,
        client: Mapping[str, str],
        attempt: Attempt,
        producer: Producer,
        tokens: TokenStore,
        rows: RememberedRows,
        *,
        is_kept: bool,
    ) -> None:
        self._settings = settings
        self._client = client
        self._attempt = attempt
        self._id = client["transactional.id"]
        self._producer = producer
        self._tokens = tokens
        self._rows = rows
        self.relies_on_its_last = is_kept
        """Whether the producer came from the pool, and no broker has confirmed during this transaction that it still owns its
        id."""
        self._open = False
        self._committed = False
        self._began: float | None = None
        self._doing = f"beginning to write as {self._id}"

    def write(self) -> Report:
        """Write the rows, unless they are already in the topic."""
        task, batch, run = self._attempt.task, self._attempt.batch, self._attempt.run
        tokens, choice, topics = self._tokens, self._settings.choice, self._rows.topics
        rows = self._rows.from_the_first(self._prove)
        if self.relies_on_its_last:
            # Steps 1 to 3 are not needed (`may_continue`): if another producer has taken the id, the brokers refuse the first
            # row.
            self._commit_mark()
            return self._write_transaction(rows, None)
        if _connect(self._producer, self._settings):
            # The clients for step 2 look up their coordinators during step 1. Without a broker, each of them would try to connect
            # 70 times a second.
            tokens.connect(task, run)
        # 1. Take the id. This fences every earlier attempt of the task and aborts its transaction, so it can no longer
        #    commit anything.
        began = time.monotonic()
        retried(self._producer, self._producer.init_transactions, TRANSACTION_S, TRY_S)
        if time.monotonic() - began > COORDINATOR_BELIEVED_S:
            # The coordinators may have moved during step 1. A former coordinator that is cut off from the cluster would return an
            # old token.
            tokens.close(wait=False)
        # 2. Read the token, but never before step 1. Otherwise, an earlier attempt could commit its rows and token after this
        #    attempt had found no token, and the rows would be written twice.
        token = tokens.read_task(task, topics)
        driver, elsewhere = None, None
        if may_be_a_replay(token, run) or choice.covers(batch):
            driver = tokens.read_driver()
            # Only in the first micro-batch of a run, because names do not change while a query runs.
            elsewhere = tokens.list_elsewhere(topics) if may_be_a_replay(driver, run) else None
        if choice.covers(batch):
            begun = token is not None or driver is not None or elsewhere or tokens.read_marks(range(tokens.read_reach()))
            check_choice(batch, run, driver, choice, begun=bool(begun))
        # 3. Decide.
        try:
            plan = plan_task(self._id, task, batch, token, driver, choice, elsewhere)
        except (BatchUnknown, WrittenElsewhere) as unknown:
            raise type(unknown)(f"{unknown}\nThis task now has {self._count(rows).rows} rows of it.") from None
        if not plan.write:
            return self._report_unwritten(plan.before, self._count(rows))
        # 4. Leave a mark before the transaction begins. If this process dies and the next run has fewer tasks, the mark
        #    is the only sign that makes that run's driver abort the transaction. Otherwise, `read_committed` consumers would wait
        #    until the transaction times out.
        self._commit_mark()
        # 5. Write the rows and the token.
        return self._write_transaction(rows, plan.before)

    @property
    def open_s(self) -> float:
        """How many seconds ago the transaction began; 0 if it has not begun."""
        return 0.0 if self._began is None else time.monotonic() - self._began

    def explained(self, failed: KafkaException | NotDelivered) -> GroupKafkaError | _NotKnownYet:
        """Convert the error from a failed step of the transaction, or from a row that was not delivered."""
        if isinstance(failed, NotDelivered):
            first: Undelivered = failed.args[0]
            if first.error.code() in PURGED:
                # The transaction had already failed, so its rows were dropped. Calling another step returns the reason.
                try:
                    self._producer.send_offset(self._id, first.topic, self._attempt.batch, "", ABORT_S)
                except KafkaException as reason:
                    return self.explained(reason)
            error = undelivered(first, self._producer.errors)
        else:
            error = failure(failed.args[0], self._doing, self._producer.errors)
            if failed.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return _NotKnownYet(str(error))
        timeout_ms = int(self._client["transaction.timeout.ms"])
        if not isinstance(error, WriterFenced) or self.open_s * 1000 < timeout_ms:
            return error
        return WriterFenced(
            f"{self._doing}: the task wrote for {self.open_s:.0f} s, but its transaction may take no longer than "
            f"{timeout_ms / 1000:g} s (kafka.transaction.timeout.ms). So the brokers have aborted it, and `read_committed` "
            "consumers see none of its rows. Raise kafka.transaction.timeout.ms, up to the brokers' transaction.max.timeout.ms "
            "(900000 by default), or make the micro-batches smaller, for example with maxOffsetsPerTrigger."
        )

    def _prove(self) -> None:
        """Have the coordinator confirm that a cached producer still owns its id, before the task forgets its first rows.

        If the cached producer no longer owned its id, a new producer would need these rows. The offset that is sent as a check is
        replaced by the token in the same transaction.
        """
        if self.relies_on_its_last:
            topic = self._settings.topic if self._settings.topic is not None else min(self._rows.topics)
            self._send(topic, Token(self._attempt.query, self._attempt.batch, NOTHING, self._attempt.run))
            self.relies_on_its_last = False

    def close(self) -> bool:
        """Abort the transaction if it is still open, best effort: if that fails, the task's next attempt aborts it.

        If a signal interrupts this call, call it again to continue where it stopped.

        Returns:
            Whether the producer has committed, which means that it can be reused.
        """
        if self._open:
            try:
                self._producer.abort_transaction(ABORT_S)
            except KafkaException as refused:
                log.info(
                    "%s: failed to abort the transaction; the next attempt will abort it: %s", self._id, refused.args[0].str()
                )
            self._open = False
        return self._committed

    def _write_transaction(self, rows: Iterator[pa.RecordBatch], before: Written | None) -> Report:
        """Write the rows and the token in a transaction, but abort it if the same rows are already in the topic (`before`)."""
        producer = self._producer
        self._doing = f"writing as {self._id}"
        # 1. Write the rows. `read_committed` consumers do not see them until the transaction is committed.
        self._open = True  # set first, because a signal right after the next line must not leave the transaction open
        producer.begin_transaction()
        self._began = time.monotonic()
        for batch in rows:
            producer.write(batch)
        # These are all of the rows: if the input were incomplete, the iterator would have raised an error.
        ended = time.monotonic()
        topics = tuple(sorted(producer.topics))
        if before is not None and before == producer.written:
            producer.flush()  # the abort is attempted only once, and has no time to wait for rows
            return Report(skipped=before.rows, topics=topics)
        token = Token(self._attempt.query, self._attempt.batch, producer.written, self._attempt.run)
        # 2. Send the token in the same transaction. If the token had a separate transaction, a crash in between would leave rows
        #    without a token, and the next attempt would write them again. Each topic gets the token, because a topic that is
        #    deleted later takes its offsets with it. Meanwhile, the last rows are being delivered.
        try:
            for topic in topics:
                self._send(topic, token)
            self.relies_on_its_last = False
        except KafkaException as failed:
            # If a row was refused, its error is more specific than the transaction's, but may be reported later.
            for _ in Deadline(REFUSAL_S if failed.args[0].txn_requires_abort() else 0.0).attempts():
                producer.refuse_undelivered()
            if failed.args[0].code() == KafkaError._STATE:
                # The transaction had already failed. A second call returns the reason.
                self._send(topics[0], token)
            raise
        # 3. Wait until all rows have been delivered. If a row is refused, this raises an error, and `close` aborts the rows and
        #    the token.
        producer.flush()
        self._doing = f"committing as {self._id}"
        # 4. Commit, which makes the rows and the token visible together. Without an answer, the outcome is unknown, so retry
        #    until there is one: treating silence as success could lose the rows.
        retried(producer, producer.commit_transaction, TRANSACTION_S)
        self._open = False
        producer.last, self._committed = token, True
        return Report(token.written.rows, topics=topics, commit_s=time.monotonic() - ended)

    def _commit_mark(self) -> None:
        mark = self._attempt.task, self._attempt.run, self._rows.topics
        try:
            self._tokens.commit_mark(*mark)
        except TopicNotFound:
            # If the brokers create topics automatically, they create a missing topic here, as they would for its first row.
            for topic in self._rows.topics or (self._settings.topic,):
                refuse_missing(self._settings, topic)
            self._tokens.commit_mark(*mark)

    def _send(self, topic: str, token: Token) -> None:
        offset, metadata = token.offset, token.metadata()
        retried(self._producer, lambda left: self._producer.send_offset(self._id, topic, offset, metadata, left), TRANSACTION_S)

    def _count(self, rows: Iterator[pa.RecordBatch]) -> Written:
        for batch in rows:
            self._producer.count(batch)
        return self._producer.written

    def _report_unwritten(self, before: Written | None, now: Written) -> Report:
        """Report rows that were not written, either because they are already in the topic, or because of the user's choice."""
        batch, topics = self._attempt.batch, tuple(sorted(self._producer.topics))
        earlier = NOTHING if before is None else before
        if before is not None and check_same(self._id, batch, before, now, self._settings.choice):
            log.info("%s: the %d rows of micro-batch %d are already in the topic", self._id, now.rows, batch)
            return Report(skipped=now.rows, topics=topics)
        log.warning(
            "%s: micro-batch %d is already in the topic with %d rows from this task. The task's %d new rows were not written "
            "(skipBatch).",
            self._id,
            batch,
            earlier.rows,
            now.rows,
        )
        return Report(skipped=earlier.rows, left=now.rows, topics=topics)
