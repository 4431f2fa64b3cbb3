"""Finds out from the group's records which plans of other streams are done, and which of those streams are running.

A stream (a query's checkpoint) writes its newest finished plan into each of its records. A range owed to the stream is dropped as
soon as any record shows that the range's plan is done. That record may belong to a topic that this query does not subscribe to.

The coordinator may take a long time to answer, so questions run on separate threads, one at a time (threads.py). A late answer
does no harm, because a plan that is done stays done.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

from spark_groupsource.errors import GroupKafkaError
from spark_groupsource.group.threads import Questions
from spark_groupsource.handoff.commit_record import CommitRecord, GroupCommit
from spark_groupsource.handoff.rules import Stream, alive, evidence
from spark_groupsource.partition import TopicPartition
from spark_groupsource.timeouts import ASK_GROUP_EVERY_S

log = logging.getLogger(__name__)

ADOPTED_WITHIN_S = 60.0
"""How long a stream still counts as alive after the member that wrote its record has left the group. If its query restarts, the
query rewrites the records within that time."""


class StreamPlan(NamedTuple):
    """One plan of one stream."""

    stream: str
    plan: int


class GroupReader(Protocol):
    """Reads the group's commits and members (`group_reader.GroupReader`). Used by one thread at a time; calls may be slow."""

    def subscribed(self) -> Mapping[TopicPartition, GroupCommit]:
        """Return the record of each partition in the subscribed topics. Raises GroupKafkaError."""

    def others(self) -> Iterable[GroupCommit]:
        """Return the records of all other partitions. Raises GroupKafkaError."""

    def members(self) -> frozenset[str]:
        """Return the marks of the group's members (`commit_record.mark_of`). Raises GroupKafkaError."""

    def pause(self) -> None:
        """Release the resources that only `members` needs, because that method will not be called for a while."""


@dataclass(frozen=True)
class Question:
    """A request to find out which plans are done, and which members the group has."""

    claimed: frozenset[StreamPlan]
    """The other streams' plans whose ranges this member holds."""
    worth_a_search: frozenset[StreamPlan]
    """The plans for which the other topics' records are searched, if no record in the subscribed topics shows them as done."""
    members: bool
    """Whether to ask for the group's members as well."""


@dataclass(frozen=True)
class Answer:
    """The answer to a `Question`."""

    subscribed: Mapping[TopicPartition, GroupCommit]
    """The subscribed topics' records."""
    missing: frozenset[StreamPlan]
    """The claimed plans that no record in the subscribed topics shows as done."""
    elsewhere: Mapping[str, int] | GroupKafkaError | None
    """The plans that other topics' records show as done, or why reading them failed. `None` if they were not read."""
    members: frozenset[str] | None
    """The marks of the group's members. `None` if they were not requested, or the request failed."""


