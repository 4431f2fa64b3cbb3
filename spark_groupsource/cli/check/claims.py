"""What other queries have claimed in the subscribed topics and not confirmed, and what a new query would do about it."""

from __future__ import annotations

from collections.abc import Iterator

from spark_groupsource.cli.check.findings import Finding, error, ok, warning
from spark_groupsource.cli.check.known import Source
from spark_groupsource.cli.claimed import claimed_of, total
from spark_groupsource.handoff.commit_record import VERSION
from spark_groupsource.options.model import Options
from spark_groupsource.partition import listed
from spark_groupsource.version import another_version


def read_formats(source: Source) -> Iterator[Finding]:
    """Find commit records of the subscribed partitions in formats that this version does not read."""
    others = source.group.other_formats if source.group is not None else {}
    mine = {partition: version for partition, version in others.items() if source.options.matches(partition.topic)}
    for version in sorted(set(mine.values())):
        partitions = listed(sorted(partition for partition, found in mine.items() if found == version))
        text = another_version(f"The commit record of {partitions}", version, VERSION)
        yield error("claims", f"{text} A query would stop with CommitRecordUnreadable.")


def list_claims(source: Source) -> Iterator[Finding]:
    """List the ranges that are held, and say what a query with a new checkpoint would do about them."""
    group = source.group
    mine = [seen for seen in (group.partitions if group is not None else ()) if source.options.matches(seen.partition.topic)]
    ranges = [] if group is None else [claimed for seen in mine for claimed in claimed_of(group, seen)]
    held = [claimed for claimed in ranges if claimed.kind == "held"]
    if held:
        listing = listed(f"{claimed.partition} {claimed.claim.range} of stream {claimed.claim.stream}" for claimed in held)
        text = f"held, which is claimed and not confirmed: {listing}. A query with a new checkpoint {_fate(source.options)}."
        yield warning("claims", f"{text} Details: groupkafka claims.")
    elif ranges:
        yield ok("claims", f"{total(ranges).in_flight} offsets are in flight in running queries; nothing is held")
    else:
        where = " in the other partitions" if any(seen.other_format is not None for seen in mine) else ""
        yield ok("claims", f"nothing is claimed{where}")


def _fate(options: Options) -> str:
    """Return what a query with a new checkpoint does about what is left, as outstandingClaims says."""
    policy = options.outstanding()
    if policy.reread_after_s is None:
        return "does not read them, and goes on; only that stream's query does, when it restarts (outstandingClaims=hold)"
    later = f" after {policy.reread_after_s:.0f} s" if policy.reread_after_s else ""
    return f"reads them{later}; records may be duplicated (outstandingClaims)"
