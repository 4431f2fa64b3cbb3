"""Defines all exceptions of this package, as one tree.

GroupKafkaError
├── OptionError                 a wrong, missing or conflicting option; nothing was started
├── SchemaError                 a schema names columns or types that no record has, or a record does not fit the schema
├── BrokerError                 the brokers refused a request, or did not answer it
│   ├── BrokerUnavailable       no broker answers, or a partition's leader does not
│   ├── AuthenticationFailed    the brokers refuse the user, the password or the certificate
│   ├── NotAuthorized           the user lacks an ACL on the group or on a topic
│   ├── GroupNotFound           the group has neither members nor committed offsets
│   ├── NotAConsumerGroup       the group is of another kind: a share group, a streams group, or Kafka Connect's
│   └── TopicNotFound           a subscribed topic does not exist
├── MembershipError             this driver is not, or no longer, a member of its group
│   ├── AssignmentTimeout       the group gave no assignment within `assignmentTimeout`
│   ├── MemberFenced            another process uses the same `kafka.group.instance.id`
│   ├── GroupActive             the group has members or is in use, so a command must not change or delete it
│   └── MembershipClosed        the member has left the group (the query is stopping)
├── CommitError                 a commit of records failed; `passing` tells whether the same commit may be sent again
│   ├── GenerationChanged       the group is moving to a new generation: serve the callbacks, then try again
│   ├── CoordinatorUnavailable  the coordinator is loading or moving: try again
│   ├── MemberUnknown           the member was expelled from the group, and rejoins
│   ├── CommitOutcomeUnknown    there was no answer, so the commit may or may not have been written
│   └── CommitRefused           the broker will never accept it (its metadata is too large, ...)
├── HandoffError                a rule of the hand-off does not allow the query to continue (docs/handoff.md)
│   ├── CheckpointBehindGroup   the group's records show plans of this stream that the checkpoint does not have
│   ├── CommitRecordUnreadable  the group's record of a partition is in a format that this version cannot read
│   ├── AsynchronousProgress    Spark reads a micro-batch before it has logged the previous one
│   ├── ClaimTimeout            a replayed range still waits for another member to adopt its partition
│   ├── ClaimsInTheWay          a reset of offsets would forget claims
│   └── OffsetsInTheWay         a migration or a reset would replace offsets that the group has committed
├── OffsetError                 an offset in the checkpoint cannot be used (another version, group or topic)
│   ├── UncommittedBatch        the checkpoint to migrate ends in the middle of a micro-batch
│   ├── CheckpointOfAnotherStream  the reader's `checkpointLocation` is not the checkpoint of its query
│   └── CheckpointUnreadable    the files of a checkpoint cannot be read
├── SinkError                   the sink cannot write into Kafka, or must not (docs/sink.md)
│   ├── CheckpointBehindSink    the topic has later micro-batches of the query than the checkpoint
│   ├── BatchUnknown            it is not known whether a micro-batch was written: the sink's offsets have expired
│   ├── WrittenElsewhere        a micro-batch is half written under another prefix, or in another topic
│   ├── InputIncomplete         Spark has cancelled the task before its last row
│   ├── ReplayDiffers           a replayed micro-batch has other rows than the topic
│   ├── TokenUnreadable         another client or version committed to a group of the sink
│   ├── WriterFenced            another attempt of the task, or another query, writes with the same transactional id
│   ├── RecordTooLarge          a row is larger than the producer or the topic allows
│   └── RecordRefused           a row has no topic, or a partition that the topic does not have
├── ProcessLimitReached         the process has no memory or no thread left for a Kafka client
├── WorkersPythonUnsuitable     Spark starts a Python that lacks this package, or has another version of it
├── ReportsUnavailable          the driver's program cannot report durable plans to the runner
├── NotWithSparkConnect         `stop_gracefully` and `await_termination` need the driver on this host
└── DataLossError               records that should be read are no longer in Kafka (`failOnDataLoss`)
"""

from __future__ import annotations

from typing import ClassVar


class GroupKafkaError(Exception):
    """The base class of all errors of this package."""

    passing: ClassVar[bool] = False
    """Whether the error is retriable: the same step may succeed later, once a broker has restarted or the group rebalanced."""


def passes(error: Exception) -> bool:
    """Return whether an error is retriable (see `GroupKafkaError.passing`)."""
    return isinstance(error, GroupKafkaError) and error.passing


