"""Defines a snapshot of a group: its members, partitions, offsets and claims. Also makes the errors for other kinds of groups.

Pure. Any client can write commit metadata, so a view contains only records that commit_record.py accepts. Clients' names may
contain any character, so `cli` never prints them raw.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from spark_groupsource.errors import GroupActive, NotAConsumerGroup
from spark_groupsource.handoff.commit_record import (
    CommitRecord,
    GroupCommit,
    LowestClaim,
    OtherFormat,
    OwedRange,
    mark_of,
    position_of,
)
from spark_groupsource.partition import TopicPartition

HIDING = frozenset({"preparing rebalancing", "completing rebalancing"})
"""A classic group's states in which its coordinator does not report the members' partitions."""


_OTHER_TYPE = re.compile(r"is not a consumer group \((.*)\)", re.DOTALL)

KNOWN_TYPES: Mapping[str, str] = {
    "connect": "its members are the workers of a Kafka Connect cluster",
    "sr": "its members are Schema Registry instances",
}
"""Describes the members of classic groups that are not consumer groups, by protocol type."""

_INSTEAD = "Set kafka.group.id to a name that no other kind of group uses."


@dataclass(frozen=True)
class GroupMember:
    """A group member. Its three names and its host may contain any character."""

    member_id: str
    client_id: str
    instance_id: str | None
    host: str
    partitions: frozenset[TopicPartition]
    """The member's assigned partitions. Only Kafka 4.4 includes those that the member must give back."""
    target: frozenset[TopicPartition] | None = None
    """The partitions that the member will have after the rebalance (KIP-848). `None` under the classic protocol."""

    @property
    def name(self) -> str:
        """The client id, the instance id of a static member, and the host. Never print it raw."""
        named = self.client_id if self.instance_id is None else f"{self.client_id}/{self.instance_id}"
        return f"{named}@{self.host}"


@dataclass(frozen=True)
class PartitionView:
    """One partition: its owner, the group's commit for it, and the end of its log."""

    partition: TopicPartition
    member: GroupMember | None
    commit: GroupCommit
    end: int | None
    """The high watermark (exclusive), or `None` if no broker returns it, for example because the topic was deleted."""
    metadata: str | None = None
    """The text that was committed with the offset. Any client may have written it."""

    @property
    def committed(self) -> int | None:
        """The committed offset, below which every record has been processed. `None` if there is no commit."""
        return None if self.commit is None else self.commit.offset

    @property
    def position(self) -> int | None:
        """Where the group's queries continue, which is above `committed` while ranges are claimed. `None` if unknown."""
        return position_of(self.commit)

    @property
    def lag(self) -> int | None:
        """The number of offsets from the committed offset to the end, as every lag tool calculates it. `None` if unknown."""
        committed = self.committed
        return None if committed is None or self.end is None else max(0, self.end - committed)

    @property
    def stream(self) -> str | None:
        """The stream that wrote the commit. `None` for another client's commit."""
        return self.commit.stream if isinstance(self.commit, CommitRecord) else None

    @property
    def lag_unknown(self) -> bool:
        """Whether the lag is unknown, because the leader does not answer or because there are records but no commit."""
        return self.lag is None and self.end != 0

    @property
    def other_format(self) -> int | None:
        """The format of a commit record that this version cannot read, so its claims are unknown. `None` for other commits."""
        return self.commit.version if isinstance(self.commit, OtherFormat) else None

    @property
    def open(self) -> tuple[OwedRange, ...]:
        """The ranges that the last writer claimed for its newest plan but has not confirmed."""
        return self.commit.open_as_owed if isinstance(self.commit, CommitRecord) else ()

    @property
    def owed(self) -> tuple[OwedRange, ...]:
        """The ranges that earlier owners claimed but never confirmed. Only their streams may read them."""
        return self.commit.owed if isinstance(self.commit, CommitRecord) else ()

    @property
    def lowest_claim(self) -> LowestClaim | None:
        """The lowest claim, which holds back the committed offset. `None` if nothing is claimed or the record cannot be read."""
        return self.commit.lowest_claim if isinstance(self.commit, CommitRecord) else None

    @property
    def finished_lag(self) -> int:
        """The number of offsets in `lag` that are finished but lie above a range that has not been confirmed yet."""
        lowest = self.lowest_claim
        return 0 if lowest is None else min(lowest.finished_lag, self.lag or 0)


