"""The acquired partitions until they are adopted: when each is tried, how long it may fail, and which record to write.

The brokers are asked first (survey.py). The ledger writes the records. A partition of a deleted topic waits, without an end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping

from spark_groupsource.errors import BrokerUnavailable, GroupKafkaError, TopicNotFound
from spark_groupsource.group.brokers_answer import BrokersAnswer
from spark_groupsource.group.survey import Survey
from spark_groupsource.handoff.commit_record import CommitRecord, GroupCommit
from spark_groupsource.handoff.losses import refuse
from spark_groupsource.handoff.rules import Evidence, Stream, adopt
from spark_groupsource.partition import TopicPartition, listed
from spark_groupsource.patience import Failures

log = logging.getLogger(__name__)

LOOK_FOR_DELETED_EVERY_S = 1.0
"""How often it is checked whether the topic of a partition that was deleted is there again."""

Fetch = Callable[[Collection[TopicPartition]], Mapping[TopicPartition, GroupCommit]]
"""Returns what the group holds for partitions."""


class Adopting:
    """The partitions that are still to be adopted. Used on the consumer's thread."""

    def __init__(self, survey: Survey, *, fail_on_data_loss: bool, patience_s: float, clock: Callable[[], float]) -> None:
        """Begin without a partition.

        Args:
            survey: asks the brokers.
            fail_on_data_loss: whether a topic that was created again is an error, or is read from its beginning.
            patience_s: how many seconds passing errors may delay a partition. Each has its own time.
            clock: returns seconds, monotonic.
        """
        self._survey = survey
        self._fail_on_data_loss = fail_on_data_loss
        self._failures: Failures[TopicPartition] = Failures(patience_s, clock=clock)
        self._tried: frozenset[TopicPartition] = frozenset()
        """The partitions that are tried now. An error counts for these."""
        self._partitions: set[TopicPartition] = set()
        self._deleted: set[TopicPartition] = set()
        """Those of them whose topic does not exist. No time runs for these."""

    @property
    def partitions(self) -> Collection[TopicPartition]:
        """The partitions that are still to be adopted."""
        return self._partitions

    @property
    def undecided(self) -> bool:
        """Whether the brokers have not answered yet for some partition, not even with an error."""
        return bool(self._survey.unanswered)

    @property
    def only_deleted(self) -> bool:
        """Whether no partition is left, or only partitions of deleted topics."""
        return self._partitions <= self._deleted

    def acquired(self, partitions: Collection[TopicPartition]) -> None:
        """Begin with partitions that the group has just assigned."""
        self._partitions.update(partitions)
        self._survey.acquired(partitions)

    def wait_for_topics(self, partitions: Collection[TopicPartition]) -> None:
        """Begin anew with partitions whose topic was deleted: until the group asks them back, or the topic is created again."""
        self._partitions.update(partitions)
        self._deleted.update(partitions)
        self._failures.put_off(partitions, LOOK_FOR_DELETED_EVERY_S)

    def adopted(self, partitions: Collection[TopicPartition]) -> None:
        """Note that these have a record of this member."""
        self._partitions.difference_update(partitions)
        self._failures.forget(partitions)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Forget partitions that this member has no longer. What the brokers answer for them later does not count."""
        self.adopted(partitions)
        self._deleted.difference_update(partitions)
        self._survey.forget(partitions)

    def ask(self, stream: Stream, fetch: Fetch, *, draining: Collection[TopicPartition]) -> None:
        """Ask the brokers about the partitions whose time has come.

        Args:
            stream: what the stream knows of itself.
            fetch: returns what the group holds.
            draining: partitions that the group has asked back. They are not adopted any more.

        Raises:
            GroupKafkaError: the coordinator does not say what the group holds.
        """
        due = self._failures.due(self._partitions.difference(self._survey.asked, draining))
        if not due:
            return
        self._tried = frozenset(due)
        commits = fetch(due)
        # What has failed before is asked about apart: a leader that does not answer would delay all the others.
        again = self._failures.failing(due)
        for part in (due - again, again):
            self._survey.ask(stream, {partition: commits[partition] for partition in part})

    def answers(self, stream: Stream, *, draining: Collection[TopicPartition]) -> Iterator[BrokersAnswer]:
        """Yield what the brokers have answered for partitions that can be adopted now.

        Args:
            stream: what the stream knows of itself.
            draining: as in `ask`.

        Raises:
            BrokerUnavailable: a leader has not answered for longer than the patience.
            DataLossError: a topic was deleted and created again, and that is an error.
            GroupKafkaError: what a question failed with.
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
        """Note that the partitions that are tried now have failed.

        Args:
            error: why.
            passing: whether the error passes here, although it mostly does not.

        Returns:
            Whether they are tried again: the error passes, and has not lasted for longer than the patience.
        """
        failed = self._tried & self._partitions
        self._failures.put_off(failed & self._deleted, LOOK_FOR_DELETED_EVERY_S)
        at_end = self._failures.failed(failed - self._deleted)
        # The group asks a deleted topic back, or the topic is created again.
        passing = passing or error.passing or isinstance(error, TopicNotFound)
        if at_end or not passing:
            return False
        log.info("the adoption of %d partitions failed and is tried again: %s", len(failed), error)
        return True

    def _note_unknown(self, found: BrokersAnswer) -> None:
        """Note which partitions cannot be adopted now."""
        unknown = set(found.unknown)
        new = unknown - self._failures.failing(unknown)
        if new:
            log.info(
                "%d partitions are not adopted yet, because their leader is silent or their topic is deleted: %s",
                len(new),
                listed(sorted(new)),
            )
        self._deleted -= found.commits.keys() | unknown
        self._deleted |= found.deleted
        self._failures.put_off(found.deleted, LOOK_FOR_DELETED_EVERY_S)
        silent = self._failures.failed(unknown - found.deleted)
        if silent:
            raise BrokerUnavailable(
                f"Where {min(silent)} begins is not known: its leader has not answered within assignmentTimeout. Check that its "
                "broker is up and can be reached from this driver."
            )


def adopted_records(
    stream: Stream, found: BrokersAnswer, *, done: Evidence, cluster_id: str | None, member: str | None
) -> dict[TopicPartition, CommitRecord]:
    """Return the record of each partition that can be adopted, in the stream's name.

    Args:
        stream: the stream that adopts.
        found: what the brokers have answered.
        done: what the group's records show as done.
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
            topic_id=found.topic_ids.get(partition.topic) or None,  # if no broker answers now, the next plan finds out
            cluster_id=cluster_id,
            member=member,
        )
        for partition, commit in found.commits.items()
    }
