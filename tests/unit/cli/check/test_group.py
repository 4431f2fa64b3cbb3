"""Whether the group's members would accept this query, and whether there is a partition for each."""

from __future__ import annotations

import pytest

from spark_groupsource.brokers.group_view import GroupMember
from spark_groupsource.cli.check.findings import Finding, Level, ok
from spark_groupsource.cli.check.group import compare_assignors, compare_instance_ids, count_members
from tests.support.check_sources import ONE, OTHER, STRATEGY, ZERO, group, member, only, source

MEMBER = member("a", ZERO, instance_id="spare")


@pytest.mark.parametrize(
    ("ours", "theirs", "level"),
    [
        ({}, ("classic", "cooperative-sticky"), Level.OK),
        ({STRATEGY: "roundrobin,range"}, ("classic", "range"), Level.OK),
        ({STRATEGY: "roundrobin"}, ("classic", "range"), Level.ERROR),
        ({}, ("classic", "roundrobin"), Level.ERROR),
        ({}, ("classic", "range"), Level.WARNING),
        ({}, ("classic", ""), Level.WARNING),
        ({}, ("consumer", "uniform"), Level.WARNING),
        ({"kafka_group_protocol": "consumer"}, ("consumer", "uniform"), Level.OK),
        ({"kafka_group_protocol": "consumer"}, ("classic", "cooperative-sticky"), Level.ERROR),
        ({"kafka_group_protocol": "consumer"}, ("classic", "range"), Level.WARNING),
    ],
)
def test_the_assignor_beside_the_members(ours: dict[str, str], theirs: tuple[str, str], level: Level) -> None:
    found = only(compare_assignors(source(group(*theirs, MEMBER), **ours)))
    assert found.level is level, found
    assert ("." in found.text.rpartition(";")[2]) is (level is not Level.OK), "what to do is said unless all is well"
    assert only(compare_assignors(source(group(*theirs), **ours))).level is Level.OK, "without members any will do"


def test_a_static_members_name_that_is_taken() -> None:
    now = group("classic", "range", MEMBER)
    assert not list(compare_instance_ids(source(now)))
    free, taken, refused = (
        only(compare_instance_ids(source(now, kafka_group_instance_id=name, **more)))
        for name, more in (("other", {}), ("spare", {}), ("spare", {"kafka_group_protocol": "consumer"}))
    )
    assert [found.level for found in (free, taken, refused)] == [Level.OK, Level.WARNING, Level.WARNING]
    assert "takes its place" in taken.text
    assert "is refused until that member has left" in refused.text


def test_members_beside_partitions() -> None:
    def found(*members: GroupMember) -> Finding:
        return only(count_members(source(group("classic", "range", *members), ZERO, ONE)))

    assert found(member("a", ZERO, ONE)) == ok("members", "1 member for 2 partitions")
    both = ok("members", "2 members for 2 partitions; one more member would be a standby")
    assert found(member("a", ZERO), member("b", ONE)) == both
    assert found(member("a", ZERO), member("b", ONE), member("c", OTHER)) == both
    more = found(member("a", ZERO), member("b", ONE), member("c"))
    assert more.level is Level.WARNING
    assert more.text.startswith("3 members for 2 partitions: 1 of them can have none")


def test_without_members_or_partitions_none_are_counted() -> None:
    assert not list(count_members(source(None, ZERO)))
    assert not list(count_members(source(group("classic", "range"), ZERO)))
    assert not list(count_members(source(group("classic", "range", MEMBER))))
