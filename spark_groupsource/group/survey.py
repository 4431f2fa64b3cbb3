"""Asks the brokers about acquired partitions on other threads, because a leader may take a long time to answer.

An answer is valid only for the acquisition for which it was requested. If the partition was lost in the meantime, the answer is
dropped, because another member may have written the partition's record. While this member owns the partition, no other member can
write the record, so the commit that was fetched for the question is still current.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from spark_groupsource.group.brokers_answer import BrokersAnswer
from spark_groupsource.group.questions import Questions
from spark_groupsource.handoff.commit_record import GroupCommit
from spark_groupsource.handoff.rules import Stream, recreated
from spark_groupsource.partition import TopicPartition

AskBrokers = Callable[[Stream, Mapping[TopicPartition, GroupCommit]], BrokersAnswer]
"""Asks the brokers for everything that an adoption depends on. It may be slow."""


@dataclass(frozen=True, eq=False)
class Question:
    """The acquired partitions to ask about, with the stream and the commits at that moment. Two questions are never equal."""

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
        self._unanswered: set[TopicPartition] = set()

    @property
    def asked(self) -> Collection[TopicPartition]:
        """The partitions whose question has not been answered yet."""
        return self._open.keys()

    @property
    def unanswered(self) -> Collection[TopicPartition]:
        """The acquired partitions for which no answer has been taken yet. An error counts as an answer."""
        return self._unanswered

    def acquired(self, partitions: Collection[TopicPartition]) -> None:
        """Expect answers about partitions that were just acquired, and drop earlier questions about them."""
        self.forget(partitions)
        self._unanswered.update(partitions)

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
        self._unanswered.difference_update(partitions)

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
            self._unanswered -= bound
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
