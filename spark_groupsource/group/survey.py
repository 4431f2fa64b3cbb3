"""Asks the brokers about acquired partitions before they are adopted: where to start, and whether their topics were recreated.

The requests run on other threads, because a leader may take a long time to answer. The rules that use the answers are in
handoff/rules.py.

An answer is valid only for the acquisition for which it was requested. If the partition was lost in the meantime, the answer is
dropped, because another member may have written the partition's record. While this member owns the partition, no other member can
write the record, so the commit that was fetched for the question is still current.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from spark_groupsource.group.threads import Questions
from spark_groupsource.handoff.commit_record import CommitRecord, Foreign, GroupCommit
from spark_groupsource.handoff.losses import PartitionLoss, commit_loss
from spark_groupsource.handoff.rules import Stream, recreated
from spark_groupsource.partition import TopicPartition

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BrokersAnswer:
    """The brokers' answers about partitions that are about to be adopted."""

    commits: Mapping[TopicPartition, GroupCommit]
    """The group's commit for each partition that can be adopted now."""
    starting: Mapping[TopicPartition, int]
    """Where to start (inclusive) in partitions without a commit and in recreated topics."""
    topic_ids: Mapping[str, str | None]
    """The topics' ids, as in `losses.LogState.ids`."""
    unknown: Collection[TopicPartition]
    """Partitions that cannot be adopted now, because their leader does not answer or their topic was deleted."""
    losses: list[PartitionLoss]
    """The losses in topics that were deleted and recreated."""

    @property
    def deleted(self) -> frozenset[TopicPartition]:
        """The unknown partitions whose topic was deleted. The others are unknown because their leader does not answer."""
        return frozenset(partition for partition in self.unknown if self.topic_ids.get(partition.topic, "") is None)

    def only(self, partitions: Collection[TopicPartition]) -> BrokersAnswer:
        """Return only the part of the answer that is about these partitions."""
        return replace(
            self,
            commits={partition: commit for partition, commit in self.commits.items() if partition in partitions},
            unknown=[partition for partition in self.unknown if partition in partitions],
            losses=[loss for loss in self.losses if loss.partition in partitions],
        )


def ask_brokers(
    stream: Stream,
    commits: Mapping[TopicPartition, GroupCommit],
    *,
    starting_offsets: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, int]],
    topic_ids: Callable[[Mapping[str, str | None]], Mapping[str, str | None]],
    log_starts: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, int]],
) -> BrokersAnswer:
    """Ask the brokers for everything that is needed to adopt these partitions.

    Args:
        stream: the stream that adopts.
        commits: the group's commit for each partition.
        starting_offsets: returns where to start in partitions without a commit (inclusive). Omits partitions whose leader does
            not answer.
        topic_ids: returns the topics' current ids (`losses.LogState.ids`), given the expected ones (`None` if not known).
        log_starts: returns where logs start (inclusive). Omits partitions whose leader does not answer.

    Raises:
        GroupKafkaError: see topics.Topics.
    """
    ids = topic_ids(_expected_ids(stream, commits))
    starting_over = {
        partition for partition, commit in commits.items() if recreated(stream, partition, commit, ids.get(partition.topic))
    }
    unrecorded = {partition for partition, commit in commits.items() if commit is None} - stream.ranges.keys() - starting_over
    starting = {
        **(starting_offsets(unrecorded) if unrecorded else {}),
        **(log_starts(starting_over) if starting_over else {}),
    }
    deleted = {partition for partition in commits if ids.get(partition.topic, "") is None}
    unknown = ((unrecorded | starting_over) - starting.keys()) | deleted
    losses = [
        commit_loss(stream, partition, commits[partition], ids[partition.topic] or "", starting[partition])
        for partition in sorted(starting_over - unknown)
    ]
    known = {partition: commit for partition, commit in commits.items() if partition not in unknown}
    return BrokersAnswer(known, starting, ids, unknown, losses)


def _expected_ids(stream: Stream, commits: Mapping[TopicPartition, GroupCommit]) -> dict[str, str | None]:
    """Return the id that each topic had when its position was written, from the commit or else from the stream's last plan."""
    expected = {partition.topic: stream.topics.get(partition.topic) for partition in commits}
    for partition, commit in commits.items():
        if isinstance(commit, CommitRecord) and commit.topic_id is not None:
            expected[partition.topic] = commit.topic_id
    return expected


