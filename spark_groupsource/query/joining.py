"""Joins the group: creates the member and its ledger, and waits until the group has assigned partitions."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from confluent_kafka import KafkaError

from spark_groupsource.brokers.broker_errors import explain
from spark_groupsource.brokers.client import connect_to_leader
from spark_groupsource.brokers.group_admin_process import GroupAdminProcess
from spark_groupsource.brokers.topic_ids import TopicIds
from spark_groupsource.brokers.topics import Topics
from spark_groupsource.errors import (
    AssignmentTimeout,
    BrokerError,
    BrokerUnavailable,
    GroupKafkaError,
    MemberFenced,
    MembershipError,
    NotAConsumerGroup,
    TopicNotFound,
    passes,
)
from spark_groupsource.group.brokers_answer import ask_brokers
from spark_groupsource.group.coordinator_watch import watch
from spark_groupsource.group.fenced_commits import FencedCommits, fetch_commits
from spark_groupsource.group.group_reader import GroupReader
from spark_groupsource.group.ledger import Ledger
from spark_groupsource.group.member import Member
from spark_groupsource.group.survey import Survey
from spark_groupsource.handoff.commit_record import GroupCommit, writable_cluster_id
from spark_groupsource.handoff.plan_offset import PlanOffset
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.kafka_settings.client_id import named
from spark_groupsource.observer import Observer
from spark_groupsource.options.model import Options
from spark_groupsource.options.start_and_end import refuse_unknown
from spark_groupsource.options.topic_pattern import INTERNAL_TOPICS
from spark_groupsource.partition import TopicPartition, listed
from spark_groupsource.patience import Deadline
from spark_groupsource.query.starting_offsets import StartingOffsets
from spark_groupsource.timeouts import JOIN_INTERVAL_S

log = logging.getLogger(__name__)

FIRST_FETCH_TIMEOUT_S = 5.0
"""The timeout for one request for the group's commits before this member joins. It is shorter than FETCH_TIMEOUT_S, so that a
signal to stop the query is handled between two requests."""

STOPPING_EVERY_S = 0.2
"""How often a run that is joining checks whether the query is being stopped."""

JOIN_AGAIN_S = 1.0
"""The pause between two attempts to join while another process has the same `kafka.group.instance.id`, or the group is full."""


class Joining:
    """Makes this run a member of its group. `join` is called on the runner's main thread, `leave` on any thread."""

    def __init__(
        self,
        options: Options,
        topics: Topics,
        topic_ids: TopicIds,
        starting_offsets: StartingOffsets,
        *,
        is_stopping: Callable[[str], bool],
        observer: Observer,
    ) -> None:
        """Prepare to join. Nothing is sent yet.

        Args:
            options: the source's options.
            topics: the subscribed topics.
            topic_ids: their ids.
            starting_offsets: returns where partitions without a commit start.
            is_stopping: returns whether a stream's query is being stopped and will not plan anything.
            observer: receives reports from the member and its ledger.
        """
        self._options = options
        self._topics = topics
        self._topic_ids = topic_ids
        self._starting_offsets = starting_offsets
        self._is_stopping = is_stopping
        self._observer = observer
        self._member: Member | None = None
        self._has_joined = False
        """Whether this run has ever been a member of the group."""

    def join(self, stream: Stream, newest: PlanOffset, deadline: Deadline) -> tuple[Member, Ledger]:
        """Join the group, and return the member and its ledger once the run can plan.

        If the query is being stopped and has no micro-batch to confirm or repeat, this may return before the member has joined.

        Args:
            stream: the stream as its checkpoint describes it.
            newest: the newest offset in the checkpoint.
            deadline: how long to wait.

        Raises:
            AssignmentTimeout: the group did not assign anything before the deadline.
            MemberFenced: another process has the same `kafka.group.instance.id`. Under KIP-848 this is raised at the deadline.
            NotAConsumerGroup: it is not a consumer group.
            MembershipError: the group rejects this member's assignor or protocol, or is full. If this run was a member before, a
                full group is an error only at the deadline.
        """
        options = self._options
        if newest.plan < 0:
            refuse_unknown(options.stream_start, self._topics.partitions(skip_missing=True))
        self._starting_offsets.begin(newest)
        while True:
            try:
                return self._join_once(stream, deadline)
            except MemberFenced as error:
                # Under KIP-848 a static member that was killed keeps its instance id until its session times out, so wait. With
                # the classic protocol the newest member gets the id, and joining again would make the other query fail.
                if options.group_protocol == "classic":
                    raise
                deadline.pause_after(error, JOIN_AGAIN_S)
            except MembershipError as refused:
                if not self._earlier_member_still_counts():
                    raise self._reason(refused) from None
                deadline.pause_after(refused, JOIN_AGAIN_S)

    def leave(self) -> None:
        """Leave the group if this driver has joined it or is joining. Safe in a signal handler."""
        if self._member is not None:
            self._member.close()

    def _earlier_member_still_counts(self) -> bool:
        """Return whether the group may be full because it still counts this run's earlier member, whose session is not over."""
        member = self._member
        return self._has_joined and member is not None and member.ended_by == KafkaError.GROUP_MAX_SIZE_REACHED

    def _reason(self, refused: MembershipError) -> GroupKafkaError:
        """Return the real reason for a refusal: `NotAConsumerGroup` if it is not a consumer group, otherwise the error itself."""
        if type(refused) is MembershipError:
            try:
                with GroupAdminProcess(self._options.client_settings()) as group:
                    group.refuse_other_kinds(self._options.group_id)
            except NotAConsumerGroup as other_kind:
                return other_kind
            except BrokerError as error:
                log.info("checking whether the group is of another kind failed: %s", error)
        return refused

    def _join_once(self, stream: Stream, deadline: Deadline) -> tuple[Member, Ledger]:
        """Make a member and its ledger, join the group with them, and wait for the assignment."""
        options = self._options
        self._observer.joining(stream.name)
        client_settings = named(options.client_settings(), stream.name)
        self._member = member = Member(
            named(options.member_settings(), stream.name),
            options.subscription(),
            drain_timeout_s=options.drain_timeout_ms / 1000,
            observer=self._observer,
        )
        cluster_id = writable_cluster_id(self._topics.cluster_id())
        commits = FencedCommits(member.consumer, options.group_id, cluster_id=cluster_id, observer=self._observer)
        ledger = Ledger(
            stream,
            commits,
            survey=Survey(
                partial(
                    ask_brokers,
                    starting_offsets=self._starting_offsets,
                    topic_ids=self._topic_ids.now,
                    log_starts=self._topics.starts,
                )
            ),
            reader=GroupReader(
                client_settings,
                options.group_id,
                subscribed=self._subscribed,
                everywhere=lambda: self._topics.everywhere(leave_out=INTERNAL_TOPICS),
                cluster_id=cluster_id,
            ),
            fail_on_data_loss=options.fail_on_data_loss,
            held_claims=options.held_claims_choice(),
            patience_s=options.assignment_timeout_ms / 1000,
            observer=self._observer,
        )
        # Read the group's commits before joining: a query whose checkpoint is behind the group must end without taking a
        # partition from other members, and every claim that exists now was made before this query started.
        ledger.note_group(self._fetch_commits(member, cluster_id, deadline))
        member.start(ledger)
        if options.group_protocol == "consumer":
            watch(member, options.group_id, GroupAdminProcess(client_settings))
        try:
            self._wait_assigned(member, ledger, deadline, stream)
        except MembershipError:
            member.close()
            raise
        return member, ledger

    def _fetch_commits(self, member: Member, cluster_id: str | None, deadline: Deadline) -> dict[TopicPartition, GroupCommit]:
        """Return the group's commits for all subscribed partitions. Call this before the member's thread starts."""

        def fetch() -> dict[TopicPartition, GroupCommit]:
            """Fetch the commits once."""
            partitions = self._subscribed()
            connect_to_leader(member.consumer, partitions)
            group_id = self._options.group_id
            return fetch_commits(member.consumer, group_id, partitions, cluster_id=cluster_id, timeout_s=FIRST_FETCH_TIMEOUT_S)

        # A topic may be deleted between the two requests.
        return deadline.retry(fetch, lambda error: passes(error) or isinstance(error, TopicNotFound))

    def _subscribed(self) -> list[TopicPartition]:
        """Return the partitions of all subscribed topics that exist."""
        return self._topics.partitions(skip_missing=True)

    def _wait_assigned(self, member: Member, ledger: Ledger, deadline: Deadline, stream: Stream) -> None:
        """Wait until the member can plan or the query is being stopped. Raise an error at the deadline."""
        while not (joined := member.wait_joined(min(STOPPING_EVERY_S, deadline.left))) and not deadline.over:
            if stream.durable == stream.logged and not ledger.may_be_claimed and self._is_stopping(stream.name):
                return
        if joined:
            self._has_joined = True
            for _ in deadline.attempts(first_s=JOIN_INTERVAL_S):
                if member.call(ledger.ready):
                    return
        trouble = member.last_trouble
        reason = "." if trouble is None else f"; {explain(trouble, 'the Kafka client says')}"
        owned = member.assignment.partitions
        member.close()
        if owned:
            raise BrokerUnavailable(
                f"The group {self._options.group_id} assigned {listed(sorted(owned), 20)} to this driver, but within "
                f"{self._options.assignment_timeout_ms} ms (assignmentTimeout) the brokers did not answer where to start reading"
                f"{reason} Nothing was read. Check that the partitions' leaders and the group's coordinator are up."
            )
        raise AssignmentTimeout(
            f"The group {self._options.group_id} gave this driver no assignment within "
            f"{self._options.assignment_timeout_ms} ms (assignmentTimeout){reason} "
            "Nothing was read. Another member may delay the rebalance until its session or max.poll.interval.ms times out. "
            f"`groupkafka describe --group {self._options.group_id}` shows the members."
        )
