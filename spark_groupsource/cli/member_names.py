"""Names of members by which two of them can be told apart, whatever their client ids are. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from spark_groupsource.brokers.group_view import GroupMember, GroupView

SHORTEST = 4
"""Characters of a member id that a name has at least, where names are equal without."""


def member_names(*groups: GroupView) -> dict[str, str]:
    """Return the name of each member by its member id: client id, instance id and host. Not to be printed raw.

    Members that are called the same have the begin of what is their own in the member id, too.

    Args:
        groups: the group, or looks at it that are compared.
    """
    members = {member.member_id: member for group in groups for member in group.members}
    alike: dict[str, list[GroupMember]] = defaultdict(list)
    for member in members.values():
        alike[member.name].append(member)
    names: dict[str, str] = {}
    for name, same in alike.items():
        # A static member that has restarted has another member id, and is the same one.
        if len({identity(member) for member in same}) == 1:
            names |= dict.fromkeys((member.member_id for member in same), name)
        else:
            names |= _told_apart(name, {member.member_id: _own_part(member) for member in same})
    return names


def identity(member: GroupMember | None) -> str | None:
    """Return what a static member keeps when it restarts, its instance id, or else the member id."""
    return None if member is None else member.instance_id or member.member_id


def name_in(names: Mapping[str, str], member: GroupMember | None, nobody: str) -> str:
    """Return the member's name, or the word for nobody."""
    return nobody if member is None else names.get(member.member_id, member.name)


def _own_part(member: GroupMember) -> str:
    """Return the member id without the client id, with which the coordinator of a classic group begins it."""
    return member.member_id.removeprefix(f"{member.client_id}-")


def _told_apart(name: str, parts: Mapping[str, str]) -> dict[str, str]:
    length = _length(parts.values())
    return {member_id: f"{name}#{part[:length]}" for member_id, part in parts.items()}


def _length(parts: Collection[str]) -> int:
    longest = max(len(part) for part in parts)
    enough = (length for length in range(SHORTEST, longest) if len({part[:length] for part in parts}) == len(parts))
    return next(enough, longest)
