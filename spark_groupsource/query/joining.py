"""Joins the group: creates the member, fetches the group's commits, and waits for the first assignment."""

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
from spark_groupsource.kafka_settings.client_id import name_clients
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
"""The time limit of one request for the group's commits before this member joins, instead of FETCH_TIMEOUT_S. The request is
repeated, and a signal to stop is served in between."""

STOPPING_EVERY_S = 0.2
"""How often a run that waits to join checks whether the query is being stopped."""

JOIN_AGAIN_S = 1.0
"""The pause between two attempts to join while another process has the same `kafka.group.instance.id`, or the group is full."""


class Joining:
    """Joins the group and leaves it. `join` is called on the runner's main thread, `leave` from any thread."""

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
            options: the options of the source.
            topics: the subscribed topics.
            topic_ids: their ids.
            starting_offsets: where partitions without a commit start.
            is_stopping: whether the query of a stream is being stopped, so that it will plan nothing.
            observer: receives what the member and its ledger report.
        """
        self._options = options
        self._topics = topics
        self._topic_ids = topic_ids
        self._starting_offsets = starting_offsets
        self._is_stopping = is_stopping
        self._observer = observer
        self._member: Member | None = None
        self._has_joined = False
        """Whether the group has had a member of this run."""

    def join(self, stream: Stream, newest: PlanOffset, deadline: Deadline) -> tuple[Member, Ledger]:
        """Join the group, and return the member and the records of its partitions once the run can plan with them.

        If the query is being stopped and has nothing to confirm or to run again, the member may not have joined yet.

        Args:
            stream: the stream as its checkpoint describes it.
            newest: the newest offset of the checkpoint.
            deadline: how long to wait for the group.

        Raises:
            AssignmentTimeout: the group gave no assignment before the deadline.
            MemberFenced: another process has the same `kafka.group.instance.id`; under KIP-848, until the deadline.
            NotAConsumerGroup: the group is not a consumer group.
            MembershipError: the group refuses this member's assignor or protocol, or is full. If this run has been a member
                before, the group was full until the deadline.
        """
        options = self._options
        if newest.plan < 0:
            refuse_unknown(options.stream_start, self._topics.partitions(skip_missing=True))
        self._starting_offsets.begin(newest)
        while True:
            try:
                return self._join_once(stream, deadline)
            except MemberFenced as error:
                # Under KIP-848 a static member that was killed keeps its instance id until its session is over. With the classic
                # protocol the newest member gets the id, so a member that took it back would end the other query.
                if options.group_protocol == "classic":
                    raise
                deadline.pause_after(error, JOIN_AGAIN_S)
            except MembershipError as refused:
                if not self._counts_twice():
                    raise self._reason(refused) from None
                deadline.pause_after(refused, JOIN_AGAIN_S)

    def leave(self) -> None:
        """Leave the group, if this driver has joined it or is joining. Safe in a signal handler."""
        if self._member is not None:
            self._member.close()

    def _counts_twice(self) -> bool:
        """Return whether the group may be full only because the session of this run's earlier member is not over yet."""
        member = self._member
        return self._has_joined and member is not None and member.ended_by == KafkaError.GROUP_MAX_SIZE_REACHED

    def _reason(self, refused: MembershipError) -> GroupKafkaError:
        """Return the reason for a refusal. A group of another kind refuses a member as if its assignor or protocol were wrong."""
        if type(refused) is MembershipError:
            try:
                with GroupAdminProcess(self._options.client_settings()) as group:
                    group.refuse_other_kinds(self._options.group_id)
            except NotAConsumerGroup as other:
                return other
            except BrokerError as unknown:
                log.info("cannot find out whether the group is a consumer group: %s", unknown)
        return refused

    def _join_once(self, stream: Stream, deadline: Deadline) -> tuple[Member, Ledger]:
        options = self._options
        self._observer.joining(stream.name)
        client_settings, member_settings = options.client_settings(), options.member_settings()
        name_clients(stream.name, client_settings, member_settings)
        self._member = member = Member(
            member_settings,
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
        # Before it joins, because a query whose checkpoint is behind the group must end without taking a partition from others.
        # Also, claims that exist by now cannot be this run's.
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
        """Return the group's commits for all subscribed partitions. The member's thread does not use the consumer yet."""

        def fetched() -> dict[TopicPartition, GroupCommit]:
            partitions = self._subscribed()
            connect_to_leader(member.consumer, partitions)
            group_id = self._options.group_id
            return fetch_commits(member.consumer, group_id, partitions, cluster_id=cluster_id, timeout_s=FIRST_FETCH_TIMEOUT_S)

        # A topic may be deleted between the two requests.
        return deadline.retry(fetched, lambda error: passes(error) or isinstance(error, TopicNotFound))

    def _subscribed(self) -> list[TopicPartition]:
        return self._topics.partitions(skip_missing=True)

    def _wait_assigned(self, member: Member, ledger: Ledger, deadline: Deadline, stream: Stream) -> None:
        while not (joined := member.wait_joined(min(STOPPING_EVERY_S, deadline.left))) and not deadline.over:
            if stream.durable == stream.logged and not ledger.may_be_claimed and self._is_stopping(stream.name):
                return
        if joined:
            self._has_joined = True
            for _ in deadline.attempts(first_s=JOIN_INTERVAL_S):
                if member.call(ledger.ready):
                    return
        trouble = member.last_trouble
        said = "." if trouble is None else f"; {explain(trouble, 'the Kafka client says')}"
        owned = member.assignment.partitions
        member.close()
        if owned:
            raise BrokerUnavailable(
                f"The group {self._options.group_id} gave this driver {listed(sorted(owned), 20)}, and within "
                f"{self._options.assignment_timeout_ms} ms (assignmentTimeout) no broker said where to read "
                f"{'it' if len(owned) == 1 else 'them'}{said} Nothing was read. "
                "Check that the partitions' leaders and the group's coordinator are up."
            )
        raise AssignmentTimeout(
            f"The group {self._options.group_id} gave this driver no assignment within "
            f"{self._options.assignment_timeout_ms} ms (assignmentTimeout){said} "
            "Nothing was read. Another member may delay the rebalance until its session or max.poll.interval.ms times out. "
            f"`groupkafka describe --group {self._options.group_id}` shows the members."
        )
