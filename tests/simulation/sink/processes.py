"""The producers and tokens that the sink's code uses here: each of their calls is a request to the simulated broker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import cast

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.errors import BrokerUnavailable
from spark_groupsource.partition import TopicPartition
from spark_groupsource.sink import tokens
from spark_groupsource.sink.checksum import ANY_PARTITION, added, row_hash
from spark_groupsource.sink.token import Committed, Written
from tests.simulation.sink.broker import Broker
from tests.simulation.sink.steps import request

TOPIC = "out"


class FakeProducer:
    """A producer in a simulated worker."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.errors: dict[int, KafkaError] = {}
        self._broker = broker
        self.name = name
        self._epoch = 0
        self._ended = 0
        """The epoch of the transaction that has ended: asking again gives the same answer."""
        self._rows: list[str] = []
        self.written = Written(0, 0)
        self.topics = frozenset({TOPIC})

    def connect(self, timeout_s: float) -> None:
        pass

    def init_transactions(self, timeout_s: float) -> None:  # noqa: ARG002
        self._epoch = cast("int", request(lambda: self._broker.take(self.name)))

    def begin_transaction(self) -> None:
        self._ended = 0

    def count(self, rows: pa.RecordBatch) -> None:
        for value in rows["value"].to_pylist():
            one = row_hash(TOPIC, ANY_PARTITION, None, value.encode())
            self.written = Written(self.written.rows + 1, added(self.written.checksum, one))
            self._rows.append(value)

    def write(self, rows: pa.RecordBatch) -> None:
        self.count(rows)
        sent, self._rows = self._rows, []
        request(lambda: self._broker.write(self.name, self._epoch, sent))

    def flush(self) -> None:
        pass

    def send_offset(self, group: str, topic: str, offset: int, metadata: str, timeout_s: float) -> None:  # noqa: ARG002
        assert topic == TOPIC
        request(lambda: self._broker.send_offset(self.name, self._epoch, group, Committed(offset, metadata)))

    def commit_transaction(self, timeout_s: float) -> None:  # noqa: ARG002
        def commit() -> None:
            if self._ended != self._epoch:
                self._broker.end(self.name, self._epoch, commit=True)
                self._ended = self._epoch

        request(commit)

    def abort_transaction(self, timeout_s: float) -> None:  # noqa: ARG002
        request(lambda: self._broker.end(self.name, self._epoch, commit=False))

    def close(self) -> None:
        pass


class FakeAdmin:
    """The client of a simulated worker or driver that reads and commits offsets."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def offsets(self, group: str, *, stable: bool = False) -> Mapping[TopicPartition, tuple[int, str | None]]:
        def read() -> Mapping[TopicPartition, tuple[int, str | None]] | None:
            if stable and self._broker.is_unstable(group):
                return None
            found = self._broker.offsets.get(group)
            return {} if found is None else {TopicPartition(TOPIC, 0): (found[1].offset, found[1].metadata)}

        while (answer := _asked(read)) is None:
            pass
        return cast("Mapping[TopicPartition, tuple[int, str | None]]", answer)

    def alter_offsets(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str | None = None) -> None:
        (offset,) = offsets.values()
        _asked(lambda: self._broker.commit(group, Committed(offset, metadata or "")))

    def topics(self) -> list[str]:
        return [TOPIC]


def _asked(effect: Callable[[], object]) -> object:
    try:
        return request(effect)
    except KafkaException:
        raise BrokerUnavailable("no answer") from None


class Process:
    """What the current process is connected to."""

    here = threading.local()


def make_producer(client: Mapping[str, str], topic: str | None) -> FakeProducer:
    """Make a producer in the current process."""
    return FakeProducer(Process.here.broker, client["transactional.id"])


class FakeTokens(tokens.Tokens):
    """The tokens of the sink's own code, over the simulated broker."""

    def __init__(self, client: Mapping[str, str], prefix: str) -> None:  # noqa: ARG002
        self._admin = cast("GroupAdmin", FakeAdmin(Process.here.broker))
        self._prefix = prefix
        self._of_driver: list[str] = []


def record_batches(rows: list[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a task, in two record batches."""
    for part in (rows[:1], rows[1:]):
        yield pa.record_batch({"value": pa.array(part, pa.string())})
