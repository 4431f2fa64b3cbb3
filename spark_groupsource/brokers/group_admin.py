"""Describes groups, reads their commits, and changes or deletes groups that have no members, through an AdminClient."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any
from warnings import catch_warnings, simplefilter

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from spark_groupsource.brokers.admin_client import LastingAdmin
from spark_groupsource.brokers.broker_errors import ADVICE, COORDINATOR_ERRORS, OFFSET_ERRORS, explain
from spark_groupsource.brokers.group_view import (
    GroupMember,
    GroupView,
    PartitionView,
    of_new_kind,
    of_other_type,
    other_protocol_type,
)
from spark_groupsource.brokers.offsets import LATEST_OFFSET, NO_RECORD, Kept, kept_of, request_offsets
from spark_groupsource.brokers.topics import id_text, names_of
from spark_groupsource.errors import BrokerUnavailable, CommitOutcomeUnknown, GroupActive, GroupKafkaError, GroupNotFound
from spark_groupsource.handoff.commit_record import GroupCommit, read_commits
from spark_groupsource.partition import TopicPartition, listed
from spark_groupsource.patience import Deadline
from spark_groupsource.timeouts import ASK_AGAIN_S, GROUP_OFFSETS_S, REQUEST_TIMEOUT_S, SHORT_TIMEOUT_S

STABLE_INTERVAL_S = 0.02
"""How often to check whether a transaction with offsets for a group is still open. Its producer is fenced, so the transaction
will be committed or aborted soon."""

OFFSETS_TOPIC = "__consumer_offsets"
"""Kafka's topic for groups and their offsets. Each partition's leader coordinates the groups in that partition."""

_NOT_SHOWN = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART}


class GroupAdmin:
    """Describes groups, alters their offsets and deletes them, through one AdminClient. Only one thread may use it at a time."""

    def __init__(self, client_settings: Mapping[str, str]) -> None:
        """Make the client without sending a request.

        Args:
            client_settings: librdkafka settings that every client needs.

        Raises:
            OptionError: See `LastingAdmin`.
            AuthenticationFailed: See `LastingAdmin`.
        """
        self._client_settings = client_settings
        self._admin = LastingAdmin(client_settings)

    def describe(self, group: str) -> GroupView:
        """Describe the group's current state. Each request takes at most 10 s.

        Raises:
            GroupNotFound: The group does not exist.
            NotAConsumerGroup: The group is not a consumer group.
            BrokerUnavailable: No broker answers.
            AuthenticationFailed: The brokers refuse the login.
            NotAuthorized: The user may not describe the group.
        """
        description = self._description(group)
        offsets = self._kept(group)
        if description.state == ConsumerGroupState.DEAD and not offsets:
            raise _not_found(group)
        commits = read_commits(offsets)
        members = tuple(sorted(map(_member, description.members), key=lambda member: (member.client_id, member.member_id)))
        owners = {partition: member for member in members for partition in member.partitions}
        partitions = sorted(commits.keys() | owners.keys())
        ends = self._ends(partitions)
        if len(ends) == len(partitions):
            self._admin.last_error.clear(self._admin.client)
        node = description.coordinator
        return GroupView(
            group=group,
            state=description.state.name.lower().replace("_", " "),
            protocol=description.type.name.lower(),
            assignor=description.partition_assignor,
            coordinator=f"{node.host}:{node.port} (broker {node.id})" if node is not None else "",
            members=members,
            partitions=tuple(
                PartitionView(
                    partition,
                    owners.get(partition),
                    commits.get(partition),
                    ends.get(partition),
                    offsets[partition][1] if partition in offsets else None,
                )
                for partition in partitions
            ),
        )

    def _description(self, group: str) -> Any:
        """Return the coordinator's description of the group. A nonexistent group may be DEAD or not found.

        For newer kinds of groups, the coordinator also answers DEAD or not found, but the list of all groups contains them.
        """
        try:
            description = self._described(group)
        except GroupNotFound:
            if not self._is_listed(group):
                raise
        else:
            if description.state != ConsumerGroupState.DEAD or not self._is_listed(group):
                return description
        # Ask again, because the first member may have joined between the two answers. If not, this is a newer kind of group.
        with suppress(GroupNotFound):
            description = self._described(group)
            if description.state != ConsumerGroupState.DEAD:
                return description
        raise of_new_kind(group, has_offsets=bool(self.offsets(group)))

    def _described(self, group: str, *, with_operations: bool = False) -> Any:
        return self._ask(
            lambda: self._admin.client.describe_consumer_groups(
                [group], include_authorized_operations=with_operations, request_timeout=REQUEST_TIMEOUT_S
            )[group],
            f"asking for this user's rights on group {group}" if with_operations else f"describing group {group}",
            group,
        )

    def refuse_other_kinds(self, group: str) -> None:
        """Raise an error if the group exists but is not a consumer group.

        Raises:
            NotAConsumerGroup: The group is not a consumer group.
            NotAuthorized: The user may not describe the group.
            BrokerUnavailable: No broker answers.
            AuthenticationFailed: The brokers refuse the login.
        """
        with suppress(GroupNotFound):
            self.describe(group)

    def members(self, group: str) -> frozenset[str]:
        """Return the ids of the group's members. An id may contain any character.

        Raises:
            GroupNotFound: The group does not exist.
            NotAConsumerGroup: The group is not a consumer group.
            NotAuthorized: The user may not describe the group.
            BrokerUnavailable: No broker answers.
            AuthenticationFailed: The brokers refuse the login.
        """
        return frozenset(member.member_id for member in self._description(group).members)

    def member(self, group: str, member_id: str) -> GroupMember | None:
        """Return one member with its assigned partitions, or `None` if the group does not have this member.

        Raises:
            GroupNotFound: The group does not exist.
            NotAConsumerGroup: The group is not a consumer group.
            NotAuthorized: The user may not describe the group.
            BrokerUnavailable: No broker answers.
            AuthenticationFailed: The brokers refuse the login.
        """
        return next((_member(member) for member in self._description(group).members if member.member_id == member_id), None)

    def operations(self, group: str) -> frozenset[str] | None:
        """Return the names of the operations, such as READ, that the user may perform on the group (KIP-430).

        The group need not exist. The result is `None` if the broker does not report operations.

        Raises:
            NotAuthorized: The user may not even describe the group.
            BrokerUnavailable: No broker answers.
            AuthenticationFailed: The brokers refuse the login.
        """
        return names_of(self._described(group, with_operations=True).authorized_operations)

    def groups(self, part: str) -> list[str]:
        """Return the groups whose names contain `part` and that the user may describe. Each broker lists its own groups.

        A group may be missing for a moment while its coordinator moves.

        Raises:
            BrokerUnavailable: A broker does not answer, or is still loading its groups. This client keeps asking a broker that
                has crashed; a new client does not.
            AuthenticationFailed: The brokers refuse the login.
        """
        doing = f"listing the groups *{part}*"
        found = self._ask(lambda: self._admin.client.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S), doing)
        # These are KafkaErrors, although confluent-kafka's documentation calls them exceptions.
        refused: list[Any] = found.errors
        if refused:
            raise explain(self._admin.reason(refused[0]), doing)
        return sorted(group.group_id for group in found.valid if part in group.group_id)

    def groups_that_move_too(self, part: str, topics: Collection[str]) -> list[str]:
        """Return the same groups as `groups`, but ask twice while a broker is down, so that moving groups are not missed.

        Args:
            part: Part of the groups' names.
            topics: The user's topics. If the user may not describe `__consumer_offsets`, these topics' replicas show whether a
                broker is down.

        Raises:
            BrokerUnavailable: See `groups`. Also if some groups have no coordinator.
            AuthenticationFailed: The brokers refuse the login.
        """
        # Check before listing the groups, so that the client has found all brokers and asks each of them. Check again afterwards,
        # because a broker may have handed over its groups in the meantime.
        moving = coordinators_move(self._admin.client, topics)
        found = self.groups(part)
        if not moving and not coordinators_move(self._admin.client, topics):
            return found
        time.sleep(ASK_AGAIN_S)
        return sorted({*found, *self.groups(part)})

    def topics(self) -> list[str]:
        """Return the names of the topics that the user may describe, except for Kafka's own topics.

        Raises:
            BrokerUnavailable: No broker answers.
            AuthenticationFailed: The brokers refuse the login.
        """
        found = self._ask(lambda: self._admin.client.list_topics(timeout=REQUEST_TIMEOUT_S), "listing the topics")
        return sorted(name for name, topic in found.topics.items() if topic.error is None and not name.startswith("__"))

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """Return all of a topic's partitions.

        Raises:
            TopicNotFound: The topic does not exist.
            NotAuthorized: The user may not describe the topic.
            BrokerUnavailable: No broker answers.
            AuthenticationFailed: The brokers refuse the login.
        """
        return [TopicPartition(topic, partition.id) for partition in self._topic(topic).partitions]

    def topic_id(self, topic: str) -> str:
        """Return a topic's id, or "" if the brokers have no topic ids.

        Raises:
            BrokerError: See `partitions_of`.
        """
        return id_text(self._topic(topic).topic_id)

    def _topic(self, topic: str) -> Any:
        asked = TopicCollection([topic])
        return self._ask(
            lambda: self._admin.client.describe_topics(asked, request_timeout=REQUEST_TIMEOUT_S)[topic],
            f"looking up topic {topic}",
        )

    def offsets_at(self, partitions: Iterable[TopicPartition], spec: OffsetSpec) -> dict[TopicPartition, int]:
        """Return the offset that `spec` selects in each partition, or -1 if no record is at or after its timestamp.

        Raises:
            BrokerError: The offset in one of the partitions cannot be determined.
        """
        found = {}
        for partition, future in request_offsets(self._admin.client, dict.fromkeys(partitions, spec), REQUEST_TIMEOUT_S).items():
            try:
                offset = future.result().offset
            except KafkaException as failed:
                raise explain(self._admin.reason(failed.args[0]), f"asking for an offset of {partition}") from None
            if offset < NO_RECORD:
                raise BrokerUnavailable(
                    f"The leader of {partition} does not answer. Nothing was changed. Check that its broker is running and that "
                    "this machine can reach it."
                )
            found[partition] = offset
        return found

    def alter_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit these offsets, without metadata, for a group that has no members.

        Raises:
            GroupActive: A member has joined. Nothing is committed.
            CommitOutcomeUnknown: No broker answers. The offsets may have been committed, or may be committed later.
            BrokerError: The brokers refuse some or all of the offsets. The message names the partitions whose offsets were
                committed.
        """
        doing = f"committing offsets of group {group}"
        altered = [KafkaTopicPartition(*partition, offset) for partition, offset in sorted(offsets.items())]
        asked = [ConsumerGroupTopicPartitions(group, altered)]
        found = self._ask(
            lambda: self._admin.client.alter_consumer_group_offsets(asked, request_timeout=REQUEST_TIMEOUT_S)[group],
            doing,
            group,
            _not_written,
        )
        refused = (answer for answer in found.topic_partitions or () if answer.error is not None)
        errors = {TopicPartition(answer.topic, answer.partition): answer.error for answer in refused}
        if errors:
            written = sorted(offsets.keys() - errors.keys())
            if written:
                doing += f" (committed: {listed(written)}; not committed: {listed(sorted(errors))})"
            raise _not_written(errors[min(errors)], doing)

    def delete(self, group: str) -> None:
        """Delete a group that has no members, along with its offsets. A group that does not exist counts as deleted.

        Raises:
            GroupActive: A member has joined. The group is not deleted.
            NotAuthorized: The user may not delete the group.
            BrokerUnavailable: No broker answers. The group may have been deleted, or may be deleted later.
            AuthenticationFailed: The brokers refuse the login.
        """
        with suppress(GroupNotFound):
            self._ask(
                lambda: self._admin.client.delete_consumer_groups([group], request_timeout=REQUEST_TIMEOUT_S)[group],
                f"deleting group {group}",
                group,
                _not_deleted,
            )

    def commits(self, group: str) -> dict[TopicPartition, GroupCommit]:
        """Return the group's commit for each partition that has one.

        Raises:
            NotAuthorized: The user may not read the group's commits.
            BrokerUnavailable: No broker answers.
            AuthenticationFailed: The brokers refuse the login.
        """
        return read_commits(self._kept(group))

    def offsets(self, group: str, *, stable: bool = False) -> dict[TopicPartition, tuple[int, str | None]]:
        """Return the group's committed offset, with its metadata, for each partition that has one.

        Args:
            group: The group.
            stable: Whether to wait until no open transaction commits offsets for the group (KIP-447).

        Raises:
            NotAuthorized: The user may not read the group's commits.
            BrokerUnavailable: No broker answers, or a transaction stays open.
            AuthenticationFailed: The brokers refuse the login.
        """
        return {partition: kept[:2] for partition, kept in self._kept(group, stable=stable).items()}

    def _kept(self, group: str, *, stable: bool = False) -> dict[TopicPartition, Kept]:
        doing = f"reading the commits of group {group}"
        asked = [ConsumerGroupTopicPartitions(group)]

        def request() -> Any:
            return self._admin.client.list_consumer_group_offsets(
                asked, require_stable=stable, request_timeout=REQUEST_TIMEOUT_S
            )[group]

        for _ in Deadline(GROUP_OFFSETS_S).attempts(STABLE_INTERVAL_S):
            answer = self._ask(request, doing, group)
            found = answer.topic_partitions or ()
            refused = [answer for answer in found if answer.error is not None]
            if not any(answer.error.code() == KafkaError.UNSTABLE_OFFSET_COMMIT for answer in refused):
                break
        for answer in refused:
            raise explain(answer.error, f"{doing} ({answer.topic}-{answer.partition})")
        return {TopicPartition(answer.topic, answer.partition): kept_of(answer) for answer in found}

    def _ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        answers = request_offsets(self._admin.client, dict.fromkeys(partitions, LATEST_OFFSET), REQUEST_TIMEOUT_S)
        # Skip partitions that have no leader, whose topic was deleted or whose ACL is missing, because the others are still worth
        # showing.
        return {
            partition: answer.result().offset
            for partition, answer in answers.items()
            if answer.exception() is None and answer.result().offset > NO_RECORD
        }

    def _is_listed(self, group: str) -> bool:
        """Return whether a broker lists a group of any kind with this name."""
        with catch_warnings():
            # `list_groups` is deprecated, but the newer function returns only consumer groups.
            simplefilter("ignore", DeprecationWarning)
            try:
                return bool(self._admin.client.list_groups(group, timeout=SHORT_TIMEOUT_S))
            except KafkaException as failed:
                error: KafkaError = failed.args[0]
                return error.code() == KafkaError._PARTIAL  # a broker lists the group, but another broker does not answer

    def _ask(
        self,
        request: Callable[[], Any],
        doing: str,
        group: str = "",
        explained: Callable[[KafkaError, str], GroupKafkaError] = explain,
    ) -> Any:
        """Return the answer to a request, or to the future that it returns. Retry while the coordinator is missing or loading."""
        if self._admin.idle:
            # Unlike `renew`, this also forgets earlier errors, and tries the brokers' advertised addresses again.
            self._admin = LastingAdmin(self._client_settings)
        self._admin.await_first_answer()
        for _ in Deadline(REQUEST_TIMEOUT_S).attempts():
            try:
                answer = request()
                found = answer.result() if isinstance(answer, Future) else answer
                self._admin.answered()
                return found
            except KafkaException as failed:
                error: KafkaError = failed.args[0]
            if error.code() >= 0:  # a broker's code, not librdkafka's
                self._admin.answered()
            if error.code() not in COORDINATOR_ERRORS:
                break
        if error.code() == KafkaError.GROUP_ID_NOT_FOUND:
            raise _not_found(group)
        if error.code() == KafkaError._INVALID_ARG and (protocol_type := other_protocol_type(error.str())) is not None:
            raise of_other_type(group, protocol_type)
        raise explained(self._admin.reason(error), doing)


