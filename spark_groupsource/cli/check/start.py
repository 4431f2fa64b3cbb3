"""Where a query with a new checkpoint would start, how much it would read, and what is lost already."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from spark_groupsource.cli.check.findings import Finding, error, ok, warning
from spark_groupsource.cli.check.known import Source
from spark_groupsource.cli.visibility import all_ends
from spark_groupsource.errors import GroupKafkaError
from spark_groupsource.handoff.commit_record import CommitRecord, GroupCommit, OtherFormat
from spark_groupsource.handoff.losses import LogState, PartitionLoss, commit_loss, partition_losses
from spark_groupsource.handoff.rules import Stream, adopt, evidence, recreated
from spark_groupsource.options.model import Options
from spark_groupsource.options.start_and_end import offsets_at, refuse_unknown
from spark_groupsource.partition import TopicPartition, listed


def find_start(source: Source) -> Iterator[Finding]:
    """Ask the leaders for their logs, and add them. Find where a query would start in them."""
    if not source.partitions:
        return  # `describe_topics` has said why
    options, topics, partitions = source.options, source.topics, source.partitions
    without_commit = [partition for partition in partitions if source.commits.get(partition) is None]
    try:
        # The ends before the ids, as in a plan: then the end of a new topic is not taken for one of the old topic.
        ends = all_ends(topics, partitions)
        starts = topics.starts(partitions)
        source.logs = LogState(topics.ids({partition.topic for partition in partitions}), starts, ends)
        # An offset or time for a partition must exist, whether the group has commits or not.
        refuse_unknown(options.stream_start, partitions)
        starting = offsets_at(options.stream_start, without_commit, topics)
    except GroupKafkaError as wrong:
        yield error("start", str(wrong))
        return
    yield from judge_start(options, partitions, source.commits, starting, source.logs)


def judge_start(
    options: Options,
    partitions: Collection[TopicPartition],
    commits: Mapping[TopicPartition, GroupCommit],
    starting: Mapping[TopicPartition, int],
    logs: LogState,
) -> Iterator[Finding]:
    """Find where a query would start.

    Args:
        options: the query's options.
        partitions: the subscribed partitions.
        commits: what the group has committed.
        starting: where the partitions without a commit would start.
        logs: what the leaders have answered.
    """
    # `read_formats` reports them.
    unread = {partition for partition, commit in commits.items() if isinstance(commit, OtherFormat)}
    readable = sorted(set(partitions) - unread)
    continuing = {partition for partition in readable if commits.get(partition) is not None}
    answered = [
        partition
        for partition in readable
        if partition in logs.starts and partition in logs.ends and (partition in continuing or partition in starting)
    ]
    records, losses = _adopted(answered, commits, starting, logs)
    if answered:
        to_read = sum(max(0, logs.ends[partition] - record.next) for partition, record in records.items())
        places = _places(options, sum(partition in continuing for partition in answered), len(answered))
        yield ok("start", f"{len(answered)} partitions: a query with a new checkpoint starts {places}; {to_read} offsets to read")
    if silent := [partition for partition in readable if partition not in records]:
        yield error(
            "start",
            f"The leader does not return the offsets of {listed(silent)}, so these partitions cannot be read. Check that each "
            "broker is up. The driver and the executors must be able to connect to its advertised.listeners.",
        )
    if losses:
        yield _judge_losses(options, losses)


def _adopted(
    partitions: Collection[TopicPartition],
    commits: Mapping[TopicPartition, GroupCommit],
    starting: Mapping[TopicPartition, int],
    logs: LogState,
) -> tuple[dict[TopicPartition, CommitRecord], list[PartitionLoss]]:
    """Return the record with which a new query would adopt each partition, and what is lost already."""
    stream, done = Stream("check"), evidence(commits.values())
    records: dict[TopicPartition, CommitRecord] = {}
    losses: list[PartitionLoss] = []
    for partition in partitions:
        commit, topic_id = commits.get(partition), logs.ids.get(partition.topic) or None
        if recreated(stream, partition, commit, topic_id):
            losses.append(commit_loss(stream, partition, commit, topic_id or "", logs.starts[partition]))
            commit = None
        start = starting.get(partition, logs.starts[partition])
        records[partition] = adopt(stream, partition, commit, starting_offset=start, done=done, topic_id=topic_id)
    return records, losses + partition_losses(records, logs, {})


def _places(options: Options, continuing: int, total: int) -> str:
    position = options.stream_start
    where = f"at the {position} (startingOffsets)" if isinstance(position, str) else f"as {position.option} says"
    at_commits = [f"{continuing} at the group's commits"] if continuing else []
    others = [f"{total - continuing} without a commit {where}"] if total > continuing else []
    return " and ".join([*at_commits, *others])


def _judge_losses(options: Options, losses: Collection[PartitionLoss]) -> Finding:
    advice = "or set the offsets with groupkafka reset-offsets."
    if options.fail_on_data_loss:
        fate = "The query would fail. To continue without these records, set failOnDataLoss=false"
        return error("data loss", f"{listed(losses)}. {fate}, {advice}")
    return warning(
        "data loss", f"{listed(losses)}. The query would continue without these records (failOnDataLoss=false), {advice}"
    )