@dataclass(frozen=True)
class Difference:
    """A partition about which the members and the coordinator disagree.

    The partition is assigned to one member but should move to another (KIP-848), or a member other than its owner wrote its last
    commit record. This is normal for a few seconds during a move, until the old owner has given the partition back and the new
    owner has written its first commit record. If it persists, a member may have missed the move.
    """

    partition: TopicPartition
    owner: GroupMember | None
    """The member to which the partition is assigned."""
    target: GroupMember | None
    """The member that should have the partition. Under the classic protocol, this is the owner."""
    writer: GroupMember | None
    """The member that wrote the commit record. `None` if it has left the group or is unknown."""


@dataclass(frozen=True)
class GroupView:
    """A snapshot of a group, with its members and those partitions that have a commit or an owner, sorted."""

    group: str
    state: str
    protocol: str
    assignor: str
    coordinator: str
    members: tuple[GroupMember, ...]
    partitions: tuple[PartitionView, ...]

    @property
    def lag(self) -> int:
        """The sum of the known lags (see `lag_unknown`)."""
        return sum(partition.lag or 0 for partition in self.partitions)

    @property
    def lag_unknown(self) -> int:
        """The number of partitions with unknown lag: the leader does not answer, or there are records but no commit."""
        return sum(partition.lag_unknown for partition in self.partitions)

    @property
    def finished_lag(self) -> int:
        """The number of offsets in `lag` that are finished but lie above ranges that have not been confirmed yet."""
        return sum(partition.finished_lag for partition in self.partitions)

    @property
    def differences(self) -> tuple[Difference, ...]:
        """The partitions about which the coordinator disagrees with the members' commit records."""
        if self.state in HIDING:
            return ()
        members = {mark_of(member.member_id): member for member in self.members}
        targets = {partition: member for member in self.members for partition in member.target or ()}
        found = []
        for view in self.partitions:
            mark = view.commit.member if isinstance(view.commit, CommitRecord) else None
            writer = members.get(mark or "")
            target = targets.get(view.partition, view.member if view.member is None or view.member.target is None else None)
            if target != view.member or (mark is not None and writer != view.member):
                found.append(Difference(view.partition, view.member, target, writer))
        return tuple(found)

    @property
    def other_formats(self) -> dict[TopicPartition, int]:
        """The partitions whose commit record this version cannot read, with the record's format."""
        return {view.partition: view.other_format for view in self.partitions if view.other_format is not None}


def refuse_active(view: GroupView) -> None:
    """Raise an error if the group has members, because brokers then accept offsets only from them.

    Raises:
        GroupActive: The group has members.
    """
    if view.members:
        names = ", ".join(sorted({repr(member.client_id) for member in view.members}))
        raise GroupActive(
            f"The group {view.group} has {len(view.members)} {'member' if len(view.members) == 1 else 'members'} ({names}), so "
            "its offsets can still change, and brokers accept offsets only from members. Nothing was changed. Stop the group's "
            "queries and other consumers. A member that crashed, or a static member, stays in the group until its session "
            "expires. `groupkafka describe` shows the members."
        )


def other_protocol_type(refusal: str) -> str | None:
    """Return the protocol type of a classic group that librdkafka refuses to describe, or `None` for any other refusal."""
    found = _OTHER_TYPE.search(refusal)
    return None if found is None else found[1]


def of_other_type(group: str, protocol_type: str) -> NotAConsumerGroup:
    """Return the exception for a classic group whose protocol type is not `consumer`."""
    purpose = KNOWN_TYPES.get(protocol_type, "its members are not consumers")
    return NotAConsumerGroup(
        f"The group {group!r} is a classic group with the protocol type {protocol_type!r}: {purpose}, so no query can join it. "
        f"{_INSTEAD}"
    )


def of_new_kind(group: str, *, has_offsets: bool) -> NotAConsumerGroup:
    """Return the exception for a group that is neither a classic group nor a KIP-848 consumer group.

    Other kinds of clients cannot join such a group. librdkafka describes only consumer groups, and treats a share group (KIP-932)
    or a streams group (KIP-1071) as if it did not exist. Only the list of all groups contains it, but without its kind. A share
    group has no committed offsets.

    Args:
        group: The group.
        has_offsets: Whether it has committed offsets.
    """
    if has_offsets:
        return NotAConsumerGroup(
            f"The group {group!r} is a streams group (KIP-1071), so its offsets belong to a Kafka Streams application, and no "
            f"query can join it. {_INSTEAD} Kafka's own kafka-streams-groups.sh shows the group."
        )
    return NotAConsumerGroup(
        f"The group {group!r} is a share group (KIP-932), or a streams group (KIP-1071) without committed offsets. Queries can "
        f"only join consumer groups. {_INSTEAD} Kafka's own kafka-groups.sh --list shows every group's type."
    )
