"""The group's records of a topic: whether a range is claimed or owed. And how much retention has deleted."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaException, TopicPartition

from spark_groupsource.handoff.commit_record import CommitRecord, GroupCommit, read_commit
from tests.harness.sampler import quiet_consumer

REQUEST_LIMIT_S = 10.0


class Group:
    """Reads a group's commits, and never joins the group."""

    def __init__(self, bootstrap_servers: str, group: str, topic: str) -> None:
        self._consumer = quiet_consumer(bootstrap_servers, group)
        self._topic = topic

    def close(self) -> None:
        self._consumer.close()

    def unsettled(self, produced: Mapping[int, int]) -> list[str]:
        """Return the partitions that are not read to their end, or have a range that is claimed or owed."""
        asked = [TopicPartition(self._topic, partition) for partition in produced]
        try:
            found = self._consumer.committed(asked, timeout=REQUEST_LIMIT_S)
        except KafkaException as error:
            return [f"the group's commits cannot be read: {error}"]
        problems = []
        for one in found:
            commit = read_commit(one.offset, one.metadata) if one.error is None else None
            problem = unsettled(commit, produced[one.partition])
            if problem:
                problems.append(f"partition {one.partition}: {problem}")
        return problems

    def deleted(self, produced: Mapping[int, int]) -> int:
        """Return how many records retention has deleted."""
        partitions = [TopicPartition(self._topic, partition) for partition in produced]
        return sum(self._consumer.get_watermark_offsets(one, timeout=REQUEST_LIMIT_S)[0] for one in partitions)


def unsettled(commit: GroupCommit, end: int) -> str:
    """Return what is left to do in a partition that ends at `end`, or an empty text."""
    if not isinstance(commit, CommitRecord):
        return "it has no commit record of a query"
    if commit.owed:
        return f"owed: {', '.join(f'{owed.range} to {owed.stream}' for owed in commit.owed)}"
    if commit.open:
        return f"claimed: {', '.join(f'[{start}, {stop})' for start, stop in commit.open)}"
    return "" if commit.next == end else f"read up to {commit.next} of {end}"
