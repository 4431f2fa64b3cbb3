"""Reads the group's committed offsets repeatedly, together with what is durable at that moment."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from spark_groupsource.handoff.commit_record import GroupCommit, read_commit
from tests.harness.events import Event, EventLog

EVERY_S = 0.2
REQUEST_LIMIT_S = 5.0


def quiet_consumer(bootstrap_servers: str, group: str) -> Consumer:
    """Return a consumer that asks for the group's commits but never joins the group.

    An AdminClient aborts its process if a broker dies during a request (librdkafka #4605).
    """
    return Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group, "log_level": 0, "error_cb": lambda _error: None})


class Sampler:
    """Appends an event `sample` to the log every 200 ms, on a thread of its own."""

    def __init__(
        self, bootstrap_servers: str, group: str, topic: str, partitions: int, checkpoints: Mapping[str, Path], log: EventLog
    ) -> None:
        self._consumer = quiet_consumer(bootstrap_servers, group)
        self._topic = topic
        self._partitions = partitions
        self._checkpoints = checkpoints
        self._log = log
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self._failure: Exception | None = None
        self.committed: Mapping[int, int] = {}
        """The newest committed offsets by partition. May be read from any thread."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Take a last sample and stop. Raise the error that ended the sampler too early, if there is one."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        last = False
        try:
            while not last:
                last = self._stopping.wait(EVERY_S)
                self._sample()
        except Exception as error:  # noqa: BLE001 -- a run that was not looked at must not pass
            self._failure = error
        finally:
            self._consumer.close()

    def _sample(self) -> None:
        asked = [TopicPartition(self._topic, number) for number in range(self._partitions)]
        try:
            found = self._consumer.committed(asked, timeout=REQUEST_LIMIT_S)
        except KafkaException:  # a broker is down, or the group is not there yet
            return
        # What is durable is read second. It only grows, so a correct commit never looks too early.
        newest = newest_plans(self._checkpoints)
        self.committed = {one.partition: one.offset for one in found if one.error is None and one.offset >= 0}
        records = {one.partition: one.metadata for one in found if one.partition in self.committed}
        self._log.append("sample", committed=self.committed, newest=newest, records=records)


def commits_in(sample: Event) -> dict[int, GroupCommit]:
    """Return the group's commit records in an event `sample`, by partition."""
    return {int(number): read_commit(offset, sample["records"][number]) for number, offset in sample["committed"].items()}


def newest_plans(checkpoints: Mapping[str, Path]) -> dict[str, int]:
    """Return the plan of each stream's newest micro-batch in its commit log; without those that have none."""
    return {name: plan_of(folder, max(batches)) for name, folder in checkpoints.items() if (batches := batches_in(folder))}


def batches_in(checkpoint: Path) -> set[int]:
    """Return the commit log's micro-batches."""
    # The folder also has checksums and unfinished files, whose names begin with a dot.
    return {int(file.name) for file in (checkpoint / "commits").glob("[0-9]*") if file.name.isdigit()}


def plan_of(checkpoint: Path, batch: int) -> int:
    """Return a micro-batch's plan from the offset log: the third line is the offset of its only source."""
    plan: int = json.loads((checkpoint / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()[2])["plan"]
    return plan