def _not_written(error: KafkaError, doing: str) -> GroupKafkaError:
    if error.code() == KafkaError.UNKNOWN_MEMBER_ID:
        return GroupActive(
            f"{doing}: nothing was changed, because a member has joined the group, and now only members can commit. Stop the "
            "query or consumer, and run the command again."
        )
    advice = (
        "The offsets may have been committed, or may be committed later. Check with `groupkafka describe`, and run the command "
        "again."
    )
    return explain(error, doing, OFFSET_ERRORS, {**ADVICE, CommitOutcomeUnknown: advice})


def _not_deleted(error: KafkaError, doing: str) -> GroupKafkaError:
    if error.code() == KafkaError.NON_EMPTY_GROUP:
        return GroupActive(
            f"{doing}: the group was not deleted, because a member has joined it. Stop the query or consumer, and run the "
            "command again."
        )
    missing_acl = {KafkaError.GROUP_AUTHORIZATION_FAILED: "The user needs the DELETE ACL on the group."}
    return explain(error, doing, missing_acl=missing_acl)


def _not_found(group: str) -> GroupNotFound:
    return GroupNotFound(
        f"There is no consumer group {group!r} on these brokers, or it has neither members nor committed offsets. Check the name "
        "(kafka.group.id of the query) and the brokers."
    )


