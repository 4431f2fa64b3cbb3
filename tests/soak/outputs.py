"""What one query has written, read as it grows: the folder of a file sink, or a topic.

A long run writes hundreds of thousands of files. So each one is deleted as soon as it is read.
"""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from devtools.demo.count import committed_files
from spark_groupsource.brokers.client import librdkafka_log
from spark_groupsource.patience import Deadline
from tests.harness.account import rows_in
from tests.harness.evidence import Row

COPIES_PARTITIONS = 3
AT_ONCE = 10_000
"""The most records in one call."""
SILENCE_S = 2.0
"""After so long without a record there is no other one for now."""
LONGEST_S = 10.0
"""The topic grows: what is left after that time is read by the next call."""


class Output:
    """The folder of one file sink."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._counted: set[Path] = set()

    def new_rows(self) -> list[Row]:
        """Return the rows of the files that the sink has committed since the last call, and delete the files."""
        try:
            committed = committed_files(self._folder)
        except FileNotFoundError:  # the sink has just merged its log: the next call finds them
            return []
        found: list[Row] = []
        for file in committed:
            if file not in self._counted:
                found += rows_in(file)
                file.unlink()
        # Only what the log still has can come up again.
        self._counted = set(committed)
        return found


class Copies:
    """The topic of one query, for a reader of committed records.

    A record's value has the partition, the offset and the number that it was made of.
    """

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self.topic = topic
        settings = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "the account",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
        self._consumer = Consumer(settings, logger=librdkafka_log)
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(COPIES_PARTITIONS)])

    def new_rows(self) -> list[Row]:
        """Return what has been committed since the last call."""
        found: list[Row] = []
        deadline = Deadline(LONGEST_S)
        while not deadline.over and (messages := self._consumer.consume(AT_ONCE, SILENCE_S)):
            # An error is a broker that is away: the records are read later.
            values = [message.value() for message in messages if message.error() is None]
            found += (Row(*map(int, value.split())) for value in values if value is not None)
        return found
