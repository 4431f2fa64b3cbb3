"""The findings of `groupkafka check` that follow from the brokers' answers: the group, the start, the claims.

Pure. A finding says what was found. If something is wrong, it also says what this means for the query or its data, and what to
do now.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from spark_groupsource.brokers.group_view import HIDING, GroupView
from spark_groupsource.handoff.commit_record import CommitRecord, GroupCommit, OtherFormat
from spark_groupsource.handoff.losses import LogState, PartitionLoss, commit_loss, partition_losses
from spark_groupsource.handoff.rules import Stream, adopt, advice_on_format, evidence, recreated
from spark_groupsource.kafka_settings.tables import CLASSIC_ONLY
from spark_groupsource.options.model import Options
from spark_groupsource.partition import TopicPartition, listed

COOPERATIVE = "cooperative-sticky"


class Level(Enum):
    """How bad a finding is. With an error the query cannot run as its options say."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """One line. `check` names what was checked, in one or two words. The text may contain names that clients chose."""

    level: Level
    check: str
    text: str


def of_classic_protocol(options: Options, *, supported: bool) -> Finding:
    """Return what the other protocol (KIP-848) would bring. It is no warning: the classic one works on all brokers.

    Args:
        options: the query's options, with the classic protocol.
        supported: whether the brokers have the other one.
    """
    if not supported:
        text = (
            "kafka.group.protocol=classic. The brokers do not have consumer (KIP-848): they are older than Kafka 4.0, or it is "
            "disabled there"
        )
        return Finding(Level.OK, "protocol", text)
    given = [f"kafka.{name}" for name in CLASSIC_ONLY if name in options.kafka]
    without = f" and remove {' and '.join(given)}, which it does not have" if given else ""
    return Finding(
        Level.OK,
        "protocol",
        "kafka.group.protocol=classic. The brokers have consumer (KIP-848), too. With it a rebalance does not hold up the other "
        "members' commits, partitions move one by one, and the brokers set the session timeout. It will be the default of Java's "
        f"consumers from Kafka 5.0 on. To change it, stop all members of the group first{without}.",
    )


def of_assignor(options: Options, view: GroupView | None) -> Finding:
    """Return whether the group would accept this query as a member.

    The rules are the group coordinator's. A member of the classic protocol needs an assignor that every member offers. The
    coordinator returns only the assignor that is in use, not those that each member offers.

    Args:
        options: the query's options.
        view: the group as it is now; `None` if it does not exist.
    """
    ours = options.assignment_strategy
    mine = f"kafka.group.protocol={options.group_protocol}, assignor {ours}"
    if view is None or not view.members:
        return Finding(Level.OK, "assignor", f"{mine}: the group has no members, so any assignor is accepted")
    theirs = f"the group's {_members(len(view.members))} {view.protocol}, assignor {view.assignor or 'not chosen yet'}"
    if options.group_protocol == "consumer":
        return _of_new_protocol(mine, theirs, view)
    if view.protocol == "consumer":
        return Finding(
            Level.WARNING,
            "assignor",
            f"{mine}; {theirs}. Brokers accept members of both protocols only for the time of a migration. Set "
            "kafka.group.protocol=consumer, unless you are migrating the group now.",
        )
    if not view.assignor:
        return Finding(
            Level.WARNING, "assignor", f"{mine}; {theirs}: the group is rebalancing. Run this check again when it is stable."
        )
    offered = [name.strip() for name in ours.split(",")]
    if view.assignor in offered:
        return Finding(Level.OK, "assignor", f"{mine}; {theirs}")
    advice = f"set kafka.partition.assignment.strategy={view.assignor}, or stop all members and restart them with {ours}."
    if view.assignor == "range" and COOPERATIVE in offered:
        return Finding(
            Level.WARNING,
            "assignor",
            f"{mine}; {theirs}. The group accepts this member only if all others offer {COOPERATIVE} too. Java's consumers do by "
            f"default (range, {COOPERATIVE}). librdkafka's clients and Spark queries with range do not. If they do not, {advice}",
        )
    return Finding(
        Level.ERROR,
        "assignor",
        f"{mine}; {theirs}. The group would refuse this member (INCONSISTENT_GROUP_PROTOCOL), and the query would fail: {advice}",
    )


def _of_new_protocol(mine: str, theirs: str, view: GroupView) -> Finding:
    if view.protocol == "consumer":
        return Finding(Level.OK, "assignor", f"{mine}; {theirs}")
    if view.assignor == COOPERATIVE:
        return Finding(
            Level.ERROR,
            "assignor",
            f"{mine}; {theirs}. When a librdkafka client leads the group with {COOPERATIVE}, as groupkafka queries do, the group "
            "refuses members of the other protocol. Stop all members first, or set kafka.group.protocol=classic.",
        )
    return Finding(
        Level.WARNING,
        "assignor",
        f"{mine}; {theirs}. This member would start a migration of the group to the new protocol. Set "
        "kafka.group.protocol=classic, unless you want that.",
    )


def _members(count: int) -> str:
    return "member is" if count == 1 else f"{count} members are"


def of_instance_id(options: Options, view: GroupView | None) -> Finding | None:
    """Return whether a member already uses the static member's instance id; `None` if the options name none."""
    name = options.group_instance_id
    if name is None:
        return None
    same = [member for member in (view.members if view is not None else ()) if member.instance_id == name]
    if not same:
        return Finding(Level.OK, "instance id", f"kafka.group.instance.id={name}: no member uses it")
    if options.group_protocol == "classic":
        becomes = "a query that starts with this id takes its place, and the other query fails"
    else:
        becomes = "a query that starts with this id is refused until that member has left or its session has timed out"
    return Finding(
        Level.WARNING,
        "instance id",
        f"kafka.group.instance.id={name}: a member at {same[0].host} uses it; {becomes}. If that is not the query that you are "
        "about to restart, choose another id.",
    )


