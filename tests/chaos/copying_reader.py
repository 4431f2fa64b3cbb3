"""Watches while the topic is copied: one thread reads committed records, and another asks for the last stable offsets."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswer
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition

from devtools.broker import Cluster
from devtools.broker.ready import quiet_client
from spark_groupsource.brokers.offsets import LATEST_OFFSET, request_offsets
from spark_groupsource.partition import TopicPartition as Partition
from tests.chaos.visible import Copy, StandStills, query_of

LOOK_EVERY_S = 0.5
REQUEST_LIMIT_S = 5.0
BLIND_S = 5.0
"""After so long without a sample of a partition its last stable offset is not known."""
NOTED_S = 1.0
"""A last stable offset that stands still for less is not noted."""
_QUIET = {"log_level": 0, "error_cb": lambda _error: None}


def _offset(answer: Future[Any]) -> int | None:
    """Return an offset, or `None` if the leader has not answered: that is an error, or librdkafka returns a negative number."""
    try:
        offset: int = answer.result(2 * REQUEST_LIMIT_S).offset
    except (KafkaException, NoAnswer):
        return None
    return offset if offset >= 0 else None


class Watcher(threading.Thread):
    """A thread that watches until it is stopped. Its error is kept, and makes the run fail, too."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self._servers = cluster.bootstrap_servers
        self._topic = topic
        self._partitions = range(partitions)
        self._ends = threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        """Look."""
        try:
            self.watch()
        except Exception as error:  # noqa: BLE001 -- a thread has nobody who would see it
            self.error = error

    def watch(self) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        """Stop the thread, and wait until it has ended."""
        self._ends.set()
        self.join(60)


class CommittedReader(Watcher):
    """Keeps reading what is visible with `isolation.level=read_committed`."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int) -> None:
        super().__init__(cluster, topic, partitions)
        self.copy = Copy()

    def watch(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "reads-committed",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                **_QUIET,
            }
        )
        try:
            consumer.assign([TopicPartition(self._topic, number, 0) for number in self._partitions])
            at_end: set[int | None] = set()
            while not self._ends.is_set():
                for message in consumer.consume(5000, 0.1):
                    error = message.error()
                    if error is None:
                        at_end.discard(message.partition())
                        self.copy.add((message.value() or b"").decode())
                    elif error.code() == KafkaError._PARTITION_EOF:
                        at_end.add(message.partition())
                    # Any other error comes from a broker that is down: librdkafka continues on its own.
                if len(at_end) == len(self._partitions):
                    self.copy.look(time.monotonic())
        finally:
            consumer.close()


class StableOffsets(Watcher):
    """Samples how far `read_committed` consumers can read, and where the topic ends."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int) -> None:
        super().__init__(cluster, topic, partitions)
        self.stills = StandStills(NOTED_S)
        self.stable: dict[int, int] = {}
        """The newest ones of the partitions with records that are written and not visible."""
        self.blind: dict[tuple[int, float], float] = {}
        """Partitions that were not sampled, from when on, and until when."""
        self._sampled: dict[int, float] = {}

    def watch(self) -> None:
        admin = quiet_client(self._servers)
        asked = {Partition(self._topic, number): LATEST_OFFSET for number in self._partitions}
        while not self._ends.wait(LOOK_EVERY_S):
            ends, stable = (
                request_offsets(admin, asked, REQUEST_LIMIT_S, level)
                for level in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED)
            )
            answers = {one.partition: (_offset(stable[one]), _offset(ends[one])) for one in asked}
            for partition, (stable_offset, end) in answers.items():
                if stable_offset is not None and end is not None:
                    self._sample(partition, stable_offset, end)
            if any(None in offsets for offsets in answers.values()):
                # A client that has lost a leader may fail for longer than the brokers need. A new client looks up the leaders
                # again.
                admin = quiet_client(self._servers)
            self._note_blind()

    def _note_blind(self) -> None:
        """Note since when a partition has not been sampled, because its last stable offset may be stuck."""
        now = time.monotonic()
        for partition in self._partitions:
            at = self._sampled.setdefault(partition, now)
            if now - at > BLIND_S:
                self.stable.pop(partition, None)
                self.blind[partition, at] = now

    def _sample(self, partition: int, stable: int, end: int) -> None:
        self._sampled[partition] = time.monotonic()
        self.stills.sample(time.monotonic(), partition, stable, end)
        if end > stable:
            self.stable[partition] = stable
        else:
            self.stable.pop(partition, None)

    def writing(self) -> set[str]:
        """Return the queries that have written rows that are not visible yet."""
        above = dict(self.stable)
        if not above:
            return set()
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "reads-uncommitted",
                "isolation.level": "read_uncommitted",
                "enable.auto.commit": False,
                **_QUIET,
            }
        )
        try:
            consumer.assign([TopicPartition(self._topic, number, offset) for number, offset in above.items()])
            found = consumer.consume(2000, 0.3)
        finally:
            consumer.close()
        return {query_of((message.value() or b"").decode()) for message in found if message.error() is None}
