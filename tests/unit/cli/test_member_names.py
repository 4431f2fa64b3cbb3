"""Two members of a group can be told apart by their names."""

from __future__ import annotations

from dataclasses import replace

from spark_groupsource.brokers.group_view import GroupMember
from spark_groupsource.cli.member_names import member_names, name_in
from tests.support.group_views import member, view


def names(*members: GroupMember) -> list[str]:
    found = member_names(view(*members))
    return [found[each.member_id] for each in members]


def test_names_that_differ_are_the_client_ids_with_the_host() -> None:
    assert names(member("a"), member("b", instance_id="spare")) == ["a@host", "b/spare@host"]


def test_equal_names_have_the_begin_of_the_member_id_that_the_coordinator_gave() -> None:
    first, second = (replace(member("a"), member_id=f"a-{uuid}") for uuid in ("3f2a0c11-9d", "77e1f0b2-4c"))
    assert names(first, second, member("b")) == ["a@host#3f2a", "a@host#77e1", "b@host"]


def test_the_begin_is_as_long_as_it_must_be() -> None:
    begins = [replace(member("a"), member_id=member_id) for member_id in ("abcdefg1", "abcdefg2", "abcdxxxx")]
    assert names(*begins) == ["a@host#abcdefg1", "a@host#abcdefg2", "a@host#abcdxxxx"]
    short = [replace(member("a"), member_id=member_id) for member_id in ("x", "y")]
    assert names(*short) == ["a@host#x", "a@host#y"]


def test_a_static_member_that_restarted_keeps_its_name() -> None:
    before, after = (member("a", instance_id="query-1", run=run) for run in (1111, 2222))
    assert set(member_names(view(before), view(after)).values()) == {"a/query-1@host"}


def test_nobody_has_the_name_that_is_given_for_nobody() -> None:
    assert name_in({}, None, "nobody") == "nobody"
    assert name_in({}, member("a"), "nobody") == "a@host", "one that is in no group keeps its own"
