"""What the group's records show of other streams: which of their plans are done, and which of them run now.

A stream writes into every record of its own which plan is done. A range that is owed to it is dropped when one record shows its
plan as done. That record may be of a topic that this query does not subscribe to.

A coordinator may not answer for a long time, so threads of their own ask, one at a time (questions.py). An old answer does no
harm: a plan that is done stays so.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

from spark_groupsource.errors import GroupKafkaError
from spark_groupsource.group.questions import Questions
from spark_groupsource.handoff.commit_record import CommitRecord, GroupCommit
from spark_groupsource.handoff.rules import Stream, alive, evidence
from spark_groupsource.partition import TopicPartition

log = logging.getLogger(__name__)

ADOPTED_WITHIN_S = 60.0
"""How long the record of a member that has left the group still shows its stream as alive. A query that was restarted writes its
records anew within that time."""

LOOK_ELSEWHERE_EVERY_S = 30.0
"""How often the partitions of other topics are asked for. The request names every partition of the cluster, and what is owed to
a query that was stopped may stay owed for days."""


class StreamPlan(NamedTuple):
    """One plan of one stream."""

    stream: str
    plan: int


class GroupReader(Protocol):
    """Reads what the group holds (`group_reader.GroupReader`). One thread uses it at a time. Its methods may take long."""

    def subscribed(self) -> Mapping[TopicPartition, GroupCommit]:
        """Return the record of every partition of the subscribed topics. Raises GroupKafkaError."""

    def others(self) -> Iterable[GroupCommit]:
        """Return the records of every other partition. Raises GroupKafkaError."""

    def members(self) -> frozenset[str]:
        """Return the marks of the group's members (`commit_record.mark_of`). Raises GroupKafkaError."""

    def pause(self) -> None:
        """Give up what only `members` needs: it is not asked for the time being."""


@dataclass(frozen=True)
class Question:
    """What is to be found out."""

    claimed: frozenset[StreamPlan]
    """The plans of other streams of which ranges are held here."""
    asked_elsewhere: frozenset[StreamPlan]
    """Those of them that other topics were asked for before."""
    may_ask_new: bool
    """Whether other topics may be asked for plans that they were not asked for before."""
    may_ask_again: bool
    """Whether other topics may be asked for the other plans."""
    members: bool
    """Whether it matters which members the group has."""


@dataclass(frozen=True)
class Answer:
    """What was found out."""

    here: Mapping[TopicPartition, GroupCommit]
    missing: frozenset[StreamPlan]
    """The claimed plans that no record here shows as done."""
    elsewhere: Mapping[str, int] | GroupKafkaError | None
    """What the records of other topics show as done, or why they cannot be asked. `None`: they were not asked."""
    members: frozenset[str] | None
    """The marks of the members. `None`: they were not asked for, or cannot be."""


