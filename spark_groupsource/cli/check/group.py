"""Checks whether a query may join its group: the ACL, the group protocol, the members' assignor, and the brokers' settings.

No step joins the group, because joining would start a rebalance. The steps rely on the coordinator's description instead.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, suppress
from datetime import timedelta

from confluent_kafka import Consumer, KafkaError

from spark_groupsource.brokers.admin_client import settings_of_a_broker
from spark_groupsource.brokers.broker_errors import TO_MOVE_A_GROUP, explain
from spark_groupsource.brokers.client import make_client
from spark_groupsource.brokers.group_admin_process import GroupAdminProcess
from spark_groupsource.brokers.group_view import GroupView
from spark_groupsource.brokers.login_trouble import MISSING_ACL
from spark_groupsource.cli.check.findings import Finding, error, lacks, ok, warning
from spark_groupsource.cli.check.source import Source
from spark_groupsource.cli.render import count
from spark_groupsource.errors import GroupKafkaError, GroupNotFound, NotAuthorized
from spark_groupsource.options.client_settings import member_settings
from spark_groupsource.options.model import Options
from spark_groupsource.partition import TopicPartition
from spark_groupsource.patience import Deadline
from spark_groupsource.timeouts import CHECK_STEP_S

COOPERATIVE = "cooperative-sticky"

_NO_ACL = MISSING_ACL[KafkaError.GROUP_AUTHORIZATION_FAILED]

REFUSED_ASSIGNOR = "groupkafka-check"
"""An assignor that no broker has. A broker with KIP-848 refuses a heartbeat with this assignor before changing the group."""

TOO_OLD = frozenset({KafkaError.UNSUPPORTED_VERSION, KafkaError._UNSUPPORTED_FEATURE})
"""Errors from brokers without KIP-848. librdkafka may replace the code with `_FATAL`, but then quotes the error message."""

_refusals_log = logging.getLogger("spark_groupsource.librdkafka.refusals")
"""A disabled logger, because librdkafka would log the expected refusal as a fatal error."""
_refusals_log.disabled = True

SESSION_MS = 45_000
"""librdkafka's session timeout if `kafka.session.timeout.ms` is not set, in ms."""

RETENTION = "offsets.retention.minutes"


def describe_group(source: Source) -> Iterator[Finding]:
    """Describe the group and add it to `source`. The group need not exist yet.

    Raises:
        NotAuthorized: The query may not join the group.
        GroupKafkaError: See `GroupAdminProcess`.
    """
    name = source.options.group_id
    allowed: frozenset[str] | None = None
    state = "the group does not exist yet; the query will create it"
    with GroupAdminProcess(source.options.client_settings()) as groups, suppress(GroupNotFound):
        allowed = groups.operations(name)
        group = source.group = groups.describe(name)
        commits = sum(view.commit is not None for view in group.partitions)
        state = f"{group.state}, {count(len(group.members), 'member')}, committed offsets for {count(commits, 'partition')}"
    if lacks("READ", allowed):
        raise NotAuthorized(f"{name}: this user may describe this group, but not join it. {_NO_ACL}")
    may = "this user may join it" if allowed is not None else "the broker does not report whether this user may join it"
    yield ok("group", f"{name}: {state}; {may}")


def compare_assignors(source: Source) -> Iterator[Finding]:
    """Report whether the group would accept this query as a member.

    This follows the group coordinator's rules: under the classic protocol, all members must offer a common assignor. The
    coordinator returns only the assignor in use, not all assignors that the members offer.
    """
    options, group = source.options, source.group
    ours = f"kafka.group.protocol={options.group_protocol}, assignor {options.assignment_strategy}"
    if not group.members:
        yield ok("assignor", f"{ours}: the group has no members, so any assignor is accepted")
        return
    members = "member is" if len(group.members) == 1 else f"{len(group.members)} members are"
    compared = f"{ours}; the group's {members} {group.protocol}, assignor {group.assignor or 'not chosen yet'}"
    if options.group_protocol == "consumer":
        yield _judge_as_consumer(compared, group)
    else:
        yield _judge_as_classic(compared, options.assignment_strategy, group)


def _judge_as_consumer(compared: str, group: GroupView) -> Finding:
    if group.protocol == "consumer":
        return ok("assignor", compared)
    if group.assignor == COOPERATIVE:
        return error(
            "assignor",
            f"{compared}. The brokers would reject this member (GROUP_ID_NOT_FOUND), because they cannot move a group to the new "
            f"protocol while its members use librdkafka with {COOPERATIVE}, as groupkafka queries do. {TO_MOVE_A_GROUP}",
        )
    return warning(
        "assignor",
        f"{compared}. This member would move the group to the new protocol while the others still use the classic one. If you "
        "want that, restart the others one by one with kafka.group.protocol=consumer. If not, set kafka.group.protocol=classic.",
    )


