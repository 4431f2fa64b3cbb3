"""The findings of `groupkafka check` about habits of production: session, retention, members, reader, and checkpoint.

Nothing is asked here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spark_groupsource.brokers.group_view import GroupView
from spark_groupsource.checkpoint.files import without_password
from spark_groupsource.cli.checkpoint_files import NewestBatch
from spark_groupsource.cli.findings import Finding, Level
from spark_groupsource.fetch.choice import InstalledReader
from spark_groupsource.options.model import Options
from spark_groupsource.partition import TopicPartition

SESSION_MS = 45_000
"""The session timeout of librdkafka if `kafka.session.timeout.ms` is not set, in ms."""

RETENTION = "offsets.retention.minutes"


def of_session(options: Options, broker: Mapping[str, str]) -> Finding:
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
        return Finding(Level.OK, "session", f"{text}, unless the group has a consumer.session.timeout.ms of its own")
    session = int(options.kafka.get("session.timeout.ms", SESSION_MS))
    mine = f"kafka.session.timeout.ms={session}"
    bounds = [broker.get(f"group.{end}.session.timeout.ms") for end in ("min", "max")]
    lowest, highest = (int(bound) if bound is not None else None for bound in bounds)
    if lowest is None or highest is None:
        return Finding(Level.OK, "session", f"{mine}: the brokers do not show their bounds")
    if lowest <= session <= highest:
        return Finding(Level.OK, "session", f"{mine}: the brokers accept {lowest} to {highest}")
    bound = (
        f"below group.min.session.timeout.ms ({lowest})"
        if session < lowest
        else f"above group.max.session.timeout.ms ({highest})"
    )
    return Finding(
        Level.ERROR,
        "session",
        f"{mine} is {bound} of the brokers. The group would refuse this member (INVALID_SESSION_TIMEOUT), and the query would "
        f"get no partition. Set it to {lowest} to {highest}, or change the brokers' setting.",
    )


def of_retention(
    options: Options, view: GroupView | None, minutes: int, now_s: float, first: Mapping[TopicPartition, int | None]
) -> Finding | None:
    """Return whether the group's commits may expire before the query starts.

    The brokers delete the commits of a group that has had no member for so long (KIP-211). No request returns since when it has
    had none. What is known: the times of claims, and whether the group has read records that were written within that time.

    Args:
        options: the query's options.
        view: the group as it is now; `None` if it does not exist.
        minutes: `offsets.retention.minutes` of the brokers.
        now_s: seconds since 1970.
        first: for each partition, the offset of the first record that was written within that time; `None` if there is none.

    Returns:
        The finding; `None` if the group has no commit of a subscribed partition.
    """
    commits = [one for one in (view.partitions if view is not None else ()) if one.commit is not None]
    mine = [one for one in commits if options.matches(one.partition.topic)]
    if view is None or not mine:
        return None
    kept = f"the group's commits are kept for {_days(minutes)} without members ({RETENTION})"
    if view.members:
        return Finding(Level.OK, "retention", f"{kept}; it has members")
    since_s = now_s - minutes * 60
    claims = [claim for one in mine for claim in one.in_flight + one.owed]
    claimed = any(claim.since is not None and claim.since >= since_s for claim in claims)
    read = {one.partition: one.committed or 0 for one in mine}
    if claimed or any(offset is not None and read.get(partition, 0) > offset for partition, offset in first.items()):
        return Finding(Level.OK, "retention", f"{kept}; it has no members, and has read within this time")
    unread = [partition for partition, offset in sorted(first.items()) if offset is not None and partition in read]
    if not unread:
        text = f"{kept}; it has no members, and no record was written within this time, so since when it is idle is not known"
        return Finding(Level.OK, "retention", text)
    return Finding(
        Level.WARNING,
        "retention",
        f"{kept}. It has no members, and has read nothing that was written within this time, in {unread[0]} for example. The "
        "brokers may delete the commits at any time. Then a query with a new checkpoint starts at startingOffsets, and ranges "
        f"that queries left to each other are skipped. Start the query now, or raise {RETENTION}.",
    )


def _days(minutes: int) -> str:
    for size, name in ((24 * 60, "day"), (60, "hour")):
        if minutes % size == 0:
            return _count(minutes // size, name)
    return _count(minutes, "minute")


def of_members(options: Options, view: GroupView | None, partitions: Collection[TopicPartition]) -> Finding | None:
    """Return whether there is a partition for each member; `None` if the group has no members.

    Members that own only partitions of other topics are left out. What a member without partitions subscribes to is not known.
    """
    members = [
        member
        for member in (view.members if view is not None else ())
        if not member.partitions or any(options.matches(one.topic) for one in member.partitions)
    ]
    if not members or not partitions:
        return None
    there = f"{_count(len(members), 'member')} for {_count(len(partitions), 'partition')}"
    spare = len(members) - len(partitions)
    if spare > 0:
        return Finding(
            Level.WARNING,
            "members",
            f"{there}: {spare} of them can have none, and wait as standbys until another member leaves. Add partitions to the "
            "topics (kafka-topics.sh --alter --partitions), or stop queries, unless you want standbys.",
        )
    return Finding(Level.OK, "members", f"{there}{'' if spare else '; one more member would be a standby'}")


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"


def of_reader(librdkafka: str, reader: InstalledReader) -> Finding:
    """Return which reader this machine has, and why.

    Args:
        librdkafka: its version.
        reader: the reader that is installed here.
    """
    others = "Each executor's machine chooses its own, and logs if it has no native reader"
    if reader.reason is None:
        return Finding(Level.OK, "reader", f"this machine has the {reader.name} reader, with librdkafka {librdkafka}. {others}.")
    return Finding(
        Level.WARNING,
        "reader",
        f"this machine has the {reader.name} reader, because the native one cannot be used: {reader.reason}. The rows are the "
        f"same, but reading is several times slower. To use the native reader: {reader.advice}. {others}.",
    )


OTHERWISE = """\
Until that is corrected, the claims of a finished micro-batch stay open until the next trigger, and its records count as lag, \
unless the driver's program reports it (spark_groupsource.register)."""


