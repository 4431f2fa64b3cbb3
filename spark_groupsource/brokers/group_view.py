"""A group as its coordinator shows it: members, assigned partitions, committed and end offsets, and what is held.

One look is four kinds of requests by an AdminClient; nothing is said to the group. Commit metadata is anybody's to write:
only what commit_record.py accepts gets into a view, and names that clients chose may hold any character (`cli` and
`render` never print them raw).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from spark_groupsource.brokers.broker_errors import explain
from spark_groupsource.brokers.client import Trouble, librdkafka_log, make_client
from spark_groupsource.brokers.topics import NO_RECORD, names_of
from spark_groupsource.errors import BrokerUnavailable, GroupActive, GroupNotFound
from spark_groupsource.handoff.commit_record import CommitRecord, GroupCommit, OwedRange, read_commit
from spark_groupsource.partition import TopicPartition

T = TypeVar("T")

REQUEST_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class GroupMember:
    """One member, as it introduced itself. Its three names and its host may hold any character."""

    member_id: str
    client_id: str
    instance_id: str | None
    host: str
    partitions: frozenset[TopicPartition]

    @property
    def name(self) -> str:
        """Client id, with the instance id of a static member, and the host. Not to be printed raw."""
        named = self.client_id if self.instance_id is None else f"{self.client_id}/{self.instance_id}"
        return f"{named}@{self.host}"


@dataclass(frozen=True)
class PartitionView:
    """One partition: what the group has committed for it, where it ends, and which member has it.

    `end` is the high watermark (exclusive); `None` when no broker tells it, as for a topic that was deleted.
    """

    partition: TopicPartition
    member: GroupMember | None
    commit: GroupCommit
    end: int | None

    @property
    def committed(self) -> int | None:
        """The committed offset: the first one not known to be durably processed; `None` without a commit."""
        return None if self.commit is None else self.commit.offset

    @property
    def lag(self) -> int | None:
        """Offsets between the committed offset and the end, as every lag tool counts; `None` when one is unknown."""
        committed = self.committed
        return None if committed is None or self.end is None else max(0, self.end - committed)

    @property
    def stream(self) -> str | None:
        """The stream that wrote the commit; `None` for another client's."""
        return self.commit.stream if isinstance(self.commit, CommitRecord) else None

    @property
    def in_flight(self) -> tuple[OwedRange, ...]:
        """Ranges that the last writer has claimed for the plan it runs, or ran when it lost the partition."""
        record = self.commit
        if not isinstance(record, CommitRecord):
            return ()
        return tuple(OwedRange(record.stream, record.logged, *claimed, record.claimed_at) for claimed in record.open)

    @property
    def owed(self) -> tuple[OwedRange, ...]:
        """Ranges that earlier owners claimed and never confirmed: only their streams may read them."""
        return self.commit.owed if isinstance(self.commit, CommitRecord) else ()

    @property
    def held(self) -> int:
        """Number of offsets that are in flight or owed."""
        return sum(claimed.range.size for claimed in self.in_flight + self.owed)


@dataclass(frozen=True)
class GroupView:
    """One group at one moment. The partitions are those that have a commit or a member, sorted."""

    group: str
    state: str
    protocol: str
    assignor: str
    coordinator: str
    members: tuple[GroupMember, ...]
    partitions: tuple[PartitionView, ...]

    @property
    def lag(self) -> int:
        """Sum of the lags that are known."""
        return sum(partition.lag or 0 for partition in self.partitions)

    @property
    def held(self) -> int:
        """Offsets that are claimed and not yet confirmed, in all partitions."""
        return sum(partition.held for partition in self.partitions)


