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
from spark_groupsource.brokers.group_offsets import read_offsets
from spark_groupsource.errors import CommitRefused, GroupKafkaError, NotAuthorized, TopicNotFound
from spark_groupsource.handoff.commit_record import MAX_METADATA_BYTES, CommitRecord, GroupCommit, mark_of, read_commits
from spark_groupsource.observer import UNOBSERVED, Observer
from spark_groupsource.partition import TopicPartition, listed, topics_of
from spark_groupsource.timeouts import FETCH_TIMEOUT_S

log = logging.getLogger(__name__)

MAX_COMMIT_BYTES = 900_000
"""The records of one OffsetCommit may take so many bytes. The coordinator writes them as one batch, which is limited by the
`max.message.bytes` of the offsets topic: 1,048,588 by default."""

RECORD_BYTES, OPEN_RANGE_BYTES, OWED_RANGE_BYTES, PAST_STREAM_BYTES = 375, 45, 150, 110
"""What a record takes in that batch at most: without the names of its group and topic, for each range, for each earlier owner."""


def fetch_commits(
    consumer: Consumer,
    group_id: str,
    partitions: Iterable[TopicPartition],
    *,
    cluster_id: str | None,
    timeout_s: float = FETCH_TIMEOUT_S,
    polled: bool = True,
) -> dict[TopicPartition, GroupCommit]:
    """Return what the group holds for each partition, whoever owns it.

    Args:
        consumer: a consumer with that `group.id`.
        group_id: the group.
        partitions: the partitions.
        cluster_id: the cluster's own name for itself; `None` where it is not known.
        timeout_s: how many seconds the request may take.
        polled: as in `read_offsets`: only a member that has joined is polled by somebody else.

    Raises:
        NotAuthorized, TopicNotFound, BrokerUnavailable: see REQUEST_ERRORS.
    """
    return read_commits(read_offsets(consumer, group_id, partitions, timeout_s, polled=polled), cluster_id)


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
        observer: Observer = UNOBSERVED,
    ) -> None:
        self.cluster_id = cluster_id
        self._consumer = consumer
        self._observer = observer
        self._group_id = group_id

    @property
    def member(self) -> str | None:
        """The mark of this member, which its records carry. `None` before it has joined."""
        member_id = self._consumer.memberid()
        return mark_of(member_id) if member_id else None

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, GroupCommit]:
        """Return what the group holds for each partition, owned by this member or not.

        Raises:
            NotAuthorized, TopicNotFound, BrokerUnavailable: see REQUEST_ERRORS.
        """
        return fetch_commits(self._consumer, self._group_id, partitions, cluster_id=self.cluster_id, polled=False)

    def parts(self, records: Mapping[TopicPartition, CommitRecord]) -> Iterator[Mapping[TopicPartition, CommitRecord]]:
        """Yield the records in portions that fit one commit; thousands of partitions take several."""
        part: dict[TopicPartition, CommitRecord] = {}
        left = MAX_COMMIT_BYTES
        for partition in sorted(records):
            names = len(self._group_id) + len(partition.topic)
            record = records[partition]
            ranges = OPEN_RANGE_BYTES * len(record.open) + OWED_RANGE_BYTES * len(record.owed)
            size = RECORD_BYTES + names + ranges + PAST_STREAM_BYTES * len(record.past or ())
            if part and size > left:
                yield part
                part, left = {}, MAX_COMMIT_BYTES
            part[partition] = record
            left -= size
        if part:
            yield part

    def write(self, records: Mapping[TopicPartition, CommitRecord]) -> Iterator[Mapping[TopicPartition, CommitRecord]]:
        """Write the records, in as many commits as it takes, while the caller iterates.

        Yields:
            The records of each commit, once the group has accepted it.

        Raises:
            TopicNotFound: topics of some records do not exist. It is raised when all others are written.
            GroupKafkaError: see `commit`. What was not yielded yet may be written or not.
        """
        missing: TopicNotFound | None = None
        for part in self.parts(records):
            pending = [part]
            while pending:
                commit = pending.pop()
                try:
                    self.commit(commit)
                except TopicNotFound as error:
                    # The broker does not say which topic it is, so the topics are halved until it is alone. Given up as a whole,
                    # the commit would leave the claims of all other topics open. To write a record again changes nothing.
                    halves = _halves(commit)
                    pending += halves
                    if not halves:
                        missing = error
                else:
                    yield commit
        if missing is not None:
            raise missing

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
        offsets = [
            KafkaTopicPartition(
                *partition,
                offset=record.offset,
                metadata=self._encoded(partition, record),
                leader_epoch=-1 if record.epoch is None else record.epoch,
            )
            for partition, record in sorted(records.items(), key=lambda item: item[0])
        ]
        doing = f"committing {listed(sorted(records))} to group {self._group_id}"
        try:
            answer = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as raised:
            raise self._refusal(raised.args[0], doing, records) from None
        for written in answer or ():
            if written.error is not None:
                raise explain(written.error, f"committing {written.topic}-{written.partition}", COMMIT_ERRORS)

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
                failure = explain(error, f"committing {listed(sorted(refused))} to group {self._group_id}", COMMIT_ERRORS)
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


def _halves(records: Mapping[TopicPartition, CommitRecord]) -> list[Mapping[TopicPartition, CommitRecord]]:
    """Return the records of each half of their topics; nothing if they are of one topic."""
    topics = sorted(topics_of(records))
    if len(topics) == 1:
        return []
    middle = len(topics) // 2
    return [
        {partition: record for partition, record in records.items() if partition.topic in half}
        for half in (topics[middle:], topics[:middle])
    ]
