"""Defines this package's exceptions as one tree.

GroupKafkaError
├── OptionError                 an option is wrong, missing or in conflict with another; nothing was started
├── SchemaError                 the schema has columns or types that no record has, or a record does not fit the schema
├── BrokerError                 the brokers refused or did not answer a request
│   ├── BrokerUnavailable       no broker answers, or a partition's leader does not
│   ├── AuthenticationFailed    the brokers refuse the user, the password or the certificate
│   ├── NotAuthorized           the user lacks an ACL on the group or a topic
│   ├── GroupNotFound           the group has neither members nor committed offsets
│   ├── NotAConsumerGroup       this is a share group, a streams group, or a Kafka Connect group
│   └── TopicNotFound           a subscribed topic does not exist
├── MembershipError             this driver is not a member of its group, or no longer is
│   ├── AssignmentTimeout       the group did not assign partitions within `assignmentTimeout`
│   ├── MemberFenced            another process uses the same `kafka.group.instance.id`
│   ├── GroupActive             the group has members or is in use, so a command must not change or delete it
│   └── MembershipClosed        the member has left the group because the query is stopping
├── CommitError                 a commit failed; `passing` tells whether it can be retried
│   ├── GenerationChanged       the group is moving to a new generation: serve the callbacks, then retry
│   ├── CoordinatorUnavailable  the coordinator is loading or moving: retry
│   ├── MemberUnknown           the group expelled the member, which will rejoin
│   ├── CommitOutcomeUnknown    a commit got no response, so it may or may not have been written
│   └── CommitRefused           the broker will never accept the commit (its metadata is too large, ...)
├── HandoffError                the hand-off's rules do not allow the query to continue (docs/handoff.md)
│   ├── CheckpointBehindGroup   the checkpoint is older than the group's records for this stream
│   ├── CommitRecordUnreadable  the group's record for a partition is in a format that this version cannot read
│   ├── AsynchronousProgress    Spark starts a micro-batch before it has logged the previous one
│   ├── ClaimTimeout            a replayed range is still waiting for another member to adopt its partition
│   ├── ClaimsInTheWay          resetting the offsets would discard claims
│   └── OffsetsInTheWay         a migration or a reset would replace the group's committed offsets
├── OffsetError                 an offset in the checkpoint cannot be used (another version, group or topic)
│   ├── UncommittedBatch        the last micro-batch in the checkpoint to migrate is not committed
│   ├── CheckpointOfAnotherStream  the reader's `checkpointLocation` is not its query's checkpoint
│   └── CheckpointUnreadable    a checkpoint's files cannot be read
├── SinkError                   the sink cannot write to Kafka, or must not (docs/sink.md)
│   ├── CheckpointBehindSink    the checkpoint is older than this query's micro-batches in the topic
│   ├── BatchUnknown            the sink cannot tell whether a micro-batch was written, because its offsets have expired
│   ├── WrittenElsewhere        a micro-batch was partly written with another prefix or to another topic
│   ├── InputIncomplete         Spark cancelled the task before its last row
│   ├── ReplayDiffers           a replayed micro-batch has different rows from those in the topic
│   ├── TokenUnreadable         another client or version committed to one of the sink's groups
│   ├── WriterFenced            another attempt of the task, or another query, uses the same transactional id
│   ├── RecordTooLarge          a row is larger than the producer or the topic allows
│   └── RecordRefused           a row has no topic, or a partition that the topic does not have
├── ProcessLimitReached         the process has no memory or threads left for a Kafka client
├── WorkersPythonUnsuitable     Spark starts a Python without this package, or with another version of it
├── ReportsUnavailable          the driver's program cannot report finished micro-batches to the runner
├── NotWithSparkConnect         `stop_gracefully` and `await_termination` need the driver on this host
└── DataLossError               unread records are no longer in Kafka (`failOnDataLoss`)
"""

from __future__ import annotations

from typing import ClassVar


class GroupKafkaError(Exception):
    """The base class of all errors that this package raises."""

    passing: ClassVar[bool] = False
    """Whether the error is retriable: the same step may succeed once a broker has restarted or the group has rebalanced."""


def passes(error: Exception) -> bool:
    """Return whether an error is retriable (see `GroupKafkaError.passing`)."""
    return isinstance(error, GroupKafkaError) and error.passing


