"""What `groupkafka check` finds, as far as it is decided from what the brokers have told: the group, the start, the claims.

Pure. Each finding is a sentence on how things are and, where something is wrong, one on what to do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from spark_groupsource.brokers.group_view import GroupView
from spark_groupsource.handoff.commit_record import CommitRecord, GroupCommit
from spark_groupsource.handoff.losses import LogState, PartitionLoss, commit_loss, partition_losses
from spark_groupsource.handoff.rules import Stream, adopt, evidence, recreated
from spark_groupsource.options.model import Options
from spark_groupsource.partition import TopicPartition

COOPERATIVE = "cooperative-sticky"
MOST_NAMED = 5
"""Partitions, ranges or members that one finding names."""


class Level(Enum):
    """How bad a finding is: an error keeps the query from running as the options say."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """One line. `check` says what was looked at, in one word. The text may hold names that clients chose."""

    level: Level
    check: str
    text: str


def listed(things: Iterable[object]) -> str:
    """The first of them, and how many more there are."""
    names = [str(thing) for thing in things]
    more = [f"and {len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
    return ", ".join(names[:MOST_NAMED] + more)


def of_assignor(options: Options, view: GroupView | None) -> Finding:
    """Whether the group's members would have this one beside them.

    The rules are the group coordinator's: a member of the classic protocol needs an assignor that every member offers. Which
    ones they offer it does not tell, only the one that is in use.
    """
    ours = options.assignment_strategy
    mine = f"kafka.group.protocol={options.group_protocol}, assignor {ours}"
    if view is None or not view.members:
        return Finding(Level.OK, "assignor", f"{mine}: the group has no members that it would have to suit")
    theirs = f"the group's {_members(len(view.members))} {view.protocol}, assignor {view.assignor or 'not settled'}"
    if options.group_protocol == "consumer":
        return _of_new_protocol(mine, theirs, view)
    if view.protocol == "consumer":
        return Finding(
            Level.WARNING,
            "assignor",
            f"{mine}; {theirs}. Brokers take both side by side, for the time of a migration. Set kafka.group.protocol=consumer, "
            "unless this is one.",
        )
    if not view.assignor:
        return Finding(Level.WARNING, "assignor", f"{mine}; {theirs}: the group is in a rebalance. Check again when it is over.")
    offered = [name.strip() for name in ours.split(",")]
    if view.assignor in offered:
        return Finding(Level.OK, "assignor", f"{mine}; {theirs}")
    advice = f"set kafka.partition.assignment.strategy={view.assignor}, or stop all members and start them with {ours}."
    if view.assignor == "range" and COOPERATIVE in offered:
        return Finding(
            Level.WARNING,
            "assignor",
            f"{mine}; {theirs}. The group takes this member only if all others offer {COOPERATIVE} too: Java's consumers do by "
            f"default (range, {COOPERATIVE}), librdkafka's and Spark queries with range do not. If they do not, {advice}",
        )
    return Finding(
        Level.ERROR, "assignor", f"{mine}; {theirs}. The group would refuse this member (INCONSISTENT_GROUP_PROTOCOL): {advice}"
    )


def _of_new_protocol(mine: str, theirs: str, view: GroupView) -> Finding:
    if view.protocol == "consumer":
        return Finding(Level.OK, "assignor", f"{mine}; {theirs}")
    if view.assignor == COOPERATIVE:
        return Finding(
            Level.ERROR,
            "assignor",
            f"{mine}; {theirs}. A group that a librdkafka client leads with {COOPERATIVE}, as these queries do, refuses a member "
            "of the other protocol: stop all members first, or set kafka.group.protocol=classic.",
        )
    return Finding(
        Level.WARNING,
        "assignor",
        f"{mine}; {theirs}. This member would move the group to the new protocol, as in a migration. Set "
        "kafka.group.protocol=classic, unless this is one.",
    )


def _members(count: int) -> str:
    return "member is" if count == 1 else f"{count} members are"


def of_instance_id(options: Options, view: GroupView | None) -> Finding | None:
    """Whether somebody has the static member's name; `None` when the options name none."""
    name = options.group_instance_id
    if name is None:
        return None
    same = [member for member in (view.members if view is not None else ()) if member.instance_id == name]
    if not same:
        return Finding(Level.OK, "instance id", f"kafka.group.instance.id={name}: no member has it")
    if options.group_protocol == "classic":
        becomes = "a query that starts with it takes its place, and the other one ends"
    else:
        becomes = "a query that starts with it is refused until that member has left, or its session is over"
    return Finding(
        Level.WARNING,
        "instance id",
        f"kafka.group.instance.id={name}: a member at {same[0].host} has it. If that is another query than the one that you are "
        f"about to restart, choose another name: {becomes}.",
    )