class ConfirmedPlans:
    """Keeps the latest answers about other streams: which plans are done, and which streams are running.

    Used on the consumer's thread. Values are replaced, not edited.
    """

    def __init__(self, reader: GroupReader, *, clock: Callable[[], float]) -> None:
        """Start with no answers, without sending a request.

        Args:
            reader: reads the group's records, on other threads.
            clock: returns monotonic time in seconds.
        """
        self._reader = reader
        self._clock = clock
        self._subscribed: Mapping[TopicPartition, GroupCommit] = {}
        self._elsewhere: Mapping[str, int] = {}
        self._asked_elsewhere: frozenset[StreamPlan] = frozenset()
        """The plans that a search of the other topics' records did not show as done."""
        self._left_since: Mapping[tuple[TopicPartition, str], float] = {}
        """When a record's writer was first found to have left the group, by partition and member."""
        self._abandoned: frozenset[TopicPartition] = frozenset()
        """The partitions whose record no longer counts as a sign that its stream is alive, because its writer has left."""
        self._ask_again_at = -math.inf
        self._failed_until = -math.inf
        self._asked_at = -math.inf
        self._asked: Question | None = None
        """The question that has not been answered yet."""
        self._unasked: tuple[frozenset[StreamPlan], bool] | None = None
        """What to ask next, once the current question is answered."""
        self._answered = False
        self._members_asked = False
        self._outdated = False
        """Whether partitions have been adopted since the current question was asked."""
        self._questions: Questions[Question, Answer] = Questions(partial(find_out, reader), thread="groupkafka-evidence")

    @property
    def unanswered(self) -> bool:
        """Whether the first question has been asked but not answered."""
        return self._asked is not None and not self._answered

    def note(self, subscribed: Mapping[TopicPartition, GroupCommit]) -> None:
        """Store the subscribed partitions' commits as they were before this member joined the group."""
        self._subscribed = subscribed

    def done(self, stream: Stream) -> dict[str, int]:
        """Return each stream's newest plan that is known to be done. For `stream` itself, return its own durable plan."""
        done = evidence(self._subscribed.values())
        newest = {name: max(done.get(name, -1), self._elsewhere.get(name, -1)) for name in done.keys() | self._elsewhere.keys()}
        return {**newest, stream.name: stream.durable}

    def protected(self, holding: Iterable[CommitRecord], owned: Collection[TopicPartition]) -> frozenset[str]:
        """Return the streams whose ranges must not be taken over now.

        These streams are running (`rules.alive`), or the other topics' records have not been searched for their plans yet.

        Args:
            holding: the records of this member's partitions.
            owned: the partitions that this member has, whether or not it has adopted them.
        """
        unasked = {plan.stream for plan in _claimed(holding) - self._asked_elsewhere}
        return self._alive(owned) | unasked

    def adopted(self) -> None:
        """Record that partitions with held ranges were adopted. Earlier answers do not cover these partitions.

        The streams to which these ranges are owed may have come back since those answers, and other topics' records must be
        searched for their plans.
        """
        self._asked_elsewhere = frozenset()
        self._outdated = self._asked is not None

    def ask(
        self,
        stream: Stream,
        owned: Collection[TopicPartition],
        holding: Collection[CommitRecord],
        *,
        liveness_matters: bool,
        interval_s: float,
    ) -> None:
        """Ask which held ranges' plans are done. While a question is being answered, only the newest further question is kept.

        The subscribed topics' records are read first. Other topics' records are searched only if the subscribed topics' records
        do not settle every claim: immediately for a plan that is searched for the first time, and every ASK_GROUP_EVERY_S after
        that.

        Args:
            stream: the stream that asks. Its own commit log decides about its own plans.
            owned: the partitions that this member has, whether or not it has adopted them.
            holding: the records whose claims should be settled.
            liveness_matters: whether the caller needs to know which other streams are alive.
            interval_s: the minimum number of seconds between two questions.
        """
        if not any(record.owed for record in holding):
            if self._members_asked and self._asked is None:
                self._members_asked = False
                self._reader.pause()
            return
        now = self._clock()
        if now < self._asked_at + interval_s:
            return
        self._asked_at = now
        claimed = frozenset(plan for plan in _claimed(holding) if plan.stream != stream.name)
        seemingly_alive = alive(self._subscribed, owned)
        members = liveness_matters and not seemingly_alive.isdisjoint(plan.stream for plan in claimed)
        if self._asked is not None:
            self._unasked = claimed, members
        else:
            self._ask(claimed, members=members)

    def take(self) -> bool:
        """Process the answer to the current question if it has arrived, and return whether it was used."""
        taken = self._questions.take()
        if taken is None:
            return False
        _, answer = taken
        # An answer from before an adoption is outdated. If a stream has come back since then, the answer would count it as dead,
        # and its ranges would be read twice.
        outdated, self._outdated = self._outdated, False
        self._asked, self._answered = None, self._answered or not outdated
        learned = not isinstance(answer, Exception) and not outdated
        if isinstance(answer, GroupKafkaError):
            log.info("failed to find out which claims other streams have confirmed, will retry: %s", answer)
        elif isinstance(answer, Exception):
            log.error("finding out which claims other streams have confirmed failed with an unexpected error", exc_info=answer)
        elif learned:
            self._note(answer)
        if self._unasked is not None:
            (claimed, members), self._unasked = self._unasked, None
            self._ask(claimed, members=members)
        return learned

    def _ask(self, claimed: frozenset[StreamPlan], *, members: bool) -> None:
        """Ask on another thread which of these plans are done. The caller makes sure that no other question is open."""
        now = self._clock()
        self._members_asked |= members
        unasked = frozenset() if now < self._failed_until else claimed - self._asked_elsewhere
        self._asked = Question(claimed, unasked if now < self._ask_again_at else claimed, members)
        self._questions.ask(self._asked)

    def _note(self, answer: Answer) -> None:
        """Store what an answer shows about done plans and about writers that have left the group."""
        now = self._clock()
        self._subscribed = answer.subscribed
        if isinstance(answer.elsewhere, GroupKafkaError):
            self._ask_again_at = self._failed_until = now + ASK_GROUP_EVERY_S
            log.info("failed to read the group's records for other topics, will retry: %s", answer.elsewhere)
        elif answer.elsewhere is not None:
            self._ask_again_at = now + ASK_GROUP_EVERY_S
            self._asked_elsewhere, self._elsewhere = answer.missing, answer.elsewhere
        by_former_members = [] if answer.members is None else _by_former_members(answer.subscribed, answer.members)
        self._left_since = {record: self._left_since.get(record, now) for record in by_former_members}
        # Two answers are needed, because a restarted stream rewrites its records between them.
        self._abandoned = frozenset(
            partition for (partition, _), left_at in self._left_since.items() if now - left_at >= ADOPTED_WITHIN_S
        )

    def _alive(self, owned: Collection[TopicPartition]) -> frozenset[str]:
        """Return the streams that are running (`rules.alive`), ignoring records whose writer has left the group for good.

        Args:
            owned: the partitions that this member has, whether or not it has adopted them.
        """
        return alive(self._subscribed, owned, self._abandoned)