class OptionError(GroupKafkaError):
    """An option is unknown, missing, malformed or in conflict with another one.

    `problems` has one text for each mistake; the message contains all of them.
    """

    def __init__(self, text: str, problems: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.problems = problems or (text,)


class SchemaError(GroupKafkaError):
    """The schema of `.schema(...)` has a column or a type that cannot be read, or a record is null in a NOT NULL column."""


class BrokerError(GroupKafkaError):
    """The brokers refused a request, or did not answer it."""


class BrokerUnavailable(BrokerError):
    """No broker answers at `kafka.bootstrap.servers`, or the leader of a partition does not."""

    passing = True


class AuthenticationFailed(BrokerError):
    """The brokers refused the credentials or the certificate."""


class NotAuthorized(BrokerError):
    """The user lacks an ACL on the group or on a topic."""


class GroupNotFound(BrokerError):
    """The group has neither members nor committed offsets."""


class NotAConsumerGroup(BrokerError):
    """The group is of another kind: a share group, a streams group, or a classic group whose members are not consumers."""


class TopicNotFound(BrokerError):
    """A subscribed topic, or a partition of it, does not exist."""


class MembershipError(GroupKafkaError):
    """This driver is not, or no longer, a member of its group."""


class AssignmentTimeout(MembershipError):
    """The group gave no assignment within `assignmentTimeout`."""


class MemberFenced(MembershipError):
    """Another process joined with the same `kafka.group.instance.id` (KIP-345)."""


class GroupActive(MembershipError):
    """The group has members, and its coordinator accepts commits from members only."""


class MembershipClosed(MembershipError):
    """The member has left the group, and can do nothing more in it."""


class CommitError(GroupKafkaError):
    """A commit failed. If `passing` is true, the same commit may be sent again once the group's callbacks have run."""


class GenerationChanged(CommitError):
    """The group is moving to a new generation (classic) or the member to a new epoch (KIP-848)."""

    passing = True


class CoordinatorUnavailable(CommitError):
    """The group's coordinator is loading or moving to another broker."""

    passing = True


class MemberUnknown(CommitError):
    """The coordinator has expelled this member after its session or its `max.poll.interval.ms`. It rejoins by itself."""

    passing = True


class CommitOutcomeUnknown(CommitError):
    """The request got no answer: the commit may or may not have been written."""


class CommitRefused(CommitError):
    """The broker refuses this commit permanently."""


class HandoffError(GroupKafkaError):
    """A rule of the hand-off does not allow the query to continue (docs/handoff.md)."""


class CheckpointBehindGroup(HandoffError):
    """The group's records show plans of this stream that its checkpoint lacks: it was restored, copied, or runs twice."""


class CommitRecordUnreadable(HandoffError):
    """The group's record of a partition is in another format, because another version wrote it."""


class AsynchronousProgress(HandoffError):
    """Spark asks for a micro-batch before its logs have the previous one (`asyncProgressTrackingEnabled`)."""


class ClaimTimeout(HandoffError):
    """A range of a planned micro-batch waited too long for the partition's new owner."""


class ClaimsInTheWay(HandoffError):
    """A reset would forget ranges that are claimed but not confirmed."""


class OffsetsInTheWay(HandoffError):
    """A migration or a reset would replace offsets or forget claims of the group, or the group belongs to a sink."""


class OffsetError(GroupKafkaError):
    """An offset of the checkpoint belongs to another version, group or topics, or is malformed."""


class UncommittedBatch(OffsetError):
    """The last micro-batch of a checkpoint to migrate was planned but not committed."""


class CheckpointOfAnotherStream(OffsetError):
    """The reader's option `checkpointLocation` names the checkpoint of another stream."""


class CheckpointUnreadable(OffsetError):
    """The files of a checkpoint cannot be read."""


class SinkError(GroupKafkaError):
    """The sink cannot write, or must not."""


class CheckpointBehindSink(SinkError):
    """The topic has later micro-batches of the query than its checkpoint, which was restored, deleted or copied."""


class BatchUnknown(SinkError):
    """It is not known whether a micro-batch was written before: the sink's offsets have expired, or never existed."""


class WrittenElsewhere(SinkError):
    """A micro-batch was written, in part or as a whole, with another `transactionalIdPrefix` or into another topic."""


class InputIncomplete(SinkError):
    """Spark has cancelled a task before the end of its rows. The rows that it wrote are aborted."""


class ReplayDiffers(SinkError):
    """A micro-batch that Spark runs again has other rows, or other tasks, than when it was half written."""


class TokenUnreadable(SinkError):
    """Another client, or another version of this package, committed to a group in which the sink records its progress."""


class WriterFenced(SinkError):
    """Another attempt of the same task, or another query with the same prefix, has taken the transactional id."""


class RecordTooLarge(SinkError):
    """A row is larger than `kafka.max.request.size`, or than the topic's `max.message.bytes`."""


class RecordRefused(SinkError):
    """A row has no topic, a partition that its topic does not have, or a header's key that the producer cannot write."""


class ProcessLimitReached(GroupKafkaError):
    """The process has no memory or no thread left, usually because of `spark.executor.pyspark.memory`."""


class WorkersPythonUnsuitable(GroupKafkaError):
    """Spark's Python workers would fail, because their Python lacks the package, or has another version of it."""


class NotWithSparkConnect(GroupKafkaError):
    """A query of Spark Connect cannot be stopped gracefully, because its driver may run on another host. It still runs."""


class ReportsUnavailable(GroupKafkaError):
    """The driver's program cannot report durable plans to the runner, or the runner cannot see the reports."""


class DataLossError(GroupKafkaError):
    """Records that should be read are no longer in Kafka: retention, or a topic that was deleted (`failOnDataLoss`)."""
