"""A member's states, and the generation that it reads. What the group does with it is in tests/kafka/group/test_member.py."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import Consumer

from spark_groupsource.errors import MembershipError
from spark_groupsource.group.ledger import Ledger
from spark_groupsource.group.member import PREDECESSORS, Member, State, generation_of


def test_every_state_can_be_reached_and_only_the_first_has_no_predecessor() -> None:
    assert set(PREDECESSORS) == set(State)
    assert [state for state, before in PREDECESSORS.items() if not before] == [State.NEW]
    # A topic is deleted, and the group is balanced anew: its partitions are lost, and others are to be released.
    assert PREDECESSORS[State.DRAINING] == {State.MEMBER, State.JOINING}


class Serialized:
    """A consumer whose metadata of the group are these bytes."""

    def __init__(self, metadata: bytes) -> None:
        self._metadata = metadata

    def consumer_group_metadata(self) -> bytes:
        return self._metadata


def test_a_generation_is_refused_that_librdkafka_serializes_in_another_way() -> None:
    serialized = b"CGMDv2:" + struct.pack("=i", 41) + b"group and member"
    assert generation_of(cast(Consumer, Serialized(serialized))) == 41
    with pytest.raises(MembershipError, match="does not expose the group's generation"):
        generation_of(cast(Consumer, Serialized(b"CGMDv3:" + serialized)))


def test_a_member_is_closed_without_a_join_of_its_thread_which_a_second_signal_would_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
    member = Member(settings, ["orders"], drain_timeout_s=1.0)
    monkeypatch.setattr(member._thread, "join", lambda *_: pytest.fail("a join in a signal handler may wait for its own thread"))
    member.close()
    member.start(cast(Ledger, SimpleNamespace(idle=lambda: None)))
    for _ in range(2):
        member.close(60.0)
        assert member.state is State.LEFT
