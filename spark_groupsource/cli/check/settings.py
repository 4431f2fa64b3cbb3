"""The brokers' settings: their bounds of the session timeout, and how long they keep the group's commits."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from spark_groupsource.brokers.broker_settings import settings_of_a_broker
from spark_groupsource.cli.check.findings import Finding, error, ok, warning
from spark_groupsource.cli.check.known import Source
from spark_groupsource.cli.render import count
from spark_groupsource.errors import GroupKafkaError, NotAuthorized
from spark_groupsource.options.model import Options
from spark_groupsource.partition import TopicPartition

SESSION_MS = 45_000
"""The session timeout of librdkafka if `kafka.session.timeout.ms` is not set, in ms."""

RETENTION = "offsets.retention.minutes"

_NOT_COMPARED = f"the session timeout and {RETENTION} were not compared with the brokers' settings"


def compare_settings(source: Source) -> Iterator[Finding]:
    """Find what the brokers' settings mean for the query. Without the right to read them it can run all the same."""
    try:
        broker = settings_of_a_broker(source.options.client_settings())
    except NotAuthorized:
        yield ok("settings", f"{_NOT_COMPARED}: that takes the ACL DESCRIBE_CONFIGS on the cluster, which a query does not need")
        return
    except GroupKafkaError as refused:
        yield ok("settings", f"{_NOT_COMPARED}: {refused}")
        return
    yield judge_session(source.options, broker)
    if RETENTION in broker:
        yield from _find_retention(source, int(broker[RETENTION]))


def judge_session(options: Options, broker: Mapping[str, str]) -> Finding:
    """Return whether the brokers accept the member's session timeout.

    Under the classic protocol the member asks for one, and the coordinator refuses it outside its bounds. Under KIP-848 the
    coordinator sets it.

    Args:
        options: the query's options.
        broker: a broker's settings.
    """
    if options.group_protocol == "consumer":
        value = broker.get("group.consumer.session.timeout.ms", "not shown")
        text = f"the brokers set it for kafka.group.protocol=consumer: group.consumer.session.timeout.ms is {value}"
        return ok("session", f"{text}, unless the group has a consumer.session.timeout.ms of its own")
    session = int(options.kafka.get("session.timeout.ms", SESSION_MS))
    ours = f"kafka.session.timeout.ms={session}"
    bounds = [broker.get(f"group.{end}.session.timeout.ms") for end in ("min", "max")]
    lowest, highest = (int(bound) if bound is not None else None for bound in bounds)
    if lowest is None or highest is None:
        return ok("session", f"{ours}: the brokers do not show their bounds")
    if lowest <= session <= highest:
        return ok("session", f"{ours}: the brokers accept {lowest} to {highest}")
    bound = f"below group.min.session.timeout.ms ({lowest})"
    if session > highest:
        bound = f"above group.max.session.timeout.ms ({highest})"
    return error(
        "session",
        f"{ours} is {bound} of the brokers. The group would refuse this member (INVALID_SESSION_TIMEOUT), and the query would "
        f"end. Set it to {lowest} to {highest}, or change the brokers' setting.",
    )


def _find_retention(source: Source, minutes: int) -> Iterator[Finding]:
    now_s = time.time()
    first: Mapping[TopicPartition, int | None] = {}
    if source.group is not None and not source.group.members:
        since_ms = max(0, round((now_s - minutes * 60) * 1000))
        try:
            first = source.topics.at_times(dict.fromkeys(source.partitions, since_ms))
        except GroupKafkaError:
            return  # `find_start` asks the same leaders, and reports it
    yield from judge_retention(source, minutes, now_s, first)


def judge_retention(source: Source, minutes: int, now_s: float, first: Mapping[TopicPartition, int | None]) -> Iterator[Finding]:
    """Find whether the group's commits may expire before the query starts. Nothing, if it has none of a subscribed partition.

    The brokers delete the commits of a group that has had no member for so long (KIP-211). No request returns since when it has
    had none. What is known: the times of claims, and whether the group has read records that were written within that time.

    Args:
        source: what is known.
        minutes: `offsets.retention.minutes` of the brokers.
        now_s: seconds since 1970.
        first: for each partition, the offset of the first record that was written within that time; `None` if there is none.
    """
    group = source.group
    if group is None:
        return
    mine = [seen for seen in group.partitions if seen.commit is not None and source.options.matches(seen.partition.topic)]
    if not mine:
        return
    kept = f"the group's commits are kept for {_period(minutes)} without members ({RETENTION})"
    if group.members:
        yield ok("retention", f"{kept}; it has members")
        return
    since_s = now_s - minutes * 60
    claims = [claim for seen in mine for claim in seen.open + seen.owed]
    claimed = any(claim.since is not None and claim.since >= since_s for claim in claims)
    read = {seen.partition: seen.committed or 0 for seen in mine}
    if claimed or any(offset is not None and read.get(partition, 0) > offset for partition, offset in first.items()):
        yield ok("retention", f"{kept}; it has no members, and has read within this time")
        return
    unread = [partition for partition, offset in sorted(first.items()) if offset is not None and partition in read]
    if not unread:
        text = f"{kept}; it has no members, and no record was written within this time, so since when it is idle is not known"
        yield ok("retention", text)
        return
    yield warning(
        "retention",
        f"{kept}. It has no members, and has read nothing that was written within this time, in {unread[0]} for example. The "
        "brokers may delete the commits at any time. Then a query with a new checkpoint starts at startingOffsets, and ranges "
        f"that queries left to each other are skipped. Start the query now, or raise {RETENTION}.",
    )


def _period(minutes: int) -> str:
    for size, name in ((24 * 60, "day"), (60, "hour")):
        if minutes % size == 0:
            return count(minutes // size, name)
    return count(minutes, "minute")
