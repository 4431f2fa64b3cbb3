"""Checks what a query would read: the topics, where it starts, a few records, other queries' claims, and the checkpoint.

It writes nothing, and each request takes at most about ten seconds. A step that the brokers refuse raises a GroupKafkaError.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from queue import Empty, SimpleQueue

from confluent_kafka import KafkaError, libversion

from spark_groupsource.brokers.group_view import GroupView, PartitionView
from spark_groupsource.brokers.login_trouble import MISSING_ACL
from spark_groupsource.brokers.topics import TopicDescription, Topics
from spark_groupsource.checkpoint.files import CheckpointFiles, without_password
from spark_groupsource.checkpoint.offset_log import offsets_by_stream, source_lines
from spark_groupsource.cli.check.findings import Finding, error, judge_visibility, lacks, ok, warning
from spark_groupsource.cli.claimed import claimed_of, total
from spark_groupsource.cli.open_transactions import all_ends, visibility
from spark_groupsource.cli.render import count
from spark_groupsource.errors import CheckpointUnreadable, GroupKafkaError, OffsetError
from spark_groupsource.fetch.choice import fetch
from spark_groupsource.fetch.contract import FetchRange
from spark_groupsource.handoff.commit_record import VERSION, CommitRecord, GroupCommit, OtherFormat
from spark_groupsource.handoff.losses import LogState, PartitionLoss, commit_loss, partition_losses
from spark_groupsource.handoff.plan_offset import VERSION as PLAN_VERSION
from spark_groupsource.handoff.plan_offset import PlanOffset
from spark_groupsource.handoff.rules import Stream, adopt, evidence, recreated
from spark_groupsource.native.libraries import why_unavailable
from spark_groupsource.options.model import Options
from spark_groupsource.options.start_and_end import offsets_at, refuse_unknown
from spark_groupsource.partition import TopicPartition, listed
from spark_groupsource.timeouts import CHECK_STEP_S
from spark_groupsource.version import another_version

_NO_ACL = MISSING_ACL[KafkaError.TOPIC_AUTHORIZATION_FAILED]

LAST_OFFSETS = 100
"""How many offsets at the end of a partition are read to test the settings."""

OTHERWISE = """\
Until this is fixed, a finished micro-batch's claims will be confirmed only at the next trigger, and its records will count as \
lag until then, unless the driver's program calls spark_groupsource.register."""

READABLE_BY_DRIVER = "The driver's machine must be able to read this location."


NO_GROUP = GroupView("", "", "", "", "", (), ())
"""A group that does not exist."""


@dataclass
class Source:
    """A source's options, and the results of earlier steps that later steps need."""

    options: Options
    partitions: list[TopicPartition] = field(default_factory=list)
    """The partitions of the topics that this user may read. `describe_topics` adds them."""
    group: GroupView = NO_GROUP
    """The group. `describe_group` sets it, if the group exists."""
    logs: LogState | None = None
    """The starts and ends of the partitions' logs. `find_start` sets them."""

    @cached_property
    def topics(self) -> Topics:
        """The brokers' topics, as a query with these options would see them.

        Raises:
            OptionError, AuthenticationFailed: See `Topics`.
        """
        options = self.options
        return Topics(options.client_settings(), options, read_committed=options.read_committed, patience_s=CHECK_STEP_S)

    @property
    def commits(self) -> dict[TopicPartition, GroupCommit]:
        """The group's commits, by partition."""
        return {view.partition: view.commit for view in self.group.partitions}

    @property
    def views(self) -> list[PartitionView]:
        """The group's partitions in subscribed topics."""
        return [view for view in self.group.partitions if self.options.matches(view.partition.topic)]