def _member(description: Any) -> GroupMember:
    return GroupMember(
        member_id=description.member_id,
        client_id=description.client_id,
        instance_id=description.group_instance_id or None,
        host=description.host.removeprefix("/"),
        partitions=_partitions(description.assignment),
        target=None if description.target_assignment is None else _partitions(description.target_assignment),
    )


def _partitions(assignment: Any) -> frozenset[TopicPartition]:
    # A classic group's leader writes the assignment, so it may contain anything.
    found = assignment.topic_partitions
    return frozenset(TopicPartition(place.topic, place.partition) for place in found if place.topic and place.partition >= 0)


def coordinators_move(admin: AdminClient, topics: Collection[str]) -> bool:
    """Return whether a broker is down, so that its groups may be moving to other coordinators.

    A partition's new leader lists its groups only after it has learned that it is the leader, while the old leader does not
    answer or no longer lists them. The other brokers answer without an error. Kafka also moves groups when it elects a preferred
    leader while no broker is down. Such a move takes milliseconds and is not detected here.

    Args:
        admin: The client that asks.
        topics: The user's topics, which are checked if the user may not describe `__consumer_offsets`.

    Raises:
        BrokerUnavailable: A partition of `__consumer_offsets` has no leader, so no broker lists its groups.
    """
    asked = TopicCollection([OFFSETS_TOPIC, *topics])
    answers = admin.describe_topics(asked, request_timeout=SHORT_TIMEOUT_S)
    away: dict[str, bool] = {}
    for topic, answer in answers.items():
        try:
            partitions = answer.result().partitions
        except KafkaException as failed:
            if failed.args[0].code() in _NOT_SHOWN:
                continue
            return True
        leaderless = [partition.id for partition in partitions if partition.leader is None]
        if topic == OFFSETS_TOPIC and leaderless:
            raise BrokerUnavailable(
                f"Partition {leaderless[0]} of {OFFSETS_TOPIC} has no leader, so no broker can list the groups in it. Start the "
                "brokers that host its replicas."
            )
        away[topic] = any(partition.leader is None or len(partition.isr) < len(partition.replicas) for partition in partitions)
    return away.get(OFFSETS_TOPIC, any(away.values()))
