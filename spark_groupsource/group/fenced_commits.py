"""Fenced commits and fetches of commit records.

The broker fences the member: it accepts commits only from a member of the current generation. It does not check which plan a
commit is for, nor who owns the partition. So the caller checks "still owned?" itself, on the consumer's thread. No callback of
the group can come between that check and the commit, because callbacks run on the same thread (member.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from spark_groupsource.brokers.broker_errors import COMMIT_ERRORS, explain
from spark_groupsource.errors import CommitRefused, GroupKafkaError, NotAuthorized
from spark_groupsource.handoff.commit_record import MAX_METADATA_BYTES, CommitRecord, GroupCommit, read_commit
from spark_groupsource.observer import UNOBSERVED, Observer
from spark_groupsource.partition import TopicPartition

log = logging.getLogger(__name__)

MAX_COMMIT_BYTES = 900_000
"""The records of one OffsetCommit may take so many bytes. The coordinator writes them as one batch, which is limited by the
`max.message.bytes` of the offsets topic: 1,048,588 by default."""

RECORD_BYTES, OPEN_RANGE_BYTES, OWED_RANGE_BYTES = 350, 45, 150
"""What a record takes in that batch at most: without the names of its group and topic, and for each range."""


def _named(partitions: Iterable[TopicPartition], limit: int = 5) -> str:
    names = [str(partition) for partition in sorted(partitions)]
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


class FencedCommits:
    """Reads and writes the group's commit records in this member's name. Used on the consumer's thread only."""

    cluster_id: str | None = None
    """The cluster's own name for itself, which records carry; `None` where it is not known."""

    def __init__(
        self,
        consumer: Consumer,
        group_id: str,
        *,
        cluster_id: str | None = None,
        timeout_s: float = 30.0,
        observer: Observer = UNOBSERVED,
    ) -> None:
        self.cluster_id = cluster_id
        self._consumer = consumer
        self._observer = observer
        self._group_id = group_id
        self._timeout_s = timeout_s

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, GroupCommit]:
        """Return what the group holds for each partition, owned by this member or not.

        Raises:
            NotAuthorized, TopicNotFound, BrokerUnavailable: see REQUEST_ERRORS.
        """
        asked = [KafkaTopicPartition(*partition) for partition in sorted(partitions)]
        if not asked:
            return {}
        doing = f"reading the commits of group {self._group_id}"
        try:
            answer = self._consumer.committed(asked, timeout=self._timeout_s)
        except KafkaException as raised:
            raise explain(raised.args[0], doing) from None
        commits = {}
        for found in answer:
            if found.error is not None:
                raise explain(found.error, f"{doing} ({found.topic}-{found.partition})")
            commits[TopicPartition(found.topic, found.partition)] = read_commit(found.offset, found.metadata, self.cluster_id)
        return commits

    def parts(self, records: Mapping[TopicPartition, CommitRecord]) -> Iterator[Mapping[TopicPartition, CommitRecord]]:
        """Yield the records in portions that fit one commit; thousands of partitions take several."""
        part: dict[TopicPartition, CommitRecord] = {}
        left = MAX_COMMIT_BYTES
        for partition in sorted(records):
            names = len(self._group_id) + len(partition.topic)
            open_, owed = len(records[partition].open), len(records[partition].owed)
            size = RECORD_BYTES + names + OPEN_RANGE_BYTES * open_ + OWED_RANGE_BYTES * owed
            if part and size > left:
                yield part
                part, left = {}, MAX_COMMIT_BYTES
            part[partition] = records[partition]
            left -= size
        if part:
            yield part

    def commit(self, records: Mapping[TopicPartition, CommitRecord]) -> None:
        """Write the records in one OffsetCommit, under the current generation of this member.

        When one partition is refused, the others may have been written. The error names the refused ones, but for topics that do
        not exist: the caller can leave topics out.

        Raises:
            CommitError: if it is `passing`, the same commit may be sent again once the callbacks have been served.
            MemberFenced, NotAuthorized, TopicNotFound: see COMMIT_ERRORS.
        """
        if not records:
            return
        with self._observer.commit():
            self._commit(records)

    def _commit(self, records: Mapping[TopicPartition, CommitRecord]) -> None:
        metadata = {partition: self._encoded(partition, records[partition]) for partition in sorted(records)}
        offsets = [
            KafkaTopicPartition(*partition, offset=records[partition].offset, metadata=text)
            for partition, text in metadata.items()
        ]
        doing = f"committing {_named(records)} to group {self._group_id}"
        try:
            answer = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as raised:
            raise self._refusal(raised.args[0], doing, records) from None
        for written in answer or ():
            if written.error is not None:
                raise explain(written.error, f"committing {written.topic}-{written.partition}", COMMIT_ERRORS)
        self._observer.committed(metadata)

    def _refusal(self, error: KafkaError, doing: str, records: Mapping[TopicPartition, CommitRecord]) -> GroupKafkaError:
        """Explain a refused commit. librdkafka does not name the refused partition, so the records are read back."""
        failure = explain(error, doing, COMMIT_ERRORS)
        if len(records) > 1 and isinstance(failure, CommitRefused | NotAuthorized):
            try:
                held = self.fetch(records)
            except GroupKafkaError as unread:
                log.warning("%s was refused, and reading back which partitions were refused failed: %s", doing, unread)
            else:
                refused = [partition for partition in records if held.get(partition) != records[partition]]
                failure = explain(error, f"committing {_named(refused)} to group {self._group_id}", COMMIT_ERRORS)
        return failure

    def _encoded(self, partition: TopicPartition, record: CommitRecord) -> str:
        metadata = record.metadata()
        if len(metadata) > MAX_METADATA_BYTES:
            raise CommitRefused(
                f"{partition}: its commit record takes {len(metadata)} bytes while a broker stores at most {MAX_METADATA_BYTES}. "
                f"{len(record.owed)} ranges are owed to streams that have not been restarted "
                f"({', '.join(sorted({owed.stream for owed in record.owed}))}). Restart those queries on their checkpoints."
            )
        return metadata