def describe_topics(source: Source) -> Iterator[Finding]:
    """Report which topics exist and may be read, and add their partitions to `source`."""
    options, topics = source.options, source.topics
    names = options.subscribe or sorted({partition.topic for partition in topics.partitions()})
    if not names:
        yield warning(
            "topics",
            f"subscribePattern={options.subscribe_pattern} matches no topic that this user may describe (DESCRIBE ACL). The "
            "query would wait for such a topic. Check the ACLs, and the pattern, which must match the whole name.",
        )
        return
    readable: dict[str, TopicDescription] = {}
    for name, found in topics.describe(names).items():
        if isinstance(found, GroupKafkaError):
            yield error("topics", str(found))
        elif lacks("READ", found.operations):
            yield error("topics", f"{name}: this user may describe it, but not read it. {_NO_ACL}")
        else:
            readable[name] = found
            source.partitions += found.partitions
    if readable:
        yield ok("topics", _readable_text(readable))


def _readable_text(readable: Mapping[str, TopicDescription]) -> str:
    counts = listed(f"{name} ({count(len(topic.partitions), 'partition')})" for name, topic in readable.items())
    known = all(topic.operations is not None for topic in readable.values())
    may = "may be read" if known else "may be described; the broker does not report whether they may be read"
    return f"{counts}: found, and {may}"


def read_checkpoint(source: Source) -> Iterator[Finding]:
    """Report whether the checkpoint in the options can be read, and which group it belongs to. Give up after CHECK_STEP_S."""
    location = source.options.checkpoint_location
    if location is None:
        return
    shown = f"checkpointLocation = {without_password(location)}"
    findings: SimpleQueue[Finding] = SimpleQueue()
    # Read on another thread, because a read from a file system that does not answer cannot be interrupted.
    reading = threading.Thread(
        target=lambda: findings.put(judge_checkpoint(source.options, location, shown)), name="groupkafka-checkpoint", daemon=True
    )
    reading.start()
    try:
        yield findings.get(timeout=CHECK_STEP_S)
    except Empty:
        yield warning("checkpoint", f"{shown} did not answer within {CHECK_STEP_S:.0f} s. {OTHERWISE} {READABLE_BY_DRIVER}")


def judge_checkpoint(options: Options, location: str, shown: str) -> Finding:
    """Return a finding about whether a query in this group can continue from a checkpoint's last micro-batch.

    Args:
        options: the query's options.
        location: its `checkpointLocation`.
        shown: the location as text, without its password.
    """
    try:
        files = CheckpointFiles(location)
        logged = files.batches("offsets")
        if not logged:
            return ok("checkpoint", f"{shown}: its offsets folder has no micro-batch yet, as before a query's first start")
        newest = max(logged)
        offsets = offsets_by_stream(source_lines(files.read(f"offsets/{newest}")).values())
        state = "is finished" if files.exists(f"commits/{newest}") else "is not finished"
    except OffsetError as unreadable:
        named = "checkpointLocation =" if isinstance(unreadable, CheckpointUnreadable) else f"{shown}:"
        return warning("checkpoint", f"{named} {str(unreadable).rstrip('.')}. {OTHERWISE} {READABLE_BY_DRIVER}")
    if not offsets:
        text = f"micro-batch {newest} has no offset from this source, so the checkpoint belongs to another query. {OTHERWISE}"
        return warning("checkpoint", f"{shown}: {text} Set the option to the writer's checkpointLocation.")
    streams, refusals = [], []
    for stream, offset in offsets.items():
        try:
            PlanOffset.parse(offset, options.group_id)
            streams.append(stream)
        except OffsetError as refused:
            refusals.append(str(refused))
            # A query may have sources in several groups, but it cannot read another format for any of them.
            if offset["v"] != PLAN_VERSION:
                streams, refusals = [], [str(refused)]
                break
    if not streams:
        text = f"the query would fail, unless this is not the writer's checkpointLocation. {refusals[0]}"
        return error("checkpoint", f"{shown}: {text}")
    return ok("checkpoint", f"{shown}: it can be read; micro-batch {newest} of stream {' and '.join(streams)} {state}")