def _judge_as_classic(compared: str, ours: str, group: GroupView) -> Finding:
    offered = [name.strip() for name in ours.split(",")]
    advice = f"set kafka.partition.assignment.strategy={group.assignor}, or stop all members and restart them with {ours}."
    if group.protocol == "consumer":
        return warning(
            "assignor",
            f"{compared}. This member would start moving the group back to the classic protocol. If you want that, restart the "
            "others one by one with kafka.group.protocol=classic. If not, set kafka.group.protocol=consumer.",
        )
    if not group.assignor:
        return warning("assignor", f"{compared}: the group is rebalancing. Run this check again when it is stable.")
    if group.assignor in offered:
        return ok("assignor", compared)
    if group.assignor == "range" and COOPERATIVE in offered:
        return warning(
            "assignor",
            f"{compared}. The group accepts this member only if all other members offer {COOPERATIVE} too. Java consumers offer "
            f"it by default (range, {COOPERATIVE}). librdkafka clients and Spark queries that use range do not. If any of those "
            f"is a member, {advice}",
        )
    return error(
        "assignor",
        f"{compared}. The group would reject this member (INCONSISTENT_GROUP_PROTOCOL), and the query would fail: {advice}",
    )


def compare_instance_ids(source: Source) -> Iterator[Finding]:
    """Report whether a member already uses the instance id from the options, if one is set."""
    name = source.options.group_instance_id
    if name is None:
        return
    users = [member for member in source.group.members if member.instance_id == name]
    if not users:
        yield ok("instance id", f"kafka.group.instance.id={name}: no member uses it")
        return
    if source.options.group_protocol == "classic":
        becomes = "a query that starts with this id will take its place, and the other query will fail"
    else:
        becomes = "a query that starts with this id will be rejected until that member has left or its session has timed out"
    yield warning(
        "instance id",
        f"kafka.group.instance.id={name}: a member at {users[0].host} is using it; {becomes}. Unless that member is the query "
        "that you are about to restart, choose another id.",
    )


def count_members(source: Source) -> Iterator[Finding]:
    """Report whether there is a partition for each member, if the group has members.

    Members that own only partitions in other topics do not count. A member without partitions counts, because its subscription is
    unknown.
    """
    members = [
        member
        for member in source.group.members
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
        f"{text}: {spare} of the members cannot get a partition until another member leaves. Unless you want standbys, add "
        "partitions to the topics (kafka-topics.sh --alter --partitions), or stop queries.",
    )


def ask_for_protocol(source: Source) -> Iterator[Finding]:
    """Report whether the brokers support KIP-848, using a request that they always refuse, so that no member joins."""
    if source.options.group_protocol == "classic":
        return
    refusal = refusal_of(source.options)
    if refusal is None:
        text = f"the coordinator did not answer within {CHECK_STEP_S:.0f} s, so it is not known whether it supports the protocol."
        advice = (
            "Kafka has supported kafka.group.protocol=consumer (KIP-848) since 4.0. Run this check again, or set the option "
            "to classic."
        )
        yield warning("protocol", f"{text} {advice}")
    elif _is_one_of(refusal, {KafkaError.UNSUPPORTED_ASSIGNOR}):
        yield ok("protocol", "the brokers support kafka.group.protocol=consumer (KIP-848)")
    elif _is_one_of(refusal, TOO_OLD):
        text = "the brokers do not support kafka.group.protocol=consumer (KIP-848), which requires Kafka 4.0. Set it to classic."
        yield error("protocol", text)
    else:
        yield error("protocol", str(explain(refusal, "asking for kafka.group.protocol=consumer")))


def refusal_of(options: Options) -> KafkaError | None:
    """Send a join request that brokers with KIP-848 refuse, and return their error, or `None` if they do not answer in time."""
    errors: list[KafkaError] = []
    # Leave out the instance id. With it, this client would take the place of a static member that may be running.
    kafka = {name: value for name, value in options.kafka.items() if name != "group.instance.id"}
    settings = {
        **member_settings(kafka),
        "group.remote.assignor": REFUSED_ASSIGNOR,
        # Subscribing must not create a topic, no matter what the options say, because a check writes nothing.
        "allow.auto.create.topics": "false",
    }
    with closing(make_client(Consumer, settings, errors.append, _refusals_log)) as consumer:
        consumer.subscribe(options.subscription())
        deadline = Deadline(CHECK_STEP_S)
        refusal: KafkaError | None = None
        while refusal is None and not deadline.over:
            message = consumer.poll(0.1)
            refusal = message.error() if message is not None else next((failed for failed in errors if failed.fatal()), None)
    return refusal


def _is_one_of(refusal: KafkaError, codes: Collection[int]) -> bool:
    return refusal.code() in codes or any(KafkaError(code).str() in refusal.str() for code in codes)


