"""The producers and tokens for the sink's code, which turn each call into a request to the simulated broker."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeVar, cast

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.brokers.group_offsets import GroupOffsets
from spark_groupsource.errors import BrokerUnavailable
from spark_groupsource.partition import TopicPartition
from spark_groupsource.sink import token_store
from spark_groupsource.sink.columns import ANY_PARTITION
from spark_groupsource.sink.names import Names
from spark_groupsource.sink.pure_producer import added, row_hash
from spark_groupsource.sink.token import Committed, Token, Written
from tests.simulation.sink.broker import Broker
from tests.simulation.sink.steps import Steps, request

T = TypeVar("T")

TOPIC = "out"
"""The option `topic`, where it is set."""
TOPICS = ("even", "odd")
"""The topics that rows name in turn, where it is not."""


class FakeProducer:
    """A producer in a simulated worker."""

    def __init__(self, broker: Broker, name: str, topic: str | None) -> None:
        self.errors: dict[int, KafkaError] = {}
        self._topic = topic
        self._broker = broker
        self.name = name
        self._epoch = 0
        self._ended = 0
        """The epoch of the transaction that has ended: asking again gives the same answer."""
        self._rows: list[str] = []
        self.written = Written(0, 0)
        self.topics: frozenset[str] = frozenset()
        self.last: Token | None = None

    def start_over(self) -> None:
        self._rows = []
        self.written = Written(0, 0)
        self.topics = frozenset()

    def connect(self, timeout_s: float) -> bool:  # noqa: ARG002
        return True

    def flush(self) -> None:
        """Do nothing, because requests take no time here."""

    note_errors = refuse_undelivered = close = abandon = flush

    def init_transactions(self, timeout_s: float) -> None:  # noqa: ARG002
        owner = Steps.here.steps
        self._epoch = request(lambda: self._broker.take(self.name, owner))

    def begin_transaction(self) -> None:
        self._ended = 0
        self._broker.begin(self.name, self._epoch, Steps.here.steps)

    def count(self, rows: pa.RecordBatch) -> None:
        topics: list[str] = rows["topic"].to_pylist() if "topic" in rows.schema.names else [self._topic or ""] * rows.num_rows
        self.topics |= set(topics)
        for topic, value in zip(topics, rows["value"].to_pylist(), strict=True):
            one = row_hash(topic, ANY_PARTITION, None, value.encode())
            self.written = Written(self.written.rows + 1, added(self.written.checksum, one))
            self._rows.append(value)

    def write(self, rows: pa.RecordBatch) -> None:
        self.count(rows)
        sent, self._rows = self._rows, []
        request(lambda: self._broker.write(self.name, self._epoch, sent))

    def send_offset(self, group: str, topic: str, offset: int, metadata: str, timeout_s: float) -> None:  # noqa: ARG002
        request(lambda: self._broker.send_offset(self.name, self._epoch, group, topic, Committed(offset, metadata)))

    def commit_transaction(self, timeout_s: float) -> None:  # noqa: ARG002
        def commit() -> None:
            if self._ended != self._epoch:
                self._broker.end(self.name, self._epoch, commit=True)
                self._ended = self._epoch

        request(commit)

    def abort_transaction(self, timeout_s: float) -> None:  # noqa: ARG002
        request(lambda: self._broker.end(self.name, self._epoch, commit=False))


class FakeOffsets:
    """The client with which a simulated worker or driver reads and commits a group's offsets."""

    def __init__(self, broker: Broker, group: str) -> None:
        self._broker = broker
        self._group = group

    def read(self, topics: Collection[str] | None) -> dict[str, tuple[int, str | None]]:
        def read() -> dict[str, tuple[int, str | None]] | None:
            if self._broker.is_unstable(self._group, topics):
                return None
            return dict(self._broker.offsets_of(self._group, topics))

        while (answer := _asked(read)) is None:
            pass
        return answer

    def commit(self, topic: str, offset: int, metadata: str) -> None:
        _asked(lambda: self._broker.commit(self._group, topic, Committed(offset, metadata)))

    def close(self, *, wait: bool = False) -> None:
        pass


class FakeAdmin:
    """An admin client that lists groups, topics, and all of a group's offsets."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def groups_that_move_too(self, part: str, _topics: Collection[str]) -> list[str]:
        found = _asked(lambda: sorted({group for group, _ in self._broker.offsets} | self._broker.pending.keys()))
        # A group that is moving to another coordinator is in no broker's list. It has moved by the time the driver looks.
        missing = Steps.here.steps.overlooks
        return [group for group in found if part in group and not missing]

    def topics(self) -> list[str]:
        return list(TOPICS)

    def offsets(self, group: str, *, stable: bool) -> dict[TopicPartition, tuple[int, str | None]]:
        assert stable
        found = FakeOffsets(self._broker, group).read(None)
        return {TopicPartition(topic, 0): kept for topic, kept in found.items()}


def _asked(effect: Callable[[], T]) -> T:
    try:
        return request(effect)
    except KafkaException:
        raise BrokerUnavailable("no answer") from None


def make_producer(client: Mapping[str, str], topic: str | None) -> FakeProducer:
    """Make a producer in the current process."""
    return FakeProducer(Steps.here.steps.broker, client["transactional.id"], topic)


class FakeTokenStore(token_store.TokenStore):
    """The sink's own token store, on the simulated broker."""

    def __init__(self, client: Mapping[str, str], names: Names, topic: str | None) -> None:
        super().__init__(client, names, topic)
        self._marked = Steps.here.steps.broker.marked

    def _each(self, read: Callable[[int], T | None], tasks: Collection[int]) -> dict[int, T]:
        return {task: found for task in tasks if (found := read(task)) is not None}

    def _make(self, group: str) -> GroupOffsets:
        return cast("GroupOffsets", FakeOffsets(Steps.here.steps.broker, group))

    def _admin(self) -> GroupAdmin:
        return cast("GroupAdmin", FakeAdmin(Steps.here.steps.broker))


def record_batches(rows: list[str], *, name_topics: bool) -> Iterator[pa.RecordBatch]:
    """Yield a task's rows in two record batches, as Spark's worker does, which mistakes a truncated input for the end."""
    topics = [TOPICS[at % 2] for at in range(len(rows))]
    for part in (slice(0, 1), slice(1, None)):
        if Steps.here.steps.is_cut:
            return
        batch = pa.record_batch({"value": pa.array(rows[part], pa.string())})
        yield batch.append_column("topic", pa.array(topics[part], pa.string())) if name_topics else batch