def name_reader(_source: Source) -> Iterator[Finding]:
    """Report which of the package's readers this machine uses, and why."""
    unavailable = why_unavailable()
    if unavailable is None:
        yield ok("reader", f"this machine has the native reader, with librdkafka {libversion()[0]}")
        return
    yield warning(
        "reader",
        f"this machine has the pure Python reader, because the native one cannot be used: {unavailable}. The rows are the same, "
        f"but reading is several times slower. To use the native reader: {unavailable.advice}. Each executor chooses a reader "
        "for its own machine, and logs a warning if it is not the native one.",
    )


def find_start(source: Source) -> Iterator[Finding]:
    """Ask the leaders where their logs start and end, add the answers to `source`, and report where a query would start."""
    if not source.partitions:
        return  # `describe_topics` has reported why
    options, topics, partitions = source.options, source.topics, source.partitions
    without_commit = [partition for partition in partitions if source.commits.get(partition) is None]
    # Ask for the ends before the ids, as a query does, so that a new topic's end is not mistaken for the old topic's.
    ends = all_ends(topics, partitions)
    starts = topics.starts(partitions)
    source.logs = LogState(topics.ids({partition.topic for partition in partitions}), starts, ends)
    # A partition that the options name must exist, whether or not the group has a commit for it.
    refuse_unknown(options.stream_start, partitions)
    starting = offsets_at(options.stream_start, without_commit, topics)
    yield from judge_start(options, partitions, source.commits, starting, source.logs)


def judge_start(
    options: Options,
    partitions: Collection[TopicPartition],
    commits: Mapping[TopicPartition, GroupCommit],
    starting: Mapping[TopicPartition, int],
    logs: LogState,
) -> Iterator[Finding]:
    """Report where a query would start, and which records are lost.

    Args:
        options: the query's options.
        partitions: the subscribed partitions.
        commits: the group's commits.
        starting: where the partitions without a commit would start.
        logs: the starts and ends of the partitions' logs.
    """
    stream, done = Stream("check"), evidence(commits.values())
    records: dict[TopicPartition, CommitRecord] = {}
    losses: list[PartitionLoss] = []
    silent = []
    continuing = 0
    for partition in sorted(partitions):
        commit, topic_id = commits.get(partition), logs.ids.get(partition.topic) or None
        if isinstance(commit, OtherFormat):
            continue  # `read_formats` reports it
        is_answered = partition in logs.starts and partition in logs.ends
        if not is_answered or (commit is None and partition not in starting):
            silent.append(partition)
            continue
        continuing += commit is not None
        if recreated(stream, partition, commit, topic_id):
            losses.append(commit_loss(stream, partition, commit, topic_id or "", logs.starts[partition]))
            commit = None
        start = starting.get(partition, logs.starts[partition])
        records[partition] = adopt(stream, partition, commit, starting_offset=start, done=done, topic_id=topic_id)
    losses += partition_losses(records, logs, {})
    if records:
        to_read = sum(max(0, logs.ends[partition] - record.next) for partition, record in records.items())
        places = _places(options, continuing, len(records))
        number = count(len(records), "partition")
        yield ok("start", f"{number}: a query with a new checkpoint would start {places}; {to_read} offsets to read")
    if silent:
        yield error(
            "start",
            f"The leader does not return the offsets of {listed(silent)}, so these partitions cannot be read. Check that each "
            "broker is running, and that the driver and the executors can connect to its advertised.listeners.",
        )
    if losses:
        yield _judge_losses(options, losses)


def _places(options: Options, continuing: int, total: int) -> str:
    position = options.stream_start
    start = f"at the {position} (startingOffsets)" if isinstance(position, str) else f"as set by {position.option}"
    at_commits = [f"{continuing} at the group's committed offsets"] if continuing else []
    at_start = [f"{total - continuing} without a committed offset {start}"] if total > continuing else []
    return " and ".join([*at_commits, *at_start])


