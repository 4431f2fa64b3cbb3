"""Reads and writes the group's commit records. Brokers accept a write only from a current member of the group.

The broker fences members: it accepts commits only from the current generation. It checks neither which plan a commit is for nor
which member owns the partition. So the caller checks on the consumer's thread that this member still owns the partition. No group
callback can come between that check and the commit, because callbacks run on the same thread (member.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from spark_groupsource.brokers.broker_errors import COMMIT_ERRORS, explain
from spark_groupsource.brokers.group_offsets import read_offsets
from spark_groupsource.errors import CommitRefused, GroupKafkaError, NotAuthorized, TopicNotFound
from spark_groupsource.handoff.commit_record import MAX_METADATA_BYTES, CommitRecord, GroupCommit, mark_of, read_commits
from spark_groupsource.observer import UNOBSERVED, Observer
from spark_groupsource.partition import TopicPartition, listed, topics_of
from spark_groupsource.timeouts import FETCH_TIMEOUT_S

log = logging.getLogger(__name__)

MAX_COMMIT_BYTES = 900_000
"""The maximum number of bytes that one OffsetCommit's records may take up. The coordinator writes them as one batch, which must
not exceed the offsets topic's `max.message.bytes` (1,048,588 by default)."""

RECORD_BYTES, OPEN_RANGE_BYTES, OWED_RANGE_BYTES, PAST_STREAM_BYTES = 375, 45, 150, 110
"""The maximum number of bytes that a record takes up in that batch, not counting its group and topic names, and the maximum that
each open range, owed range and earlier owner adds."""


def fetch_commits(
    consumer: Consumer,
    group_id: str,
    partitions: Iterable[TopicPartition],
    *,
    cluster_id: str | None,
    timeout_s: float = FETCH_TIMEOUT_S,
    polled: bool = True,
) -> dict[TopicPartition, GroupCommit]:
    """Return the group's commit for each partition, no matter which member owns it.

    Args:
        consumer: a consumer with that `group.id`.
        group_id: the group.
        partitions: the partitions.
        cluster_id: the cluster's id; `None` if unknown.
        timeout_s: how many seconds the request may take.
        polled: as in `read_offsets`. False only for a member that has joined, because its own thread polls it.

    Raises:
        NotAuthorized, TopicNotFound, BrokerUnavailable: see REQUEST_ERRORS.
    """
    return read_commits(read_offsets(consumer, group_id, partitions, timeout_s, polled=polled), cluster_id)


