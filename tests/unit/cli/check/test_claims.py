"""What other queries have claimed, and what a query with a new checkpoint would do about it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_groupsource.brokers.group_view import GroupMember, PartitionView
from spark_groupsource.cli.check.claims import list_claims, read_formats
from spark_groupsource.cli.check.findings import Finding, Level, ok
from spark_groupsource.handoff.commit_record import CommitRecord, OpenRange, OtherFormat, OwedRange
from tests.support.check_sources import OTHER, ZERO, group, member, only, source

MEMBER = member("a", ZERO)


def claims(owner: GroupMember | None, **more: str) -> Finding:
    record = CommitRecord(stream="b", logged=4, done=3, next=20, open=(OpenRange(10, 20),), owed=(OwedRange("c", 1, 5, 7),))
    seen = (PartitionView(ZERO, owner, record, 50), PartitionView(OTHER, None, record, 50))
    return only(list_claims(source(group("classic", "range", MEMBER, partitions=seen), **more)))


def test_claims_that_others_left_behind_and_what_a_new_query_would_do() -> None:
    running = claims(MEMBER)
    assert running.level is Level.WARNING
    assert "orders-0 [5, 7) of stream c." in running.text, "what a running member has in flight is its own"
    assert "orders-0 [5, 7) of stream c, orders-0 [10, 20) of stream b" in claims(None).text
    assert "others" not in claims(None).text
    left = "does not read them, and goes on; only that stream's query does, when it restarts"
    assert left in claims(None).text
    assert left in claims(None, outstandingClaims="hold").text
    assert "reads them; records may be duplicated" in claims(None, outstandingClaims="reread").text
    assert "reads them after 600 s; records may be duplicated" in claims(None, outstandingClaims="reread-after 10m").text


def test_what_is_in_flight_while_a_classic_group_rebalances_is_its_members_own() -> None:
    record = CommitRecord(stream="c", logged=4, done=3, next=7, open=(OpenRange(5, 7),))
    now = replace(group("classic", "range", partitions=(PartitionView(ZERO, None, record, 50),)), members=(MEMBER,))
    assert only(list_claims(source(now))).level is Level.WARNING
    rebalancing = replace(now, state="completing rebalancing")
    assert only(list_claims(source(rebalancing))).text == "2 offsets are in flight in running queries; nothing is held"


def test_no_claims() -> None:
    assert only(list_claims(source())) == ok("claims", "nothing is claimed")


@pytest.mark.parametrize("version", [2, 5])
def test_commit_records_of_another_version(version: int) -> None:
    seen = (PartitionView(ZERO, None, OtherFormat(10, version), 50), PartitionView(OTHER, None, OtherFormat(1, 6), 50))
    of_others = source(group("classic", "range", partitions=seen))
    found = only(read_formats(of_others))
    assert found.level is Level.ERROR
    assert found.text.startswith(
        f"The commit record of orders-0 cannot be read: another version of spark_groupsource wrote format {version} "
    )
    assert "CommitRecordUnreadable" in found.text
    assert "others" not in found.text
    assert only(list_claims(of_others)).text == "nothing is claimed in the other partitions"
    assert not list(read_formats(source()))