@dataclass(frozen=True)
class Known:
    """What the brokers know of the subscribed partitions. `starting` is where those without a commit would start."""

    partitions: Collection[TopicPartition]
    commits: Mapping[TopicPartition, GroupCommit]
    starting: Mapping[TopicPartition, int]
    logs: LogState


def of_start(options: Options, known: Known) -> list[Finding]:
    """Return where a query with a new checkpoint would start, how much it would read, and what is lost already."""
    stream = Stream("check")
    done = evidence(known.commits.values())
    logs = known.logs
    # Reported by `of_formats`.
    unread_records = {partition for partition, commit in known.commits.items() if isinstance(commit, OtherFormat)}
    answered = [
        partition
        for partition in sorted(set(known.partitions) - unread_records)
        if partition in logs.starts and partition in logs.ends and (_committed(known, partition) or partition in known.starting)
    ]
    records: dict[TopicPartition, CommitRecord] = {}
    losses: list[PartitionLoss] = []
    for partition in answered:
        commit, topic_id = known.commits.get(partition), logs.ids.get(partition.topic) or None
        if recreated(stream, partition, commit, topic_id):
            losses.append(commit_loss(stream, partition, commit, topic_id or "", logs.starts[partition]))
            commit = None
        start = known.starting.get(partition, logs.starts[partition])
        records[partition] = adopt(stream, partition, commit, starting_offset=start, done=done, topic_id=topic_id)
    losses += partition_losses(records, logs, {})
    unread = sum(max(0, logs.ends[partition] - record.next) for partition, record in records.items())
    continuing = sum(_committed(known, partition) for partition in answered)
    places = [f"{continuing} at the group's commits"] if continuing else []
    if len(answered) > continuing:
        places.append(f"{len(answered) - continuing} without a commit {_where(options)}")
    findings = []
    if answered:
        text = (
            f"{len(answered)} partitions: a query with a new checkpoint starts {' and '.join(places)}; {unread} offsets to read"
        )
        findings.append(Finding(Level.OK, "start", text))
    if silent := sorted(set(known.partitions) - set(answered) - unread_records):
        findings.append(
            Finding(
                Level.ERROR,
                "start",
                f"The leader does not return the offsets of {listed(silent)}, so these partitions cannot be read. Check that "
                "each broker is up. The driver and the executors must be able to connect to its advertised.listeners.",
            )
        )
    return findings + _of_losses(options, losses)


def _committed(known: Known, partition: TopicPartition) -> bool:
    return known.commits.get(partition) is not None


def _where(options: Options) -> str:
    position = options.stream_start
    return f"at the {position} (startingOffsets)" if isinstance(position, str) else f"as {position.option} says"


def _of_losses(options: Options, losses: Collection[PartitionLoss]) -> list[Finding]:
    if not losses:
        return []
    if options.fail_on_data_loss:
        level, fate = (
            Level.ERROR,
            "The query would fail. To continue without these records, set failOnDataLoss=false",
        )
    else:
        level, fate = Level.WARNING, "The query would continue without these records (failOnDataLoss=false)"
    return [Finding(level, "data loss", f"{listed(losses)}. {fate}, or set the offsets with groupkafka reset-offsets.")]


def of_formats(options: Options, view: GroupView | None) -> Finding | None:
    """Return the subscribed partitions whose commit record this version does not read; `None` if there are none."""
    others = view.other_formats if view is not None else {}
    mine = [
        f"{partition}: format {version}, {advice_on_format(version)}"
        for partition, version in sorted(others.items())
        if options.matches(partition.topic)
    ]
    if not mine:
        return None
    return Finding(
        Level.ERROR,
        "claims",
        f"{listed(mine)}. This version does not read these formats of commit records, so a query would stop with "
        "CommitRecordUnreadable.",
    )


def of_claims(options: Options, view: GroupView | None) -> Finding:
    """Return what other streams have claimed in the subscribed topics, and what a query with a new checkpoint would do."""
    mine = [one for one in (view.partitions if view is not None else ()) if options.matches(one.partition.topic)]
    # While a classic group rebalances, its coordinator names no owners.
    rebalances = view is not None and view.state in HIDING and bool(view.members)
    running = sum(claim.range.size for one in mine if rebalances or one.member is not None for claim in one.in_flight)
    left = [
        (one.partition, claim)
        for one in mine
        for claim in one.owed + (() if rebalances or one.member is not None else one.in_flight)
    ]
    if not left:
        where = " in the other partitions" if any(one.other_format is not None for one in mine) else ""
        text = f"{running} offsets are in flight in running queries; nothing is owed" if running else f"nothing is claimed{where}"
        return Finding(Level.OK, "claims", text)
    policy = options.outstanding()
    after = policy.reread_after_s
    if policy.stop_after_s is not None:
        fate = (
            f"fails after {policy.stop_after_s:.0f} s (outstandingClaims.grace) if they are not confirmed by then. Restart the "
            "query of that stream on its checkpoint, or set outstandingClaims"
        )
    elif after is None:
        fate = "does not read them, and goes on; only that stream's query does, when it restarts (outstandingClaims=hold)"
    else:
        fate = f"reads them{f' after {after:.0f} s' if after else ''}; records may be duplicated (outstandingClaims)"
    ranges = listed(f"{partition} {claim.range} of stream {claim.stream}" for partition, claim in left)
    return Finding(
        Level.WARNING,
        "claims",
        f"claimed and not confirmed: {ranges}. A query with a new checkpoint {fate}. Details: groupkafka claims.",
    )