class FencedCommits:
    """Reads and writes the group's commit records in this member's name. Used on the consumer's thread only."""

    cluster_id: str | None = None
    """The cluster's id, which is part of each record; `None` if unknown."""

    def __init__(
        self,
        consumer: Consumer,
        group_id: str,
        *,
        cluster_id: str | None = None,
        observer: Observer = UNOBSERVED,
    ) -> None:
        """Prepare to read and write commit records, without sending a request.

        Args:
            consumer: the member's consumer.
            group_id: the group.
            cluster_id: the cluster's id; `None` if unknown.
            observer: receives each commit and its error.
        """
        self.cluster_id = cluster_id
        self._consumer = consumer
        self._observer = observer
        self._group_id = group_id

    @property
    def member(self) -> str | None:
        """The mark that identifies this member in its records. `None` before the member has joined."""
        member_id = self._consumer.memberid()
        return mark_of(member_id) if member_id else None

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, GroupCommit]:
        """Return the group's commit for each partition, whether this member owns it or not.

        Raises:
            NotAuthorized, TopicNotFound, BrokerUnavailable: see REQUEST_ERRORS.
        """
        return fetch_commits(self._consumer, self._group_id, partitions, cluster_id=self.cluster_id, polled=False)

    def parts(self, records: Mapping[TopicPartition, CommitRecord]) -> Iterator[Mapping[TopicPartition, CommitRecord]]:
        """Split the records into parts that each fit into one commit. Thousands of partitions need several commits."""
        part: dict[TopicPartition, CommitRecord] = {}
        free_bytes = MAX_COMMIT_BYTES
        for partition in sorted(records):
            names = len(self._group_id) + len(partition.topic)
            record = records[partition]
            ranges = OPEN_RANGE_BYTES * len(record.open) + OWED_RANGE_BYTES * len(record.owed)
            size = RECORD_BYTES + names + ranges + PAST_STREAM_BYTES * len(record.past or ())
            if part and size > free_bytes:
                yield part
                part, free_bytes = {}, MAX_COMMIT_BYTES
            part[partition] = record
            free_bytes -= size
        if part:
            yield part

    def write(self, records: Mapping[TopicPartition, CommitRecord]) -> Iterator[Mapping[TopicPartition, CommitRecord]]:
        """Write the records in as many commits as necessary. Each commit is sent as the caller iterates.

        Yields:
            The records in each commit, once the group has accepted it.

        Raises:
            TopicNotFound: some records' topics do not exist. Raised after all other records have been written.
            GroupKafkaError: see `commit`. Records that have not been yielded may or may not have been written.
        """
        missing: TopicNotFound | None = None
        for part in self.parts(records):
            pending = [part]
            while pending:
                commit = pending.pop()
                try:
                    self.commit(commit)
                except TopicNotFound as error:
                    # The broker does not name the topic, so the records are halved until only that topic's are left. Giving up on
                    # the whole commit would leave the claims in all other topics open. Writing a record twice changes nothing.
                    halves = _halves(commit)
                    pending += halves
                    if not halves:
                        missing = error
                else:
                    yield commit
        if missing is not None:
            raise missing

    def commit(self, records: Mapping[TopicPartition, CommitRecord]) -> None:
        """Write the records in one OffsetCommit, under this member's current generation.

        If one partition is refused, the others may still have been written. The error names the refused partitions, except for
        topics that do not exist, because the caller can leave topics out.

        Raises:
            CommitError: if it is `passing`, the same commit may be retried once the callbacks have been served.
            MemberFenced, NotAuthorized, TopicNotFound: see COMMIT_ERRORS.
        """
        if not records:
            return
        doing = f"committing {listed(sorted(records))} to group {self._group_id}"
        with self._observer.commit():
            offsets = [
                KafkaTopicPartition(
                    *partition,
                    offset=record.offset,
                    metadata=self._encoded(partition, record),
                    leader_epoch=-1 if record.epoch is None else record.epoch,
                )
                for partition, record in sorted(records.items(), key=lambda item: item[0])
            ]
            try:
                answer = self._consumer.commit(offsets=offsets, asynchronous=False)
            except KafkaException as raised:
                raise self._refusal(raised.args[0], doing, records) from None
            for written in answer or ():
                if written.error is not None:
                    raise explain(written.error, f"committing {written.topic}-{written.partition}", COMMIT_ERRORS)

    def _refusal(self, error: KafkaError, doing: str, records: Mapping[TopicPartition, CommitRecord]) -> GroupKafkaError:
        """Return the error for a refused commit. Read the records back, because librdkafka does not name the partitions."""
        failure = explain(error, doing, COMMIT_ERRORS)
        if len(records) > 1 and isinstance(failure, CommitRefused | NotAuthorized):
            try:
                in_group = self.fetch(records)
            except GroupKafkaError as unread:
                log.warning("%s was rejected, and the rejected partitions could not be read back: %s", doing, unread)
            else:
                refused = [partition for partition in records if in_group.get(partition) != records[partition]]
                failure = explain(error, f"committing {listed(sorted(refused))} to group {self._group_id}", COMMIT_ERRORS)
        return failure

    def _encoded(self, partition: TopicPartition, record: CommitRecord) -> str:
        """Return a record's commit metadata. Raise `CommitRefused` if it is longer than a broker accepts."""
        metadata = record.metadata()
        if len(metadata) > MAX_METADATA_BYTES:
            raise CommitRefused(
                f"{partition}: its commit record is {len(metadata)} bytes long, but brokers store at most {MAX_METADATA_BYTES}. "
                f"The record was not written. It contains {len(record.owed)} held ranges from streams that have not been "
                f"restarted ({', '.join(sorted({owed.stream for owed in record.owed}))}). Restart their queries from "
                "their checkpoints."
            )
        return metadata


def _halves(records: Mapping[TopicPartition, CommitRecord]) -> list[Mapping[TopicPartition, CommitRecord]]:
    """Split the records by topic into two halves, or return nothing if all belong to one topic."""
    topics = sorted(topics_of(records))
    if len(topics) == 1:
        return []
    middle = len(topics) // 2
    return [
        {partition: record for partition, record in records.items() if partition.topic in half}
        for half in (topics[middle:], topics[:middle])
    ]