def compare_settings(source: Source) -> Iterator[Finding]:
    """Report what the brokers' settings mean for the query. The query can run without the right to read them."""
    try:
        broker = settings_of_a_broker(source.options.client_settings())
    except GroupKafkaError as refused:
        reason = str(refused)
        if isinstance(refused, NotAuthorized):
            reason = "that requires the DESCRIBE_CONFIGS ACL on the cluster, which a query does not need"
        yield ok("settings", f"the session timeout and {RETENTION} were not compared with the brokers' settings: {reason}")
        return
    yield judge_session(source.options, broker)
    if RETENTION in broker:
        yield from _find_retention(source, int(broker[RETENTION]))


def judge_session(options: Options, broker: Mapping[str, str]) -> Finding:
    """Return a finding about whether the brokers accept the member's session timeout.

    Under the classic protocol the member asks for a timeout, and the coordinator refuses one outside its bounds. Under KIP-848
    the coordinator sets the timeout.

    Args:
        options: the query's options.
        broker: a broker's settings.
    """
    if options.group_protocol == "consumer":
        value = broker.get("group.consumer.session.timeout.ms", "not shown")
        text = f"the brokers set it for kafka.group.protocol=consumer: group.consumer.session.timeout.ms is {value}"
        return ok("session", f"{text}, unless the group has its own consumer.session.timeout.ms")
    session = int(options.kafka.get("session.timeout.ms", SESSION_MS))
    ours = f"kafka.session.timeout.ms={session}"
    bounds = [broker.get(f"group.{end}.session.timeout.ms") for end in ("min", "max")]
    lowest, highest = (int(bound) if bound is not None else None for bound in bounds)
    if lowest is None or highest is None:
        return ok("session", f"{ours}: the brokers do not show their limits")
    if lowest <= session <= highest:
        return ok("session", f"{ours}: the brokers accept {lowest} to {highest}")
    side, bound = ("below the brokers' group.min", lowest) if session < lowest else ("above the brokers' group.max", highest)
    text = f"{ours} is {side}.session.timeout.ms ({bound}). The group would reject this member"
    advice = f"Set it to {lowest} to {highest}, or change the brokers' setting."
    return error("session", f"{text} (INVALID_SESSION_TIMEOUT), and the query would fail. {advice}")


def _find_retention(source: Source, minutes: int) -> Iterator[Finding]:
    now_s = time.time()
    first: Mapping[TopicPartition, int | None] = {}
    if not source.group.members:
        since_ms = max(0, round((now_s - minutes * 60) * 1000))
        try:
            first = source.topics.at_times(dict.fromkeys(source.partitions, since_ms))
        except GroupKafkaError:
            return  # `find_start` asks the same leaders, and reports the error
    yield from judge_retention(source, minutes, now_s, first)


def judge_retention(source: Source, minutes: int, now_s: float, first: Mapping[TopicPartition, int | None]) -> Iterator[Finding]:
    """Report whether the group's commits may expire before the query starts, if it has commits for subscribed partitions.

    The brokers delete a group's commits when it has had no members for this long (KIP-211), but they do not report when the last
    member left. So this step uses the times of the claims, and whether the group has read records written within that time.

    Args:
        source: the query, with its group.
        minutes: the brokers' `offsets.retention.minutes`.
        now_s: the current Unix time in seconds.
        first: for each partition, the offset of the first record written within that time, or `None` if there is none.
    """
    with_commit = [view for view in source.views if view.commit is not None]
    if not with_commit:
        return
    period = str(timedelta(minutes=minutes)).removesuffix(", 0:00:00")
    kept = f"the group's committed offsets expire after {period} without members ({RETENTION})"
    if source.group.members:
        yield ok("retention", f"{kept}; the group has members")
        return
    since_s = now_s - minutes * 60
    claims = [claim for view in with_commit for claim in view.open + view.owed]
    claimed = any(claim.since is not None and claim.since >= since_s for claim in claims)
    read = {view.partition: view.committed or 0 for view in with_commit}
    if claimed or any(offset is not None and read.get(partition, 0) > offset for partition, offset in first.items()):
        yield ok("retention", f"{kept}; the group has no members, but has read within this time")
        return
    unread = [partition for partition, offset in sorted(first.items()) if offset is not None and partition in read]
    if not unread:
        text = f"{kept}; no record was written within this time, so it is not known how long the group has been idle"
        yield ok("retention", text)
        return
    yield warning(
        "retention",
        f"{kept}. The group has no members, and has read nothing that was written within this time, for example in {unread[0]}. "
        "The brokers may delete the offsets at any time. After that, a query with a new checkpoint will start at "
        f"startingOffsets, and held ranges will be skipped. Start the query now, or raise {RETENTION}.",
    )
