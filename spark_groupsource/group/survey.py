"""What the brokers are asked before partitions are adopted, on threads of its own: a leader may not answer for a long time.

The consumer's thread asks, goes on, and later takes the answers. An answer is bound to the acquisition that it was asked for. If
the partition was lost meanwhile, the answer does not count, because another member may have written the partition's record.
While this member owns the partition, nobody else writes it, so the commit that was fetched with the question is still right.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from spark_groupsource.group.adoption import Lookup
from spark_groupsource.handoff.commit_record import GroupCommit
from spark_groupsource.handoff.rules import Stream, recreated
from spark_groupsource.partition import TopicPartition

LookUp = Callable[[Stream, Mapping[TopicPartition, GroupCommit]], Lookup]
"""Asks the brokers what an adoption needs to know. It may take long."""


@dataclass(frozen=True, eq=False)
class Question:
    """Some acquired partitions, and what was known when they were asked about. Two questions are never equal."""

    stream: Stream
    commits: Mapping[TopicPartition, GroupCommit]


class Survey:
    """The questions that are open, and their answers. All methods are called on the consumer's thread."""

    def __init__(self, look_up: LookUp) -> None:
        """Begin without a question.

        Args:
            look_up: asks the brokers; called on another thread.
        """
        self._look_up = look_up
        self._open: dict[TopicPartition, Question] = {}
        self._unheard: set[TopicPartition] = set()
        self._answers: SimpleQueue[tuple[Question, Lookup | Exception]] = SimpleQueue()

    @property
    def asked(self) -> Collection[TopicPartition]:
        """The partitions whose question is open."""
        return self._open.keys()

    @property
    def unheard(self) -> Collection[TopicPartition]:
        """The acquired partitions of which no answer was taken yet, not even an error."""
        return self._unheard

    @property
    def answered(self) -> bool:
        """Whether an answer can be taken."""
        return not self._answers.empty()

    def acquired(self, partitions: Collection[TopicPartition]) -> None:
        """Expect answers for partitions that were just acquired. What was asked about them before does not count."""
        self.forget(partitions)
        self._unheard.update(partitions)

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
                self._begin(question)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop the questions about partitions that are lost."""
        self._close(partitions)
        self._unheard.difference_update(partitions)

    def answers(self, stream: Stream) -> Iterator[tuple[frozenset[TopicPartition], Lookup | Exception]]:
        """Yield the answers that have come, and still hold for the stream as it is now, each with its partitions.

        The partitions of an answer that no longer holds are to be asked about again. So are those of an error: it says why a
        question could not be answered. Answers that the caller does not take now come later.

        Args:
            stream: what the stream knows of itself now.
        """
        while True:
            try:
                question, answer = self._answers.get_nowait()
            except Empty:
                return
            bound = self._bound(question)
            self._close(bound)
            if isinstance(answer, Exception):
                heard = frozenset(bound)
            else:
                heard = frozenset(one for one in bound if _holds(question, answer, one, stream))
                answer = answer.only(heard)
            self._unheard.difference_update(heard)
            if heard:
                yield heard, answer

    def _bound(self, question: Question) -> set[TopicPartition]:
        """Return the partitions that this member has owned since the question."""
        return {partition for partition in question.commits if self._open.get(partition) is question}

    def _close(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self._open.pop(partition, None)

    def _begin(self, question: Question) -> None:
        threading.Thread(target=self._find_out, args=(question,), name="groupkafka-survey", daemon=True).start()

    def _find_out(self, question: Question) -> None:
        """Run on another thread."""
        try:
            self._answers.put((question, self._look_up(question.stream, question.commits)))
        except Exception as error:  # noqa: BLE001 -- it is raised on the consumer's thread
            self._answers.put((question, error))


def _holds(question: Question, answer: Lookup, partition: TopicPartition, stream: Stream) -> bool:
    """Whether the stream would ask the same today: its plans went on meanwhile, and a plan may hold a partition's position."""
    commit, topic_id = question.commits[partition], answer.topic_ids.get(partition.topic)
    return (partition in question.stream.ranges) == (partition in stream.ranges) and (
        recreated(question.stream, partition, commit, topic_id) == recreated(stream, partition, commit, topic_id)
    )
