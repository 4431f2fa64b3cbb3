"""The producer: a counter for each partition, so that a record's offset is the number in it."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message

from spark_groupsource.brokers.client import librdkafka_log

TICK_S = 0.1
PER_TICK = 5
"""Records for each partition and tick."""
FLUSH_LIMIT_S = 60.0


class CountingProducer:
    """Writes 0, 1, 2, ... to each partition until it is stopped, each number once and in order (idempotent)."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 5,
            "topic.metadata.refresh.interval.ms": 1000,
        }
        self._producer = confluent_kafka.Producer(settings, logger=librdkafka_log)
        self._topic = topic
        self._errors: list[KafkaError] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="producer", daemon=True)
        self.partitions = partitions
        """The number of partitions that it writes to; may be raised while it runs."""
        self.sent: Counter[int] = Counter()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> dict[int, int]:
        """Stop, and return how many records the broker has in each partition."""
        assert self._thread.is_alive(), "the producer has ended by itself"
        self.cancel()
        left = self._producer.flush(FLUSH_LIMIT_S)
        assert not self._errors, self._errors
        assert not left, f"the brokers have not taken {left} records within {FLUSH_LIMIT_S} s"
        return dict(self.sent)

    def cancel(self) -> None:
        """Stop without waiting for the last records."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(TICK_S):
            for partition in range(self.partitions):
                for _ in range(PER_TICK):
                    if not self._produce(partition):
                        break
            self._producer.poll(0)

    def _produce(self, partition: int) -> bool:
        """Send the next number, unless the client has not discovered the new partition yet. Return whether it was sent."""
        try:
            self._producer.produce(self._topic, b"%d" % self.sent[partition], partition=partition, on_delivery=self._delivered)
        except KafkaException as refused:
            if refused.args[0].code() != KafkaError._UNKNOWN_PARTITION:
                self._errors.append(refused.args[0])
            return False
        self.sent[partition] += 1
        return True

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._errors.append(error)
