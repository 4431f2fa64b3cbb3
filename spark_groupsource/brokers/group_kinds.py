"""The kinds of groups that are no consumer groups, by what a coordinator and librdkafka show of them. Pure.

A group of each kind has the name for itself: nobody else can join it. librdkafka describes consumer groups only. It names the
protocol type of other classic groups in an error. For a share group (KIP-932) and a streams group (KIP-1071) it says the same as
for a group that does not exist. Only the list of all groups has their names, without their kind. A share group has no committed
offsets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from spark_groupsource.errors import NotAConsumerGroup

_OTHER_TYPE = re.compile(r"is not a consumer group \((.*)\)", re.DOTALL)

KNOWN_TYPES: Mapping[str, str] = {
    "connect": "the workers of a Kafka Connect cluster are its members",
    "sr": "the instances of a Schema Registry are its members",
}
"""What the classic groups of some protocol types are for."""

_INSTEAD = "Set kafka.group.id to a name that no other kind of group has."


def other_protocol_type(refusal: str) -> str | None:
    """Return the protocol type of a classic group that librdkafka refuses to describe; `None` if it refuses something else."""
    found = _OTHER_TYPE.search(refusal)
    return None if found is None else found[1]


def of_other_type(group: str, protocol_type: str) -> NotAConsumerGroup:
    """Return the error for a classic group with another protocol type than a consumer's."""
    whose = KNOWN_TYPES.get(protocol_type, "its members are no consumers")
    return NotAConsumerGroup(
        f"The group {group!r} is a classic group of the protocol type {protocol_type!r}: {whose}. {_INSTEAD}"
    )


def of_new_kind(group: str, *, has_offsets: bool) -> NotAConsumerGroup:
    """Return the error for a group that is neither classic nor a consumer group of KIP-848.

    Args:
        group: The group.
        has_offsets: Whether it has committed offsets.
    """
    if has_offsets:
        return NotAConsumerGroup(
            f"The group {group!r} is a streams group (KIP-1071), of a Kafka Streams application: its offsets are that "
            f"application's. {_INSTEAD} Kafka's own kafka-streams-groups.sh shows the group."
        )
    return NotAConsumerGroup(
        f"The group {group!r} is a share group (KIP-932), or a streams group (KIP-1071) that has not committed anything: queries "
        f"are members of consumer groups. {_INSTEAD} Kafka's own kafka-groups.sh --list shows which kind it is."
    )
