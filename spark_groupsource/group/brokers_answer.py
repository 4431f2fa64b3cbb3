"""Before a partition is adopted, asks the brokers where it starts and whether its topic was recreated.

`ask_brokers` runs on one of survey.Survey's threads. The rules that use the answers are in handoff/rules.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

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
    """As in `losses.LogState.ids`."""
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
    """Return each topic's id when its position was written, from the commit or else from the stream's last plan."""
    expected = {partition.topic: stream.topics.get(partition.topic) for partition in commits}
    for partition, commit in commits.items():
        if isinstance(commit, CommitRecord) and commit.topic_id is not None:
            expected[partition.topic] = commit.topic_id
    return expected


def warn_of_another_cluster(commits: Mapping[TopicPartition, GroupCommit]) -> None:
    """Warn if the group's offsets were copied from another cluster."""
    copied = [partition for partition, commit in commits.items() if isinstance(commit, Foreign) and commit.cluster_id]
    if copied:
        log.warning(
            "the commits of %d partitions (%s, ...) were written in another Kafka cluster: the query continues from their "
            "offsets, and ignores the ranges that were claimed there. Records in those ranges may be duplicated",
            len(copied),
            min(copied),
        )