def _judge_losses(options: Options, losses: Collection[PartitionLoss]) -> Finding:
    advice = "or set the offsets with groupkafka reset-offsets."
    if options.fail_on_data_loss:
        fate = "The query would fail. To continue without these records, set failOnDataLoss=false"
        return error("data loss", f"{listed(losses)}. {fate}, {advice}")
    return warning(
        "data loss", f"{listed(losses)}. The query would continue without these records (failOnDataLoss=false), {advice}"
    )


def fetch_records(source: Source) -> Iterator[Finding]:
    """Report whether records can be read with the settings that a query's tasks use."""
    if source.logs is None:
        return  # `find_start` has reported why
    reader = "the native reader" if why_unavailable() is None else "the pure Python reader"
    last = last_offsets(source.logs)
    if last is None:
        yield ok("fetch", f"all partitions are empty, so there are no records to read; a query would use {reader}")
        return
    settings = source.options.fetch_settings()
    settings = replace(settings, poll_timeout_ms=min(settings.poll_timeout_ms, round(CHECK_STEP_S * 1000)))
    with closing(fetch(last, settings)) as batches:
        rows = next((batch.num_rows for batch in batches), 0)
    yield ok("fetch", f"{reader} read {rows} records from {last}" if rows else f"{reader} found no record in {last}")


def last_offsets(logs: LogState) -> FetchRange | None:
    """Return the last offsets of the first partition that is not empty, or `None` if all partitions are empty."""
    for partition in sorted(logs.starts.keys() & logs.ends.keys()):
        start, end = logs.starts[partition], logs.ends[partition]
        if end > start:
            return FetchRange(*partition, max(start, end - LAST_OFFSETS), end)
    return None


def find_open_transactions(source: Source) -> Iterator[Finding]:
    """Report how many records are hidden by open transactions, if the query reads only committed records."""
    if not source.partitions:
        return  # `describe_topics` has reported why
    if not source.options.read_committed:
        yield ok("isolation", "read_uncommitted: records from open and aborted transactions are read, too")
        return
    yield judge_visibility("read_committed", visibility(source.options.client_settings(), source.partitions), "TOPIC")


def read_formats(source: Source) -> Iterator[Finding]:
    """Report commit records for subscribed partitions that this version cannot read."""
    unread = [(view.partition, view.other_format) for view in source.views if view.other_format is not None]
    for version in sorted({found for _, found in unread}):
        partitions = listed(sorted(partition for partition, found in unread if found == version))
        text = another_version(f"The commit record of {partitions}", version, VERSION)
        yield error("claims", f"{text} A query would fail with CommitRecordUnreadable.")


def list_claims(source: Source) -> Iterator[Finding]:
    """Report held ranges, and what a query with a new checkpoint would do with them."""
    ranges = [claimed for view in source.views for claimed in claimed_of(source.group, view)]
    held = [claimed for claimed in ranges if claimed.kind == "held"]
    if held:
        listing = listed(f"{claimed.partition} {claimed.claim.range} of stream {claimed.claim.stream}" for claimed in held)
        text = f"held for queries that stopped before they confirmed them: {listing}. A query with a new checkpoint"
        yield warning("claims", f"{text} {_fate(source.options)}. For details, run: groupkafka claims.")
    elif ranges:
        yield ok("claims", f"{total(ranges).in_flight} offsets are in flight in running queries; nothing is held")
    else:
        unless_unread = " in the other partitions" if any(view.other_format is not None for view in source.views) else ""
        yield ok("claims", f"nothing is claimed{unless_unread}")


def _fate(options: Options) -> str:
    """Return what a query with a new checkpoint does with held ranges, according to heldClaims."""
    policy = options.held_claims_choice()
    if policy.reread_after_s is None:
        return (
            "will continue without them; only the query that claimed them will read them, once you restart it (heldClaims=hold)"
        )
    later = f" after {policy.reread_after_s:.0f} s" if policy.reread_after_s else ""
    return f"will read them{later}; records may be duplicated (heldClaims)"
