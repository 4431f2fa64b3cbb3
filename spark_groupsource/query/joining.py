"""Joining the group: who this stream is, where it starts, and waiting until the group has given it something."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping
from functools import partial
from types import MappingProxyType

from spark_groupsource.brokers.broker_errors import explain
from spark_groupsource.brokers.group_look import GroupLook
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
    OptionError,
    TopicNotFound,
)
from spark_groupsource.group.brokers_answer import ask_brokers
from spark_groupsource.group.coordinator_watch import watch
from spark_groupsource.group.fenced_commits import FencedCommits, fetch_commits
from spark_groupsource.group.group_reader import GroupReader
from spark_groupsource.group.ledger import Ledger
from spark_groupsource.group.member import Member
from spark_groupsource.group.survey import Survey
from spark_groupsource.handoff.commit_record import writable_cluster_id
from spark_groupsource.handoff.losses import changed
from spark_groupsource.handoff.plan_offset import FromTime, PlanOffset, Start, Starts
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.observer import Observer
from spark_groupsource.options.model import Options
from spark_groupsource.options.start_and_end import ByTime, found_out, named_starts, no_record, offsets_at, refuse_unknown
from spark_groupsource.options.topic_pattern import INTERNAL_TOPICS
from spark_groupsource.partition import TopicPartition, listed, topics_of
from spark_groupsource.patience import Deadline
from spark_groupsource.query.joined import Joined
from spark_groupsource.timeouts import (
    ASK_LEADERS_S,
    FIRST_FETCH_TIMEOUT_S,
    JOIN_INTERVAL_S,
    LOOK_FOR_COMMITS_EVERY_S,
    RETRY_INTERVAL_S,
)

log = logging.getLogger(__name__)


class StartingOffsets:
    """Where a partition without a commit starts: where the options named when the stream began, else at its beginning.

    Used on the runner's main thread. Threads of the ledger's survey only call the object itself.
    """

    def __init__(self, options: Options, topics: Topics, topic_ids: TopicIds, *, clock: Callable[[], float]) -> None:
        """Begin without a stream. Nothing is asked yet.

        Args:
            options: the options of the source.
            topics: the subscribed topics.
            topic_ids: their ids.
            clock: returns seconds, monotonic.
        """
        self._options = options
        self._topics = topics.without_patience()  # the main thread asks for ends meanwhile
        self._topic_ids = topic_ids
        self._clock = clock
        self._starts: Starts = MappingProxyType({})
        self._ids: Mapping[str, str] = MappingProxyType({})
        self._found: dict[TopicPartition, int] = {}
        """What was found out in this run of starts that were not known. Every thread adds to it; the first answer stays."""
        self._needed: set[TopicPartition] = set()
        """The partitions that the stream has not owned yet, and for which the group had no commit at the last look."""
        self._look_at = -math.inf
        self._is_new = False
        """Whether the stream has not planned, and starts that cannot be found out are mistakes of the options."""

    def now(self, partitions: Collection[TopicPartition]) -> Starts:
        """Return where these partitions start if a stream begins now, without those that start at their beginning.

        What the leaders do not answer within a few seconds stays as the options have it.

        Raises:
            NotAuthorized, AuthenticationFailed: see topics.Topics.
        """
        named = named_starts(self._options.stream_start, partitions)
        asked = {partition: start for partition, start in named.items() if start is not None}
        found: dict[TopicPartition, int | None] = {}
        for _ in Deadline(ASK_LEADERS_S, clock=self._clock).attempts():
            unknown = {partition: start for partition, start in asked.items() if partition not in found}
            found |= found_out(unknown, self._topics, or_latest=self._or_latest)
            if len(found) == len(asked):
                break
        else:
            left = sorted(asked.keys() - found.keys())
            log.warning(
                "the leaders of %d partitions do not answer: %s. Where the stream starts there is found out when they do",
                len(left),
                listed(left, 20),
            )
        return named | {partition: offset for partition, offset in found.items() if offset is not None}

    def begin(self, newest: PlanOffset) -> None:
        """Take over what the newest offset of the checkpoint says, before the group is joined."""
        self._starts, self._ids = newest.start_of, newest.topics
        here = writable_cluster_id(self._topics.cluster_id())
        if newest.cluster is not None and here is not None and newest.cluster != here:
            # Offsets and ids of another cluster are void. Times are not.
            self._starts = {one: start if isinstance(start, FromTime) else None for one, start in self._starts.items()}
            self._ids = {}
        self._needed = set(self._starts)
        self._is_new = newest.plan < 0

    def __call__(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets (inclusive). Partitions whose leaders do not answer now are left out.

        Raises:
            OptionError: a partition has no record at its time, or the options do not name it.
            NotAuthorized, AuthenticationFailed: see topics.Topics.
        """
        of_then = [partition for partition in partitions if partition in self._starts]
        ids = self._topics.ids(topics_of(of_then))
        of_then = [one for one in of_then if not changed(self._ids.get(one.topic), ids.get(one.topic, ""))]
        later = [partition for partition in partitions if partition not in of_then]
        return self._topics.starts(later) | self._found_out(of_then)

    def look(self, joined: Joined, owned: Collection[TopicPartition]) -> None:
        """Find out for which partitions the start is still needed, now and then. Without such partitions nothing is asked.

        A start that is not known yet is asked for again, so that a late leader delays it by no more than that.

        Args:
            joined: this run's membership.
            owned: the partitions that the stream has adopted. The group has commits of these.

        Raises:
            OptionError: the stream is new, and the options do not say where it starts in a partition without a commit.
        """
        self._needed.difference_update(owned)
        if not self._needed or self._clock() < self._look_at:
            return
        self._look_at = self._clock() + LOOK_FOR_COMMITS_EVERY_S
        asked = [partition for partition in self._needed if self._options.matches(partition.topic)]
        try:
            commits = joined.once(lambda ledger: ledger.commits_of(asked))
            ids = self._topic_ids.now({partition.topic: self._ids.get(partition.topic) for partition in asked})
            is_over = {topic for topic in topics_of(asked) if changed(self._ids.get(topic), ids.get(topic, ""))}
            over = {one for one in asked if commits.get(one) is not None or one.topic in is_over}
            self._needed -= over
            # The survey asks for those that the group has given to this member.
            self._found_out(self._needed.intersection(asked) - joined.assignment.partitions)
        except OptionError:
            if self._is_new:
                raise
        except GroupKafkaError as error:
            log.info("which partitions have no commit yet is asked again in %.0f s: %s", LOOK_FOR_COMMITS_EVERY_S, error)
            return
        self._is_new = False

    def needed(self, topics: Mapping[str, str | None]) -> Starts:
        """Return the starts that the next plan has to carry.

        Args:
            topics: the topics of the plan, with their ids as far as they are known. A start in an earlier topic is void.
        """
        return {
            partition: self._start(partition)
            for partition in self._needed
            if not changed(self._ids.get(partition.topic), topics.get(partition.topic) or "")
        }

    def ids_of(self, topics: Collection[str]) -> dict[str, str]:
        """Return the ids that these topics had when the stream began, as far as they are known."""
        return {topic: self._ids[topic] for topic in topics if topic in self._ids}

    @property
    def _or_latest(self) -> bool:
        return self._options.starting_offsets_by_timestamp_strategy == "latest"

    def _start(self, partition: TopicPartition) -> Start:
        return self._found.get(partition, self._starts[partition])

    def _found_out(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets of partitions that the stream began with, and keep them."""
        starts = {partition: self._start(partition) for partition in partitions}
        as_now = [partition for partition, start in starts.items() if start is None]
        said = {partition: start for partition, start in starts.items() if start is not None}
        found = found_out(said, self._topics, or_latest=self._or_latest)
        known = self._keep({partition: offset for partition, offset in found.items() if offset is not None})
        without = {one: start.time for one, start in said.items() if isinstance(start, FromTime) and one in found.keys() - known}
        position = self._options.stream_start
        if without:
            raise no_record(position.option if isinstance(position, ByTime) else "the time at which this stream started", without)
        return known | self._keep(offsets_at(position, as_now, self._topics) if as_now else {})

    def _keep(self, found: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {partition: self._found.setdefault(partition, offset) for partition, offset in found.items()}


class Joining:
    """Joins the group, and leaves it. `join` is called on the runner's main thread, `leave` from any thread."""

    def __init__(
        self,
        options: Options,
        topics: Topics,
        topic_ids: TopicIds,
        starting_offsets: StartingOffsets,
        *,
        clock: Callable[[], float],
        observer: Observer,
    ) -> None:
        """Prepare to join. Nothing is sent yet.

        Args:
            options: the options of the source.
            topics: the subscribed topics.
            topic_ids: their ids.
            starting_offsets: where partitions without a commit start.
            clock: returns seconds, monotonic.
            observer: receives what the member and its ledger report.
        """
        self._options = options
        self._topics = topics
        self._topic_ids = topic_ids
        self._starting_offsets = starting_offsets
        self._clock = clock
        self._observer = observer
        self._member: Member | None = None

    def join(self, stream: Stream, newest: PlanOffset) -> Joined:
        """Join the group, and return once there is something to plan with.

        Args:
            stream: what the checkpoint says.
            newest: the newest offset of the checkpoint.

        Raises:
            AssignmentTimeout: the group gave no assignment within `assignmentTimeout`.
            MemberFenced: another process has had the same `kafka.group.instance.id` for as long.
            NotAConsumerGroup: the group is of another kind.
            MembershipError: it refuses this member's assignor or protocol.
        """
        options = self._options
        if newest.plan < 0:
            refuse_unknown(options.stream_start, self._topics.partitions(skip_missing=True))
        self._starting_offsets.begin(newest)
        deadline = Deadline(options.assignment_timeout_ms / 1000, clock=self._clock)
        try:
            # KIP-848: a static member that was killed holds its instance id until its session is over.
            member, ledger = deadline.retry(
                lambda: self._attempt(stream, deadline), lambda error: isinstance(error, MemberFenced), 10 * RETRY_INTERVAL_S
            )
        except MembershipError as refused:
            raise self._reason(refused) from None
        return Joined(member, ledger, options, clock=self._clock)

    def leave(self) -> None:
        """Leave the group, if this driver has joined it or is joining. Safe in a signal handler."""
        if self._member is not None:
            self._member.close()

    def _reason(self, refused: MembershipError) -> GroupKafkaError:
        """Return that the group is of another kind, if it is. It refuses this member as one of another assignor or protocol."""
        if type(refused) is MembershipError:
            try:
                with GroupLook(self._options.client_settings()) as look:
                    look.refuse_other_kinds(self._options.group_id)
            except NotAConsumerGroup as other:
                return other
            except BrokerError as unknown:
                log.info("whether the group is of another kind is not known: %s", unknown)
        return refused

    def _attempt(self, stream: Stream, deadline: Deadline) -> tuple[Member, Ledger]:
        options = self._options
        self._member = member = Member(
            options.member_settings(),
            options.subscription(),
            drain_timeout_s=options.drain_timeout_ms / 1000 if options.handoff == "drain" else 0,
            observer=self._observer,
        )
        self._observer.joining(stream.name)
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
                options.client_settings(),
                options.group_id,
                subscribed=self._subscribed,
                everywhere=lambda: self._topics.everywhere(leave_out=INTERNAL_TOPICS),
                cluster_id=cluster_id,
            ),
            fail_on_data_loss=options.fail_on_data_loss,
            outstanding=options.outstanding(),
            patience_s=options.assignment_timeout_ms / 1000,
            observer=self._observer,
        )
        # The member's thread does not run yet, so its consumer may be asked here.
        first_fetch = partial(
            fetch_commits, member.consumer, options.group_id, cluster_id=cluster_id, timeout_s=FIRST_FETCH_TIMEOUT_S
        )
        deadline.retry(lambda: ledger.note_group(first_fetch(self._subscribed())), _passes)
        member.start(ledger)
        if options.group_protocol == "consumer":
            watch(member, options.group_id, GroupLook(options.client_settings()))
        try:
            self._wait_assigned(member, ledger, deadline)
        except MemberFenced:
            member.close()
            raise
        return member, ledger

    def _subscribed(self) -> list[TopicPartition]:
        return self._topics.partitions(skip_missing=True)

    def _wait_assigned(self, member: Member, ledger: Ledger, deadline: Deadline) -> None:
        if member.wait_joined(deadline.left):
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


def _passes(error: Exception) -> bool:
    """Return whether it is worth while to ask again: a topic may have been deleted between two requests."""
    return isinstance(error, TopicNotFound) or (isinstance(error, GroupKafkaError) and error.passing)