class ConfirmedPlans:
    """The newest answers. All methods are called on the consumer's thread. Values are replaced, not edited."""

    def __init__(self, reader: GroupReader, *, clock: Callable[[], float]) -> None:
        """Begin with nothing found. Nothing is asked yet.

        Args:
            reader: reads the group's records, on other threads.
            clock: returns seconds, monotonic.
        """
        self._reader = reader
        self._clock = clock
        self._here: Mapping[TopicPartition, GroupCommit] = {}
        self._elsewhere: Mapping[str, int] = {}
        self._asked_elsewhere: frozenset[StreamPlan] = frozenset()
        """The plans that the records of other topics were asked for, and do not show as done."""
        self._left_since: Mapping[tuple[TopicPartition, str], float] = {}
        """Since when the members that wrote records are known to have left the group."""
        self._left: frozenset[TopicPartition] = frozenset()
        """The partitions whose record no longer shows its stream as alive, because its member has left."""
        self._ask_again_at = -math.inf
        self._failed_until = -math.inf
        self._asked_at = -math.inf
        self._asked: Question | None = None
        """The open question."""
        self._unasked: tuple[frozenset[StreamPlan], bool] | None = None
        """What is asked for when the answer to the open question has come."""
        self._answered = False
        self._members_asked = False
        self._outdated = False
        """Whether partitions were adopted since the open question was asked."""
        self._questions: Questions[Question, Answer] = Questions(partial(find_out, reader), thread="groupkafka-evidence")

    @property
    def unanswered(self) -> bool:
        """Whether something was asked, and the first answer is still to come."""
        return self._asked is not None and not self._answered

    def note(self, here: Mapping[TopicPartition, GroupCommit]) -> None:
        """Note what the group holds for the subscribed partitions before this member joins it."""
        self._here = here

    def done(self, stream: Stream) -> dict[str, int]:
        """Return the newest plan of each stream that the group's records show as done. Its own plans it knows itself."""
        done = evidence(self._here.values())
        newest = {name: max(done.get(name, -1), self._elsewhere.get(name, -1)) for name in done.keys() | self._elsewhere.keys()}
        return {**newest, stream.name: stream.durable}

    def protected(self, holding: Iterable[CommitRecord], owned: Collection[TopicPartition]) -> frozenset[str]:
        """Return the streams whose ranges must not be taken over now.

        They run (`rules.alive`), or the records of other topics were not asked for their plans yet.

        Args:
            holding: the records of this member's partitions.
            owned: the partitions that this member has, adopted or not yet.
        """
        unasked = {plan.stream for plan in _claimed(holding) - self._asked_elsewhere}
        return self._alive(owned) | unasked

    def adopted(self) -> None:
        """Note that partitions were adopted in which ranges are held. What was found out before says nothing of these.

        Their streams may have become alive since, and other topics are asked for their plans.
        """
        self._asked_elsewhere = frozenset()
        self._outdated = self._asked is not None

    def ask(
        self,
        stream: Stream,
        owned: Collection[TopicPartition],
        holding: Collection[CommitRecord],
        *,
        takes_over: bool,
        interval_s: float,
    ) -> None:
        """Ask which of the plans are done, if there are any. While a question is open, the newest of the others waits for it.

        The records of subscribed topics are asked for first. Other topics are asked only if these do not settle every claim: at
        once for a plan that they were not asked for before, and then every LOOK_ELSEWHERE_EVERY_S.

        Args:
            stream: the stream that asks. Its commit log settles its own plans.
            owned: the partitions that this member has, adopted or not yet.
            holding: the records whose claims should be settled.
            takes_over: whether it matters which other streams are alive.
            interval_s: seconds that must have passed since it was asked the last time.
        """
        if not any(record.owed for record in holding):
            self._pause()
            return
        now = self._clock()
        if now < self._asked_at + interval_s:
            return
        self._asked_at = now
        claimed = frozenset(plan for plan in _claimed(holding) if plan.stream != stream.name)
        members = takes_over and not self._alive(owned, whoever_left=True).isdisjoint(plan.stream for plan in claimed)
        if self._asked is not None:
            self._unasked = claimed, members
        else:
            self._ask(claimed, members=members)

    def take(self) -> bool:
        """Take the answer, or the error, if it has come. Return whether it says how things are now."""
        taken = self._questions.take()
        if taken is None:
            return False
        _, answer = taken
        # It was asked for before an adoption: a stream that has come since would count as dead, and its ranges be read twice.
        outdated, self._outdated = self._outdated, False
        self._asked, self._answered = None, self._answered or not outdated
        learned = not isinstance(answer, Exception) and not outdated
        if isinstance(answer, GroupKafkaError):
            log.info("which plans of other streams are done is asked later: %s", answer)
        elif isinstance(answer, Exception):
            log.error("asking what other streams have confirmed failed", exc_info=answer)
        elif learned:
            self._note(answer)
        if self._unasked is not None:
            (claimed, members), self._unasked = self._unasked, None
            self._ask(claimed, members=members)
        return learned

    def _pause(self) -> None:
        """Give up what is needed only while ranges are held for others."""
        if self._members_asked and self._asked is None:
            self._members_asked = False
            self._reader.pause()

    def _ask(self, claimed: frozenset[StreamPlan], *, members: bool) -> None:
        now = self._clock()
        self._members_asked |= members
        self._asked = Question(claimed, self._asked_elsewhere, now >= self._failed_until, now >= self._ask_again_at, members)
        self._questions.ask(self._asked)

    def _note(self, answer: Answer) -> None:
        now = self._clock()
        self._here = answer.here
        if isinstance(answer.elsewhere, GroupKafkaError):
            self._ask_again_at = self._failed_until = now + LOOK_ELSEWHERE_EVERY_S
            log.info("what other topics' records show as done is asked for later: %s", answer.elsewhere)
        elif answer.elsewhere is not None:
            self._ask_again_at = now + LOOK_ELSEWHERE_EVERY_S
            self._asked_elsewhere, self._elsewhere = answer.missing, answer.elsewhere
        left = [] if answer.members is None else _by_others(answer.here, answer.members)
        self._left_since = {key: self._left_since.get(key, now) for key in left}
        # By two answers. Between them a stream that was restarted has written its record anew.
        self._left = frozenset(key[0] for key, since in self._left_since.items() if now - since >= ADOPTED_WITHIN_S)

    def _alive(self, owned: Collection[TopicPartition], *, whoever_left: bool = False) -> frozenset[str]:
        """Return the streams that run now (`rules.alive`).

        Args:
            owned: the partitions that this member has, adopted or not yet.
            whoever_left: whether a record counts although its member has left the group.
        """
        return alive(self._here, owned, frozenset() if whoever_left else self._left)


def find_out(reader: GroupReader, question: Question) -> Answer:
    """Ask the group. This runs on a thread of `Questions`.

    Raises:
        GroupKafkaError: the subscribed topics' records cannot be read.
    """
    here = reader.subscribed()
    done = evidence(here.values())
    missing = frozenset(claimed for claimed in question.claimed if done.get(claimed.stream, -1) < claimed.plan)
    asked_before = missing <= question.asked_elsewhere
    may_ask = question.may_ask_again if asked_before else question.may_ask_new
    elsewhere: Mapping[str, int] | GroupKafkaError | None = None
    if missing and may_ask:
        try:
            elsewhere = evidence(reader.others())
        except GroupKafkaError as error:
            elsewhere = error
    if not question.members:
        reader.pause()
        return Answer(here, missing, elsewhere, None)
    try:
        return Answer(here, missing, elsewhere, reader.members())
    except GroupKafkaError as error:
        log.info("which members the group has is asked later: %s", error)
        return Answer(here, missing, elsewhere, None)


def _by_others(commits: Mapping[TopicPartition, GroupCommit], members: Collection[str]) -> list[tuple[TopicPartition, str]]:
    """Return the partitions whose record says that none of these members wrote it, with the mark of the one that did."""
    written = {partition: commit.member for partition, commit in commits.items() if isinstance(commit, CommitRecord)}
    return [(partition, mark) for partition, mark in written.items() if mark is not None and mark not in members]


def _claimed(records: Iterable[CommitRecord]) -> set[StreamPlan]:
    """Return the plans to which a range is owed in these records."""
    return {StreamPlan(entry.stream, entry.plan) for record in records for entry in record.owed}


def record_that_shows(stream: Stream, records: Mapping[TopicPartition, CommitRecord]) -> dict[TopicPartition, CommitRecord]:
    """Return a record to write so that other streams see what this one has confirmed. Nothing if some record shows it.

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
