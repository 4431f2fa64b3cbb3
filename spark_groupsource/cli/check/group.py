"""The group: whether this query may join it, and whether its members would accept that."""

from __future__ import annotations

from collections.abc import Iterator

from confluent_kafka import KafkaError

from spark_groupsource.brokers.broker_errors import TO_MOVE_A_GROUP
from spark_groupsource.brokers.group_admin_process import GroupAdminProcess
from spark_groupsource.brokers.group_view import GroupView
from spark_groupsource.brokers.login_trouble import MISSING_ACL
from spark_groupsource.cli.check.connection import lacks
from spark_groupsource.cli.check.findings import Finding, error, ok, warning
from spark_groupsource.cli.check.known import Source
from spark_groupsource.cli.render import count
from spark_groupsource.errors import GroupKafkaError, GroupNotFound

COOPERATIVE = "cooperative-sticky"

_NO_ACL = MISSING_ACL[KafkaError.GROUP_AUTHORIZATION_FAILED]


def describe_group(source: Source) -> Iterator[Finding]:
    """Describe the group, and add it. That it does not exist yet is no error."""
    name = source.options.group_id
    allowed: frozenset[str] | None = None
    with GroupAdminProcess(source.options.client_settings()) as groups:
        try:
            allowed = groups.operations(name)
            source.group = groups.describe(name)
        except GroupNotFound:
            pass
        except GroupKafkaError as refused:
            yield error("group", str(refused))
            return
    if lacks("READ", allowed):
        yield error("group", f"{name}: this user may describe it, but not join it. {_NO_ACL}")
        return
    may = "joining it is allowed" if allowed is not None else "the broker does not say whether joining it is allowed"
    yield ok("group", f"{name}: {_state_text(source.group)}; {may}")


def _state_text(group: GroupView | None) -> str:
    if group is None:
        return "the group does not exist yet; the query creates it"
    commits = sum(seen.commit is not None for seen in group.partitions)
    return f"{group.state}, {count(len(group.members), 'member')}, commits of {count(commits, 'partition')}"


def compare_assignors(source: Source) -> Iterator[Finding]:
    """Find whether the group would accept this query as a member.

    The rules are the group coordinator's. A member of the classic protocol needs an assignor that every member offers. The
    coordinator returns only the assignor that is in use, not those that each member offers.
    """
    options, group = source.options, source.group
    ours = f"kafka.group.protocol={options.group_protocol}, assignor {options.assignment_strategy}"
    if group is None or not group.members:
        yield ok("assignor", f"{ours}: the group has no members, so any assignor is accepted")
        return
    members = "member is" if len(group.members) == 1 else f"{len(group.members)} members are"
    both = f"{ours}; the group's {members} {group.protocol}, assignor {group.assignor or 'not chosen yet'}"
    if options.group_protocol == "consumer":
        yield _judge_as_consumer(both, group)
    else:
        yield _judge_as_classic(both, options.assignment_strategy, group)


def _judge_as_consumer(both: str, group: GroupView) -> Finding:
    if group.protocol == "consumer":
        return ok("assignor", both)
    if group.assignor == COOPERATIVE:
        return error(
            "assignor",
            f"{both}. The brokers would refuse this member (GROUP_ID_NOT_FOUND): beside librdkafka's clients with {COOPERATIVE}, "
            f"as groupkafka queries are, they cannot move the group. {TO_MOVE_A_GROUP}",
        )
    return warning(
        "assignor",
        f"{both}. This member would move the group to the new protocol, while the others still use the classic one. If you want "
        "that, restart them one by one with kafka.group.protocol=consumer. If not, set kafka.group.protocol=classic.",
    )


def _judge_as_classic(both: str, ours: str, group: GroupView) -> Finding:
    offered = [name.strip() for name in ours.split(",")]
    advice = f"set kafka.partition.assignment.strategy={group.assignor}, or stop all members and restart them with {ours}."
    if group.protocol == "consumer":
        return warning(
            "assignor",
            f"{both}. This member would begin to move the group back to the classic protocol. If you want that, restart the "
            "others one by one with kafka.group.protocol=classic. If not, set kafka.group.protocol=consumer.",
        )
    if not group.assignor:
        return warning("assignor", f"{both}: the group is rebalancing. Run this check again when it is stable.")
    if group.assignor in offered:
        return ok("assignor", both)
    if group.assignor == "range" and COOPERATIVE in offered:
        return warning(
            "assignor",
            f"{both}. The group accepts this member only if all others offer {COOPERATIVE} too. Java's consumers do by default "
            f"(range, {COOPERATIVE}). librdkafka's clients and Spark queries with range do not. If they do not, {advice}",
        )
    return error(
        "assignor",
        f"{both}. The group would refuse this member (INCONSISTENT_GROUP_PROTOCOL), and the query would fail: {advice}",
    )


def compare_instance_ids(source: Source) -> Iterator[Finding]:
    """Find whether a member already uses the instance id, if the options name one."""
    name = source.options.group_instance_id
    if name is None:
        return
    same = [member for member in (source.group.members if source.group is not None else ()) if member.instance_id == name]
    if not same:
        yield ok("instance id", f"kafka.group.instance.id={name}: no member uses it")
        return
    if source.options.group_protocol == "classic":
        becomes = "a query that starts with this id takes its place, and the other query fails"
    else:
        becomes = "a query that starts with this id is refused until that member has left or its session has timed out"
    yield warning(
        "instance id",
        f"kafka.group.instance.id={name}: a member at {same[0].host} uses it; {becomes}. If that is not the query that you are "
        "about to restart, choose another id.",
    )


def count_members(source: Source) -> Iterator[Finding]:
    """Find whether there is a partition for each member, if the group has members.

    Members that own only partitions of other topics are left out. What a member without partitions subscribes to is not known.
    """
    members = [
        member
        for member in (source.group.members if source.group is not None else ())
        if not member.partitions or any(source.options.matches(partition.topic) for partition in member.partitions)
    ]
    if not members or not source.partitions:
        return
    text = f"{count(len(members), 'member')} for {count(len(source.partitions), 'partition')}"
    spare = len(members) - len(source.partitions)
    if spare <= 0:
        yield ok("members", text if spare else f"{text}; one more member would be a standby")
        return
    yield warning(
        "members",
        f"{text}: {spare} of them can have none, and wait as standbys until another member leaves. Add partitions to the topics "
        "(kafka-topics.sh --alter --partitions), or stop queries, unless you want standbys.",
    )