class GroupDescriber:
    """Looks at groups through one AdminClient. Not to be used by two threads at once."""

    def __init__(self, client_settings: Mapping[str, str]) -> None:
        """
        Args:
            client_settings: librdkafka settings that every client needs.

        Raises:
            OptionError, AuthenticationFailed: see kafka_client.
        """
        self._trouble = Trouble()
        self._admin = make_client(AdminClient, client_settings, self._trouble.note, librdkafka_log)

    def describe(self, group: str) -> GroupView:
        """Look at the group once; each request waits 10 s at most.

        Raises:
            GroupNotFound: there is no such group.
            BrokerUnavailable, AuthenticationFailed, NotAuthorized: see broker_errors.
        """
        doing = f"describing group {group}"
        answers = self._ask(
            lambda: self._admin.describe_consumer_groups([group], request_timeout=REQUEST_TIMEOUT_S), doing, group
        )
        description = self._answer(answers[group], doing, group)
        commits = self.commits(group)
        if description.state == ConsumerGroupState.DEAD and not commits:
            raise _not_found(group)
        members = tuple(sorted(map(_member, description.members), key=lambda member: (member.client_id, member.member_id)))
        owners = {partition: member for member in members for partition in member.partitions}
        partitions = sorted(commits.keys() | owners.keys())
        ends = self._ends(partitions)
        if len(ends) == len(partitions):
            self._trouble.end(self._admin)
        node = description.coordinator
        return GroupView(
            group=group,
            state=description.state.name.lower().replace("_", " "),
            protocol=description.type.name.lower(),
            assignor=description.partition_assignor,
            coordinator=f"{node.host}:{node.port} (broker {node.id})" if node is not None else "",
            members=members,
            partitions=tuple(
                PartitionView(partition, owners.get(partition), commits.get(partition), ends.get(partition))
                for partition in partitions
            ),
        )

    def operations(self, group: str) -> frozenset[str] | None:
        """What the user may do with the group, also with one that there is not yet: names such as READ (KIP-430).

        `None` when the broker does not tell.

        Raises:
            NotAuthorized: not even DESCRIBE.
            BrokerUnavailable, AuthenticationFailed: see broker_errors.
        """
        doing = f"asking what is allowed with group {group}"
        answers = self._ask(
            lambda: self._admin.describe_consumer_groups(
                [group], include_authorized_operations=True, request_timeout=REQUEST_TIMEOUT_S
            ),
            doing,
            group,
        )
        return names_of(self._answer(answers[group], doing, group).authorized_operations)

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """Every partition of a topic.

        Raises:
            TopicNotFound, NotAuthorized, BrokerUnavailable, AuthenticationFailed: see broker_errors.
        """
        doing = f"looking up topic {topic}"
        asked = TopicCollection([topic])
        answers = self._ask(lambda: self._admin.describe_topics(asked, request_timeout=REQUEST_TIMEOUT_S), doing, "")
        return [TopicPartition(topic, one.id) for one in self._answer(answers[topic], doing, "").partitions]

    def offsets_at(self, partitions: Iterable[TopicPartition], spec: OffsetSpec) -> dict[TopicPartition, int]:
        """The offset of each partition that the spec means; -1 where no record is as young as a timestamp.

        Raises:
            BrokerError: of any partition: none may be left out.
        """
        asked = {KafkaTopicPartition(*partition): spec for partition in partitions}
        futures: Mapping[KafkaTopicPartition, Future[Any]] = self._admin.list_offsets(asked, request_timeout=REQUEST_TIMEOUT_S)
        found = {}
        for asked_for, future in futures.items():
            partition = TopicPartition(asked_for.topic, asked_for.partition)
            offset = self._answer(future, f"asking for an offset of {partition}", "").offset
            if offset < NO_RECORD:
                raise BrokerUnavailable(
                    f"The leader of {partition} does not answer. Check that its broker is up and can be reached from here."
                )
            found[partition] = offset
        return found

    def move(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit these offsets, without metadata, for a group that has no members.

        Raises:
            BrokerError: also when the group has members.
        """
        doing = f"resetting the offsets of group {group}"
        moved = [KafkaTopicPartition(*partition, offset) for partition, offset in sorted(offsets.items())]
        asked = [ConsumerGroupTopicPartitions(group, moved)]
        answers = self._ask(
            lambda: self._admin.alter_consumer_group_offsets(asked, request_timeout=REQUEST_TIMEOUT_S), doing, group
        )
        for written in self._answer(answers[group], doing, group).topic_partitions or ():
            if written.error is not None:
                raise explain(written.error, f"{doing} ({written.topic}-{written.partition})")

    def commits(self, group: str) -> dict[TopicPartition, GroupCommit]:
        """The group's commit of each partition that has one.

        Raises:
            BrokerUnavailable, AuthenticationFailed, NotAuthorized: see broker_errors.
        """
        doing = f"reading the commits of group {group}"
        asked = [ConsumerGroupTopicPartitions(group)]
        answers = self._ask(
            lambda: self._admin.list_consumer_group_offsets(asked, request_timeout=REQUEST_TIMEOUT_S), doing, group
        )
        commits: dict[TopicPartition, GroupCommit] = {}
        for found in self._answer(answers[group], doing, group).topic_partitions or ():
            if found.error is not None:
                raise explain(found.error, f"{doing} ({found.topic}-{found.partition})")
            commits[TopicPartition(found.topic, found.partition)] = read_commit(found.offset, found.metadata)
        return commits

    def _ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        asked = {KafkaTopicPartition(*partition): OffsetSpec.latest() for partition in partitions}  # type: ignore[no-untyped-call]
        if not asked:
            return {}
        futures: Mapping[KafkaTopicPartition, Future[Any]] = self._admin.list_offsets(asked, request_timeout=REQUEST_TIMEOUT_S)
        ends = {}
        for partition, future in futures.items():
            # No leader now, a deleted topic, no ACL on it: the rest of the view is worth showing.
            if future.exception() is None and future.result().offset > NO_RECORD:
                ends[TopicPartition(partition.topic, partition.partition)] = future.result().offset
        return ends

    def _answer(self, future: Future[T], doing: str, group: str) -> T:
        return self._ask(future.result, doing, group)

    def _ask(self, request: Callable[[], T], doing: str, group: str) -> T:
        try:
            return request()
        except KafkaException as failed:
            error: KafkaError = failed.args[0]
        if error.code() == KafkaError.GROUP_ID_NOT_FOUND:
            raise _not_found(group)
        raise explain(self._trouble.behind(error, self._admin), doing)


def refuse_active(view: GroupView) -> None:
    """Refuse to write offsets of a group that has members.

    Raises:
        GroupActive: it has.
    """
    if view.members:
        names = ", ".join(sorted({repr(member.client_id) for member in view.members}))
        raise GroupActive(
            f"The group {view.group} has {len(view.members)} {'member' if len(view.members) == 1 else 'members'} ({names}), and "
            "only they may commit. Stop its queries and other consumers; a member that died, or is static, stays until its "
            "session is over. `groupkafka describe` shows the members."
        )


def _not_found(group: str) -> GroupNotFound:
    return GroupNotFound(
        f"There is no consumer group {group!r} on these brokers: it has no members and no committed offsets. "
        "Check the name (kafka.group.id of the query) and the brokers."
    )


def _member(description: Any) -> GroupMember:
    return GroupMember(
        member_id=description.member_id,
        client_id=description.client_id,
        instance_id=description.group_instance_id or None,
        host=description.host.removeprefix("/"),
        partitions=frozenset(TopicPartition(one.topic, one.partition) for one in description.assignment.topic_partitions),
    )