@dataclass(frozen=True)
class Known:
    """What the brokers tell of the subscribed partitions. `starting` is where those without a commit would start."""

    partitions: Collection[TopicPartition]
    commits: Mapping[TopicPartition, GroupCommit]
    starting: Mapping[TopicPartition, int]
    logs: LogState


def of_start(options: Options, known: Known) -> list[Finding]:
    """Where a query with a new checkpoint would start, what it would find to read, and what is gone already."""
    stream = Stream("check")
    done = evidence(known.commits.values())
    logs = known.logs
    told = [
        partition
        for partition in sorted(known.partitions)
        if partition in logs.starts and partition in logs.ends and (_committed(known, partition) or partition in known.starting)
    ]
    records: dict[TopicPartition, CommitRecord] = {}
    losses: list[PartitionLoss] = []
    for partition in told:
        commit, topic_id = known.commits.get(partition), logs.ids.get(partition.topic) or None
        if recreated(stream, partition, commit, topic_id):
            losses.append(commit_loss(stream, partition, commit, topic_id or "", logs.starts[partition]))
            commit = None
        start = known.starting.get(partition, logs.starts[partition])
        records[partition] = adopt(stream, partition, commit, starting_offset=start, done=done, topic_id=topic_id)
    losses += partition_losses(records, logs, {})
    unread = sum(max(0, logs.ends[partition] - record.next) for partition, record in records.items())
    going_on = sum(_committed(known, partition) for partition in told)
    places = [f"{going_on} at the group's commits"] if going_on else []
    if len(told) > going_on:
        places.append(f"{len(told) - going_on} {_where(options)}, having none")
    findings = []
    if told:
        text = f"{len(told)} partitions: a query with a new checkpoint starts {' and '.join(places)}; {unread} offsets to read"
        findings.append(Finding(Level.OK, "start", text))
    if silent := sorted(set(known.partitions) - set(told)):
        findings.append(
            Finding(
                Level.ERROR,
                "start",
                f"No leader tells the offsets of {listed(silent)}. Check that each broker is up, and can be reached at what its "
                "advertised.listeners say, from the driver and from the executors.",
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
            "The query would end: set failOnDataLoss=false to go on without these records, or move the group",
        )
    else:
        level, fate = Level.WARNING, "The query goes on without these records (failOnDataLoss=false), or move the group"
    return [Finding(level, "data loss", f"{listed(losses)}. {fate} with groupkafka reset-offsets.")]


def of_claims(options: Options, view: GroupView | None) -> Finding:
    """What is claimed in the subscribed topics by other streams, and what a query with a new checkpoint would do."""
    mine = [one for one in (view.partitions if view is not None else ()) if options.matches(one.partition.topic)]
    running = sum(claim.range.size for one in mine if one.member is not None for claim in one.in_flight)
    left = [(one.partition, claim) for one in mine for claim in one.owed + (() if one.member is not None else one.in_flight)]
    if not left:
        text = f"{running} offsets are in flight at running members, nothing is owed" if running else "nothing is claimed"
        return Finding(Level.OK, "claims", text)
    after = options.outstanding().reread_after_s
    if options.outstanding_claims is None:
        fate = (
            f"stops after {options.outstanding_claims_grace_ms // 1000} s (outstandingClaims.grace) if they are not confirmed by "
            "then. Restart the query of that stream on its checkpoint, or set outstandingClaims"
        )
    elif after is None:
        fate = "leaves them to the restart of that stream's query (outstandingClaims=hold)"
    else:
        fate = f"reads them{f' after {after:.0f} s' if after else ''}, perhaps a second time (outstandingClaims)"
    ranges = listed(f"{partition} {claim.range} of stream {claim.stream}" for partition, claim in left)
    return Finding(
        Level.WARNING,
        "claims",
        f"claimed and not confirmed: {ranges}. A query with a new checkpoint {fate}; groupkafka claims has more.",
    )