def of_no_checkpoint() -> Finding:
    """Return the advice for options without `checkpointLocation`. It is no warning: the driver's program may do the same."""
    return Finding(
        Level.OK,
        "checkpoint",
        "checkpointLocation is not set. The claims of a finished micro-batch then stay open until the next trigger, and its "
        "records count as lag, unless the driver's program calls spark_groupsource.register(spark) (on the same host, and not "
        "with Spark Connect). To close them at once, give the reader the writer's checkpointLocation, or call that function.",
    )


def of_checkpoint(options: Options, location: str, newest: NewestBatch | None) -> Finding:
    """Return whether the checkpoint at the reader's `checkpointLocation` is that of a query in this group.

    Args:
        options: the query's options.
        location: the option's value.
        newest: the newest micro-batch in the offset log; `None` if there is none.
    """
    named = f"checkpointLocation = {without_password(location)}"
    if newest is None:
        text = (
            "has no micro-batch yet (folder offsets). A new query makes the folder. For any other query this is not the location"
        )
        return Finding(Level.OK, "checkpoint", f"{named}: {text} that the writer has.")
    if newest.refused is not None:
        return Finding(Level.ERROR, "checkpoint", f"{named}: the query would fail. {newest.refused}")
    if not newest.plans:
        text = f"micro-batch {newest.number} has no offset of this source, so it is the checkpoint of another query. {OTHERWISE}"
        return Finding(Level.WARNING, "checkpoint", f"{named}: {text} Set it to the writer's checkpointLocation.")
    mine = [plan for plan in newest.plans if plan.group == options.group_id]
    if not mine:
        groups = " and ".join(sorted({plan.group for plan in newest.plans}))
        return Finding(
            Level.ERROR,
            "checkpoint",
            f"{named}: micro-batch {newest.number} is of group {groups}, not of {options.group_id}. The query would fail. Set "
            "it to the writer's checkpointLocation, and check kafka.group.id.",
        )
    streams = " and ".join(f"plan {plan.plan} of stream {plan.stream}" for plan in mine)
    state = "is finished" if newest.finished else "is not finished"
    return Finding(Level.OK, "checkpoint", f"{named}: it can be read; micro-batch {newest.number} is {streams}, and {state}")


def of_unreadable_checkpoint(reason: str) -> Finding:
    """Return that the reader's `checkpointLocation` cannot be read from here.

    Args:
        reason: why; it names the location, and has no password.
    """
    text = f"checkpointLocation = {reason.rstrip('.')}. {OTHERWISE} The location must be readable on the driver's machine."
    return Finding(Level.WARNING, "checkpoint", text)
