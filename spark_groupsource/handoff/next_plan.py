"""Makes a stream's next plan: the ranges to read, and the offset for Spark's offset log. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from spark_groupsource.handoff.commit_record import CommitRecord
from spark_groupsource.handoff.losses import topic_gone
from spark_groupsource.handoff.plan_offset import Cut, PlanOffset, Starts
from spark_groupsource.handoff.planner import available, plan, rule_of_sharing
from spark_groupsource.partition import Ranges, TopicPartition, topics_of


def next_ranges(
    positions: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    reread: Ranges,
    *,
    least: int | None,
    most: int | None,
) -> Ranges:
    """Return the ranges that the next plan reads, or none while there are fewer offsets than `least`.

    Args:
        positions: the next offset to read in each partition (inclusive).
        ends: the end of each partition (exclusive), no higher than the target of AvailableNow.
        reread: ranges below the positions that are read again.
        least: how many offsets to wait for (`minOffsetsPerTrigger`); `None` if the plan does not wait.
        most: the approximate maximum number of offsets to plan (`maxOffsetsPerTrigger`); `None` for no limit.
    """
    if least is not None and available(positions, ends, reread) < least:
        return {}
    return plan(positions, ends, most, reread=reread)


def next_offset(
    start: PlanOffset,
    planned: Ranges,
    records: Mapping[TopicPartition, CommitRecord],
    ids: Mapping[str, str | None],
    *,
    generation: int,
    member: str,
    starts: Starts,
    start_ids: Mapping[str, str],
    cluster: str | None,
    cut: Cut,
    epochs: Mapping[TopicPartition, int],
) -> PlanOffset:
    """Return the offset of the plan that follows `start`.

    Args:
        start: the offset of the previous plan.
        planned: the ranges of each owned partition.
        records: the record of each of these partitions.
        ids: the topics' ids now, as in `losses.LogState.ids`, for records that were adopted without a topic id.
        generation: the member's generation when it planned.
        member: the member's id when it planned.
        starts: the starts of partitions that existed when the stream began, that it has not owned yet, and that have no commit.
        start_ids: their topics' ids when the stream began, where known.
        cluster: the cluster's id, if known.
        cut: how the ranges are divided into tasks.
        epochs: each partition's leader epoch when its end was requested, where known.
    """
    topics = {partition.topic: records[partition].topic_id or ids.get(partition.topic) for partition in planned}
    # Drop starts that belong to an earlier topic with the same name.
    carried = {
        partition: position
        for partition, position in starts.items()
        if not topic_gone(start_ids.get(partition.topic), topics.get(partition.topic) or "")
    }
    began_with = {topic: start_ids[topic] for topic in topics_of(carried) - topics.keys() if topic in start_ids}
    return PlanOffset.build(
        stream=start.stream,
        plan=start.plan + 1,
        generation=generation,
        member=member,
        group=start.group,
        ranges=planned,
        starts=carried,
        topics=began_with | {topic: topic_id for topic, topic_id in topics.items() if topic_id},
        cluster=cluster,
        cut=cut,
        epochs={partition: epochs[partition] for partition in planned if partition in epochs},
        shared=rule_of_sharing([(partition, offsets) for partition, ranges in planned.items() for offsets in ranges], *cut),
    )
