"""Joining the group: who this stream is, where it starts, and waiting until the group has given it something."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial

from spark_groupsource.brokers.broker_errors import explain
from spark_groupsource.brokers.topic_ids import TopicIds
from spark_groupsource.brokers.topics import Topics
from spark_groupsource.errors import AssignmentTimeout, MemberFenced
from spark_groupsource.group.adoption import look_up
from spark_groupsource.group.fenced_commits import FencedCommits
from spark_groupsource.group.ledger import Ledger
from spark_groupsource.group.member import JOIN_INTERVAL_S, Member
from spark_groupsource.group.survey import Survey
from spark_groupsource.handoff.commit_record import writable_cluster_id
from spark_groupsource.handoff.losses import changed
from spark_groupsource.handoff.plan_offset import PlanOffset
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.observer import Observer
from spark_groupsource.options.model import Options
from spark_groupsource.options.start_and_end import offsets_at, refuse_unknown
from spark_groupsource.options.topic_pattern import INTERNAL_TOPICS
from spark_groupsource.partition import TopicPartition, topics_of
from spark_groupsource.patience import RETRY_INTERVAL_S, Deadline
from spark_groupsource.query.joined import Joined
from spark_groupsource.query.siblings import Source, refuse_shared_topics

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StartingOffsets:
    """Where a partition without a commit starts. It never changes. A thread of the ledger's survey calls it."""

    options: Options
    topics: Topics
    """`Topics.without_patience`: the main thread asks for ends meanwhile."""
    began_with: frozenset[TopicPartition]
    """The partitions that existed when the stream began."""
    began_ids: Mapping[str, str]
    """The ids of their topics then."""

    def __call__(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets (inclusive): as the options say in what the stream began with, else the log's start."""
        of_then = [partition for partition in partitions if partition in self.began_with]
        ids = self.topics.ids(topics_of(of_then))
        of_then = [one for one in of_then if not changed(self.began_ids.get(one.topic), ids.get(one.topic, ""))]
        later = [partition for partition in partitions if partition not in of_then]
        return self.topics.starts(later) | offsets_at(self.options.stream_start, of_then, self.topics)


class Joining:
    """Joins the group, and leaves it. `join` is called on the runner's main thread, `leave` from any thread."""

    def __init__(
        self, options: Options, topics: Topics, topic_ids: TopicIds, *, clock: Callable[[], float], observer: Observer
    ) -> None:
        """Prepare to join. Nothing is sent yet.

        Args:
            options: the options of the source.
            topics: the subscribed topics.
            topic_ids: their ids.
            clock: returns seconds, monotonic.
            observer: receives what the member and its ledger report.
        """
        self._options = options
        self._topics = topics
        self._topic_ids = topic_ids
        self._clock = clock
        self._observer = observer
        self._member: Member | None = None

    def join(self, stream: Stream, newest: PlanOffset, leave_deleted: Callable[[Joined], bool]) -> Joined:
        """Join the group, and return once there is something to plan with.

        Args:
            stream: what the checkpoint says.
            newest: the newest offset of the checkpoint.
            leave_deleted: see `Joined`.

        Raises:
            GroupSharedInQuery: another source of this query is in the same group and reads one of these topics.
            AssignmentTimeout: the group gave no assignment within `assignmentTimeout`.
            MemberFenced: another process has had the same `kafka.group.instance.id` for as long.
        """
        options = self._options
        topics = frozenset(topics_of(self._topics.partitions(skip_missing=True)))
        refuse_shared_topics(Source(self._topics.cluster_id(), options.group_id, topics))
        start = StartingOffsets(options, self._topics.without_patience(), newest.began_with(), newest.topics)
        if newest.plan < 0:
            refuse_unknown(options.stream_start, start.began_with)
        deadline = Deadline(options.assignment_timeout_ms / 1000, clock=self._clock)
        # KIP-848: a static member that was killed holds its instance id until its session is over.
        member, ledger = deadline.retry(
            lambda: self._attempt(stream, start, deadline), lambda error: isinstance(error, MemberFenced), 10 * RETRY_INTERVAL_S
        )
        return Joined(member, ledger, options, leave_deleted=leave_deleted, clock=self._clock)

    def leave(self) -> None:
        """Leave the group, if this driver has joined it or is joining. Safe in a signal handler."""
        if self._member is not None:
            self._member.close()

    def _attempt(self, stream: Stream, start: StartingOffsets, deadline: Deadline) -> tuple[Member, Ledger]:
        options = self._options
        self._member = member = Member(
            options.member_settings(),
            options.subscription(),
            drain_timeout_s=options.drain_timeout_ms / 1000 if options.handoff == "drain" else 0,
            observer=self._observer,
        )
        self._observer.joining(stream.name)
        ledger = Ledger(
            stream,
            FencedCommits(
                member.consumer,
                options.group_id,
                cluster_id=writable_cluster_id(self._topics.cluster_id()),
                observer=self._observer,
            ),
            survey=Survey(
                partial(look_up, starting_offsets=start, topic_ids=self._topic_ids.now, log_starts=self._topics.starts)
            ),
            all_partitions=lambda: self._topics.partitions(skip_missing=True),
            other_partitions=lambda: self._topics.everywhere(leave_out=INTERNAL_TOPICS),
            fail_on_data_loss=options.fail_on_data_loss,
            outstanding=options.outstanding(),
            patience_s=options.assignment_timeout_ms / 1000,
            observer=self._observer,
        )
        member.start(ledger)
        try:
            self._wait_assigned(member, ledger, deadline)
        except MemberFenced:
            member.close()
            raise
        return member, ledger

    def _wait_assigned(self, member: Member, ledger: Ledger, deadline: Deadline) -> None:
        if member.wait_joined(deadline.left):
            for _ in deadline.attempts(first_s=JOIN_INTERVAL_S):
                if member.call(ledger.ready):
                    return
        trouble = member.last_trouble
        member.close()
        raise AssignmentTimeout(
            f"The group {self._options.group_id} gave this driver no assignment within "
            f"{self._options.assignment_timeout_ms} ms (assignmentTimeout)"
            + (f"; {explain(trouble, 'the Kafka client says')}" if trouble is not None else ".")
            + " Nothing was read. Another member may delay the rebalance until its session or max.poll.interval.ms times out. "
            f"`groupkafka describe --group {self._options.group_id}` shows the members."
        )
