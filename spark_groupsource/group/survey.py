"""What the brokers are asked before partitions are adopted, on threads of its own: a leader may not answer for a long time.

An answer is bound to the acquisition that it was asked for. If the partition was lost meanwhile, the answer does not count,
because another member may have written the partition's record. While this member owns the partition, nobody else writes it, so
the commit that was fetched with the question is still right.
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
"""Asks the brokers what an adoption needs to know. It may take long."""


@dataclass(frozen=True, eq=False)
class Question:
    """Some acquired partitions, and what was known when they were asked about. Two questions are never equal."""

    stream: Stream
    commits: Mapping[TopicPartition, GroupCommit]


class Survey:
    """The questions that are open, and their answers. All methods are called on the consumer's thread."""

    def __init__(self, ask_brokers: AskBrokers) -> None:
        """Begin without a question.

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
        """The partitions whose question is open."""
        return self._open.keys()

    @property
    def unanswered(self) -> Collection[TopicPartition]:
        """The acquired partitions of which no answer was taken yet, not even an error."""
        return self._unanswered

    def acquired(self, partitions: Collection[TopicPartition]) -> None:
        """Expect answers for partitions that were just acquired. What was asked about them before does not count."""
        self.forget(partitions)
        self._unanswered.update(partitions)

    def ask(self, stream: Stream, commits: Mapping[TopicPartition, GroupCommit]) -> None:
        """Ask about partitions. Those without a commit are asked about apart: they need their leader, the others do not.

        Args:
            stream: what the stream knows of itself now.
            commits: what the group holds now for each partition, all of which this member owns.
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
        """Yield the answers that have come, and still hold for the stream as it is now, each with its partitions.

        The partitions of an answer that no longer holds are to be asked about again. So are those of an error: it says why a
        question could not be answered. Answers that the caller does not take now come later.

        Args:
            stream: what the stream knows of itself now.
        """
        while (taken := self._questions.take()) is not None:
            question, answer = taken
            bound = self._bound(question)
            self._close(bound)
            if not isinstance(answer, Exception):
                # The plan that had a partition's position may be over. Its start was not asked for then: begun at offset 0, the
                # partition would be read twice.
                bound = {partition for partition in bound if _holds(question, answer, partition, stream)}
                answer = answer.only(bound)
            self._unanswered -= bound
            if bound:
                yield frozenset(bound), answer

    def _bound(self, question: Question) -> set[TopicPartition]:
        """Return the partitions that this member has owned since the question."""
        return {partition for partition in question.commits if self._open.get(partition) is question}

    def _close(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self._open.pop(partition, None)


def _holds(question: Question, answer: BrokersAnswer, partition: TopicPartition, stream: Stream) -> bool:
    """Return whether the stream would ask the same today: its plans went on meanwhile."""
    commit, topic_id = question.commits[partition], answer.topic_ids.get(partition.topic)
    return (partition in question.stream.ranges) == (partition in stream.ranges) and (
        recreated(question.stream, partition, commit, topic_id) == recreated(stream, partition, commit, topic_id)
    )