class OptionError(GroupKafkaError):
    """An option is unknown, missing, malformed or in conflict with another. Nothing was started.

    The message lists every problem. `problems` has each one separately.
    """

    def __init__(self, text: str, problems: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.problems = problems or (text,)


class SchemaError(GroupKafkaError):
    """The schema in `.schema(...)` has a column or a type that cannot be read, or a record has a null in a NOT NULL column."""


class BrokerError(GroupKafkaError):
    """The brokers refused or did not answer a request."""


class BrokerUnavailable(BrokerError):
    """No broker answers at `kafka.bootstrap.servers`, or a partition's leader does not answer."""

    passing = True


class AuthenticationFailed(BrokerError):
    """The brokers refused the credentials or the certificate."""


class NotAuthorized(BrokerError):
    """The user lacks an ACL on the group or a topic."""


class GroupNotFound(BrokerError):
    """The group has neither members nor committed offsets."""


class NotAConsumerGroup(BrokerError):
    """This is not a consumer group but a share group, a streams group, or a classic group whose members are not consumers."""


class TopicNotFound(BrokerError):
    """A subscribed topic, or one of its partitions, does not exist."""


class MembershipError(GroupKafkaError):
    """This driver is not a member of its group, or no longer is."""


class AssignmentTimeout(MembershipError):
    """The group did not assign partitions to this driver within `assignmentTimeout`."""


class MemberFenced(MembershipError):
    """Another process joined the group with the same `kafka.group.instance.id` (KIP-345)."""


class GroupActive(MembershipError):
    """The group has members, so its coordinator accepts commits only from them."""


class MembershipClosed(MembershipError):
    """The member has left the group, so it can no longer claim or commit."""


class CommitError(GroupKafkaError):
    """A commit failed. If `passing` is true, it can be retried once the group's callbacks have run."""


class GenerationChanged(CommitError):
    """The commit was refused because the group is moving to a new generation, or the member to a new epoch (KIP-848)."""

    passing = True


class CoordinatorUnavailable(CommitError):
    """The commit was refused because the group's coordinator is loading or moving to another broker."""

    passing = True


class MemberUnknown(CommitError):
    """The coordinator expelled this member because its session or `max.poll.interval.ms` ran out. The member will rejoin."""

    passing = True


class CommitOutcomeUnknown(CommitError):
    """A commit got no response, so it may or may not have been written."""


class CommitRefused(CommitError):
    """The broker refused this commit and will never accept it."""


class HandoffError(GroupKafkaError):
    """The hand-off's rules do not allow the query to continue (docs/handoff.md)."""


class CheckpointBehindGroup(HandoffError):
    """The checkpoint is older than the group's records for this stream: it was restored or copied, or two drivers use it."""


class CommitRecordUnreadable(HandoffError):
    """Another version wrote the group's record for a partition, in a format that this version cannot read."""


class AsynchronousProgress(HandoffError):
    """Spark asked for a micro-batch before it had logged the previous one (`asyncProgressTrackingEnabled`)."""


class ClaimTimeout(HandoffError):
    """A range in this micro-batch waited too long for another member to adopt its partition."""


class ClaimsInTheWay(HandoffError):
    """A reset would discard ranges that are claimed but not confirmed, so their records could be lost or duplicated."""


class OffsetsInTheWay(HandoffError):
    """A migration or a reset would replace the group's offsets or discard its claims, or the group belongs to a sink."""


class OffsetError(GroupKafkaError):
    """An offset in the checkpoint is malformed, or belongs to another version, group or topic."""


class UncommittedBatch(OffsetError):
    """The last micro-batch in the checkpoint to migrate is not committed, so its rows may or may not be in the output."""


class CheckpointOfAnotherStream(OffsetError):
    """The reader's `checkpointLocation` option names another stream's checkpoint."""


class CheckpointUnreadable(OffsetError):
    """A checkpoint's files cannot be read."""


class SinkError(GroupKafkaError):
    """The sink cannot write to Kafka, or must not."""


class CheckpointBehindSink(SinkError):
    """The topic has micro-batches from this query that are newer than its checkpoint, which was restored, deleted or copied."""


class BatchUnknown(SinkError):
    """The sink cannot tell whether it has already written a micro-batch, because the offsets have expired or never existed."""


class WrittenElsewhere(SinkError):
    """A micro-batch was partly or fully written with another `transactionalIdPrefix` or to another topic."""


class InputIncomplete(SinkError):
    """Spark cancelled a task before its last row. The rows that the task wrote are aborted."""


class ReplayDiffers(SinkError):
    """A replayed micro-batch does not have the same rows or tasks as when it was partly written."""


class TokenUnreadable(SinkError):
    """Another client, or another version of this package, committed to a group where the sink records its progress."""


class WriterFenced(SinkError):
    """Another attempt of the same task, or another query with the same prefix, has taken over the transactional id."""


class RecordTooLarge(SinkError):
    """A row is larger than `kafka.max.request.size` or the topic's `max.message.bytes`."""


class RecordRefused(SinkError):
    """A row has no topic, a partition that its topic does not have, or a header key that the producer cannot write."""


class ProcessLimitReached(GroupKafkaError):
    """The process has no memory or threads left, usually because of `spark.executor.pyspark.memory`."""


class WorkersPythonUnsuitable(GroupKafkaError):
    """Spark's Python workers would fail because their Python lacks this package or has another version of it."""


class NotWithSparkConnect(GroupKafkaError):
    """A Spark Connect query cannot be stopped gracefully, because its driver may be on another host. It keeps running."""


class ReportsUnavailable(GroupKafkaError):
    """The driver's program cannot report finished micro-batches to the runner, or the runner cannot see the reports."""


class DataLossError(GroupKafkaError):
    """Unread records are no longer in Kafka, because of retention or a deleted topic (`failOnDataLoss`)."""