AskBrokers = Callable[[Stream, Mapping[TopicPartition, GroupCommit]], BrokersAnswer]
"""A function that asks the brokers for everything that an adoption depends on. It may be slow."""


@dataclass(frozen=True, eq=False)
class Question:
    """The acquired partitions to ask about, with the stream and the commits at that time. Two questions are never equal."""

    stream: Stream
    commits: Mapping[TopicPartition, GroupCommit]


class Survey:
    """Asks about acquired partitions, and returns the answers that are still valid. Used on the consumer's thread."""

    def __init__(self, ask_brokers: AskBrokers) -> None:
        """Start with no questions.

        Args:
            ask_brokers: asks the brokers; called on another thread.
        """
        self._questions: Questions[Question, BrokersAnswer] = Questions(
            lambda question: ask_brokers(question.stream, question.commits), thread="groupkafka-survey"
        )
        self._open: dict[TopicPartition, Question] = {}
        self.unanswered: set[TopicPartition] = set()
        """The acquired partitions for which no answer has been taken yet. An error counts as an answer."""

    @property
    def asked(self) -> Collection[TopicPartition]:
        """The partitions about which a question has been asked but not answered yet."""
        return self._open.keys()

    def acquired(self, partitions: Collection[TopicPartition]) -> None:
        """Record that partitions were just acquired and need answers, and drop earlier questions about them."""
        self.forget(partitions)
        self.unanswered.update(partitions)

    def ask(self, stream: Stream, commits: Mapping[TopicPartition, GroupCommit]) -> None:
        """Ask about partitions. Those without a commit are asked about separately, because only they need their leaders' answers.

        Args:
            stream: the stream as its checkpoint describes it now.
            commits: the group's commit for each partition. This member owns all of them.
        """
        recorded = {partition: commit for partition, commit in commits.items() if commit is not None}
        for part in (recorded, dict.fromkeys(commits.keys() - recorded.keys())):
            if part:
                question = Question(stream, part)
                self._open |= dict.fromkeys(part, question)
                self._questions.ask(question)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop the questions about partitions that are lost."""
        self._close(partitions)
        self.unanswered.difference_update(partitions)

    def answers(self, stream: Stream) -> Iterator[tuple[frozenset[TopicPartition], BrokersAnswer | Exception]]:
        """Yield the answers that have arrived and are still valid for the stream, each with its partitions.

        If an answer is an error or is no longer valid, the caller has to ask about its partitions again. Answers that the caller
        does not take now are yielded by a later call.

        Args:
            stream: the stream as its checkpoint describes it now.
        """
        while (taken := self._questions.take()) is not None:
            question, answer = taken
            bound = self._bound(question)
            self._close(bound)
            if not isinstance(answer, Exception):
                # The question did not ask where the partition starts if the plan at that time had its position. The newest plan
                # may no longer have it. Starting the partition at offset 0 would read its records twice.
                bound = {partition for partition in bound if _is_valid(question, answer, partition, stream)}
                answer = answer.only(bound)
            self.unanswered -= bound
            if bound:
                yield frozenset(bound), answer

    def _bound(self, question: Question) -> set[TopicPartition]:
        """Return the partitions that this member has owned ever since it asked the question."""
        return {partition for partition in question.commits if self._open.get(partition) is question}

    def _close(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the open questions about these partitions."""
        for partition in partitions:
            self._open.pop(partition, None)


def _is_valid(question: Question, answer: BrokersAnswer, partition: TopicPartition, stream: Stream) -> bool:
    """Return whether the stream would still ask the same question, even if it has made plans in the meantime."""
    commit, topic_id = question.commits[partition], answer.topic_ids.get(partition.topic)
    return (partition in question.stream.ranges) == (partition in stream.ranges) and (
        recreated(question.stream, partition, commit, topic_id) == recreated(stream, partition, commit, topic_id)
    )


def warn_of_another_cluster(commits: Mapping[TopicPartition, GroupCommit]) -> None:
    """Warn if the group's offsets were copied from another cluster."""
    copied = [partition for partition, commit in commits.items() if isinstance(commit, Foreign) and commit.cluster_id]
    if copied:
        log.warning(
            "the commits of %d partitions (%s, ...) were written in another Kafka cluster: the query will continue from "
            "their offsets, and ignore the ranges that were claimed there. Records in those ranges may be duplicated",
            len(copied),
            min(copied),
        )
