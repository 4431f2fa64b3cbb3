"""Creates the topics that the benchmarks read, with a given record size, codec, batch size and number of partitions."""

from __future__ import annotations

import random
from dataclasses import dataclass

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient

from devtools.broker import Cluster

# The number of different values: text of 16 different characters, which the codecs compress to half its size.
_VALUES = 1_000
_ALPHABET = "0123456789abcdef"


@dataclass(frozen=True)
class Load:
    """The records of a benchmark: `records` records of `size` bytes (the value), in `partitions` partitions.

    The log has them in record batches of at most `batch_kb` KiB. Java's producers write 16 KiB by default.
    """

    size: int
    records: int
    codec: str = "none"
    partitions: int = 4
    batch_kb: int = 64

    @property
    def topic(self) -> str:
        """The topic's name."""
        return f"bench-{self.size}-{self.codec}-{self.partitions}-{self.batch_kb}"

    def last(self, records: int) -> dict[int, int]:
        """Return the offsets at which to start for the last `records` records or so, the same number from each partition."""
        ends = {number: len(range(number, self.records, self.partitions)) for number in range(self.partitions)}
        return {number: max(0, end - records // self.partitions) for number, end in ends.items()}

    def __str__(self) -> str:
        size = f"{self.size // 1000} KB" if self.size >= 1000 else f"{self.size} B"
        return f"{size}, {self.codec}, {self.partitions} partitions, batches of {self.batch_kb} KB"


def fill(cluster: Cluster, load: Load) -> None:
    """Create the load's topic, and write its records, the same number into each partition."""
    cluster.create_topic(load.topic, load.partitions, {"max.message.bytes": "8000000"})
    chance = random.Random(load.size)  # noqa: S311
    values = ["".join(chance.choices(_ALPHABET, k=load.size)).encode() for _ in range(min(_VALUES, load.records))]
    failures: list[KafkaError] = []

    def note(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "compression.codec": load.codec,
            "linger.ms": 50,
            "batch.size": load.batch_kb * 1024,
            "queue.buffering.max.kbytes": 256 * 1024,
        }
    )
    for number in range(load.records):
        while True:
            try:
                producer.produce(
                    load.topic, values[number % len(values)], b"%d" % number, number % load.partitions, on_delivery=note
                )
                break
            except BufferError:
                producer.poll(0.1)
    left = producer.flush(120)
    if left or failures:
        raise RuntimeError(f"{load.topic} was not filled: {left} records without an answer, errors: {failures[:3]}")


def drop(cluster: Cluster, load: Load) -> None:
    """Delete the load's topic, so that the disk and the page cache are free for the next one."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for done in admin.delete_topics([load.topic]).values():
        done.result()
