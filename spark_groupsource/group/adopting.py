"""Adopts acquired partitions: decides when to try each one, how long it may keep failing, and which record to write.

The survey asks the brokers first (survey.py), and the ledger writes the records. A partition whose topic was deleted may wait
forever.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping

from spark_groupsource.errors import BrokerUnavailable, GroupKafkaError, TopicNotFound
from spark_groupsource.group.survey import BrokersAnswer, Survey
from spark_groupsource.handoff.commit_record import CommitRecord, GroupCommit
from spark_groupsource.handoff.losses import refuse
from spark_groupsource.handoff.rules import Evidence, Stream, adopt
from spark_groupsource.partition import TopicPartition, listed
from spark_groupsource.patience import Failures
from spark_groupsource.timeouts import ASK_FOR_IDS_EVERY_S

log = logging.getLogger(__name__)

Fetch = Callable[[Collection[TopicPartition]], Mapping[TopicPartition, GroupCommit]]
"""A function that returns the group's commit for each of the given partitions."""


class Adopting:
    """Tracks the partitions that have not been adopted yet. Used on the consumer's thread."""

    def __init__(self, survey: Survey, *, fail_on_data_loss: bool, patience_s: float, clock: Callable[[], float]) -> None:
        """Start with no partitions.

        Args:
            survey: asks the brokers.
            fail_on_data_loss: whether a recreated topic is an error. If not, it is read from the beginning.
            patience_s: how many seconds retriable errors may delay a partition. Each partition has its own limit.
            clock: returns monotonic time in seconds.
        """
        self._survey = survey
        self._fail_on_data_loss = fail_on_data_loss
        self._failures: Failures[TopicPartition] = Failures(patience_s, clock=clock)
        self._tried: frozenset[TopicPartition] = frozenset()
        """The partitions in the current attempt. An error applies to all of them."""
        self.partitions: set[TopicPartition] = set()
        """The partitions that have not been adopted yet."""
        self._deleted: set[TopicPartition] = set()
        """The partitions whose topic does not exist. The time limit does not apply to them."""

    @property
    def undecided(self) -> bool:
        """Whether the brokers have yet to answer about some partition. An error counts as an answer."""
        return bool(self._survey.unanswered)

    @property
    def only_deleted(self) -> bool:
        """Whether the only partitions left, if any, belong to deleted topics."""
        return self.partitions <= self._deleted

    def acquired(self, partitions: Collection[TopicPartition]) -> None:
        """Begin to adopt partitions that the group has just assigned."""
        self.partitions.update(partitions)
        self._survey.acquired(partitions)

    def wait_for_topics(self, partitions: Collection[TopicPartition]) -> None:
        """Start over with partitions whose topic was deleted. They wait until it is recreated or the group revokes them."""
        self.partitions.update(partitions)
        self._deleted.update(partitions)
        self._failures.put_off(partitions, ASK_FOR_IDS_EVERY_S)

    def adopted(self, partitions: Collection[TopicPartition]) -> None:
        """Record that this member has written these partitions' records."""
        self.partitions.difference_update(partitions)
        self._failures.forget(partitions)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Forget partitions that this member no longer has. Later answers about them are ignored."""
        self.adopted(partitions)
        self._deleted.difference_update(partitions)
        self._survey.forget(partitions)

    def ask(self, stream: Stream, fetch: Fetch, *, draining: Collection[TopicPartition]) -> None:
        """Ask the brokers about the partitions that are due for an attempt.

        Args:
            stream: the stream as its checkpoint describes it.
            fetch: returns the group's commits.
            draining: partitions that the group has revoked. These are no longer adopted.

        Raises:
            GroupKafkaError: the group's commits could not be fetched from the coordinator.
        """
        due = self._failures.due(self.partitions.difference(self._survey.asked, draining))
        if not due:
            return
        self._tried = frozenset(due)
        commits = fetch(due)
        # Ask separately about partitions that have failed before, because an unresponsive leader would delay the others.
        failing = self._failures.failing(due)
        for part in (due - failing, failing):
            self._survey.ask(stream, {partition: commits[partition] for partition in part})

    def answers(self, stream: Stream, *, draining: Collection[TopicPartition]) -> Iterator[BrokersAnswer]:
        """Yield the brokers' answers about partitions that can be adopted now.

        Args:
            stream: the stream as its checkpoint describes it.
            draining: as in `ask`.

        Raises:
            BrokerUnavailable: a leader has not answered within `patience_s`.
            DataLossError: a topic was deleted and recreated, and `fail_on_data_loss` is true.
            GroupKafkaError: the request to the brokers failed.
        """
        for partitions, answer in self._survey.answers(stream):
            self._tried = partitions
            if isinstance(answer, Exception):
                raise answer
            found = answer.only(partitions.difference(draining))
            self._note_unknown(found)
            if self._fail_on_data_loss:
                refuse(found.losses)
            yield found

    def try_again(self, error: GroupKafkaError, *, passing: bool = False) -> bool:
        """Record that the current attempt failed, and decide whether to retry its partitions.

        Args:
            error: why it failed.
            passing: whether to treat the error as retriable here, although it usually is not.

        Returns:
            Whether to retry, because the error is retriable and has not persisted for longer than `patience_s`.
        """
        failed = self._tried & self.partitions
        self._failures.put_off(failed & self._deleted, ASK_FOR_IDS_EVERY_S)
        at_end = self._failures.failed(failed - self._deleted)
        # A deleted topic does not make the query fail: the group will revoke its partitions, or the topic will be recreated.
        passing = passing or error.passing or isinstance(error, TopicNotFound)
        if at_end or not passing:
            return False
        log.info("failed to adopt %d partitions, will retry: %s", len(failed), error)
        return True

    def _note_unknown(self, found: BrokersAnswer) -> None:
        """Record the partitions that cannot be adopted now. Raise an error if a leader has not answered for too long."""
        unknown = set(found.unknown)
        newly_unknown = unknown - self._failures.failing(unknown)
        if newly_unknown:
            log.info(
                "%d partitions have not been adopted yet, because their leaders are not answering or their topics were "
                "deleted: %s",
                len(newly_unknown),
                listed(sorted(newly_unknown)),
            )
        self._deleted -= found.commits.keys() | unknown
        self._deleted |= found.deleted
        self._failures.put_off(found.deleted, ASK_FOR_IDS_EVERY_S)
        silent = self._failures.failed(unknown - found.deleted)
        if silent:
            raise BrokerUnavailable(
                f"The leader of {min(silent)} did not answer within assignmentTimeout, so the query cannot tell where to start "
                "reading. Nothing was read from this partition. Check that the leader is up and that this driver can reach it."
            )


def adopted_records(
    stream: Stream, found: BrokersAnswer, *, done: Evidence, cluster_id: str | None, member: str | None
) -> dict[TopicPartition, CommitRecord]:
    """Return the record that the stream writes to adopt each partition that can be adopted.

    Args:
        stream: the stream that adopts.
        found: the brokers' answers.
        done: each stream's newest plan that the group's records show as done.
        cluster_id: as in `rules.adopt`.
        member: as in `rules.adopt`.
    """
    return {
        partition: adopt(
            stream,
            partition,
            commit,
            starting_offset=found.starting.get(partition, 0),
            done=done,
            topic_id=found.topic_ids.get(partition.topic) or None,  # if no broker answers now, the next plan looks up the id
            cluster_id=cluster_id,
            member=member,
        )
        for partition, commit in found.commits.items()
    }
