"""The demo's live producer, which writes numbered records with keys at a steady rate."""

from __future__ import annotations

import threading
import time
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, Message

from spark_groupsource.brokers.broker_errors import explain
from spark_groupsource.brokers.client import librdkafka_log
from spark_groupsource.errors import BrokerUnavailable

RECORDS_PER_SECOND = 2_000
CUSTOMERS = 1_000
"""The number of different keys."""

_TICK_S = 0.1
_FLUSH_LIMIT_S = 30.0


class LiveProducer:
    """An idempotent producer that writes 0, 1, 2, ... as record values to one topic, each once."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap_servers,
            "client.id": "producer",
            "enable.idempotence": True,
            "linger.ms": 20,
        }
        self._producer = confluent_kafka.Producer(settings, logger=librdkafka_log)
        self._topic = topic
        self._error: KafkaError | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="producer", daemon=True)
        self.sent = 0
        """The number of records passed to the client so far. Any thread may read it."""

    def start(self) -> None:
        """Start to write, and return immediately."""
        self._thread.start()

    def stop(self) -> int:
        """Stop, and return the number of records that the broker has, which is the number that was sent.

        Raises:
            BrokerError: The broker did not accept some records.
        """
        self.cancel()
        left = self._producer.flush(_FLUSH_LIMIT_S)
        if self._error is not None:
            raise explain(self._error, "producing")
        if left:
            raise BrokerUnavailable(f"The broker did not accept {left} records within {_FLUSH_LIMIT_S:.0f} s.")
        return self.sent

    def cancel(self) -> None:
        """Stop without waiting for the last records to be written."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        begin = time.monotonic()
        while not self._stopping.wait(_TICK_S):
            for number in range(self.sent, int((time.monotonic() - begin) * RECORDS_PER_SECOND)):
                key = f"customer-{number % CUSTOMERS}"
                self._producer.produce(self._topic, key=key, value=str(number), on_delivery=self._delivered)
                self.sent = number + 1
            self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        self._error = self._error or error