def find_out(reader: GroupReader, question: Question) -> Answer:
    """Find the answer to a question in the group's records. Runs on one of the threads that `Questions` starts.

    Raises:
        GroupKafkaError: the subscribed topics' records could not be read.
    """
    subscribed = reader.subscribed()
    done = evidence(subscribed.values())
    missing = frozenset(claimed for claimed in question.claimed if done.get(claimed.stream, -1) < claimed.plan)
    elsewhere: Mapping[str, int] | GroupKafkaError | None = None
    if not missing.isdisjoint(question.worth_a_search):
        try:
            elsewhere = evidence(reader.others())
        except GroupKafkaError as error:
            elsewhere = error
    if not question.members:
        reader.pause()
        return Answer(subscribed, missing, elsewhere, None)
    try:
        return Answer(subscribed, missing, elsewhere, reader.members())
    except GroupKafkaError as error:
        log.info("failed to list the group's members, will retry: %s", error)
        return Answer(subscribed, missing, elsewhere, None)


def _by_former_members(
    commits: Mapping[TopicPartition, GroupCommit], members: Collection[str]
) -> list[tuple[TopicPartition, str]]:
    """Return the partitions whose record was not written by any of these members, each with its writer's mark."""
    written = {partition: commit.member for partition, commit in commits.items() if isinstance(commit, CommitRecord)}
    return [(partition, mark) for partition, mark in written.items() if mark is not None and mark not in members]


def _claimed(records: Iterable[CommitRecord]) -> set[StreamPlan]:
    """Return the plans whose ranges are owed in these records."""
    return {StreamPlan(entry.stream, entry.plan) for record in records for entry in record.owed}


def progress_record(stream: Stream, records: Mapping[TopicPartition, CommitRecord]) -> dict[TopicPartition, CommitRecord]:
    """Return a record that shows other streams this stream's newest confirmed plan, or nothing if no such record is needed.

    Args:
        stream: the stream. It may have released partitions of its last plan with open claims.
        records: the records of its partitions, with durable plans closed.
    """
    newest = max((record.done for record in records.values()), default=stream.durable)
    if newest >= stream.durable or not stream.ranges.keys() - records.keys():
        return {}
    partition = min(records)
    logged = max(records[partition].logged, stream.durable)
    return {partition: records[partition].model_copy(update={"done": stream.durable, "logged": logged})}
