"""Compares what the coordinator has assigned to this member with what it has, and has it join again if they differ for long.

A thread of its own asks, because a coordinator may not answer for a long time. The question is asked in a child process
(brokers/group_admin_process.py), which is started when it is first asked: a query that runs for less than half a minute does
without it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from spark_groupsource.brokers.group_view import GroupMember
from spark_groupsource.errors import GroupKafkaError
from spark_groupsource.group.assignment import Assignment
from spark_groupsource.group.member import Member, State
from spark_groupsource.partition import TopicPartition, listed

log = logging.getLogger(__name__)

COMPARE_EVERY_S = 30.0
"""How often the coordinator is asked what it has assigned to this member. With `DISAGREES_S` that is less than a minute."""

COMPARE_AGAIN_S = 5.0
"""The same while the two disagree, and the wait after a request that timed out: librdkafka first connects again."""

WATCH_STEP_S = 0.5
"""How often the thread that asks looks whether the member has left, or a request has timed out."""

_OVER = frozenset({State.LEAVING, State.LEFT, State.FAILED})


DISAGREES_S = 20.0
"""How long the coordinator and a member may disagree about its partitions. Its next heartbeat should end that, and brokers want
one at least every 15 s (`group.consumer.max.heartbeat.interval.ms`)."""


def kept(own: Assignment, member: GroupMember) -> frozenset[TopicPartition]:
    """Return what the member has and is not to have: a revocation was forgotten, or is under way."""
    return own.partitions - (member.target or frozenset())


def missing(own: Assignment, member: GroupMember) -> frozenset[TopicPartition]:
    """Return what is assigned to the member and stays so, and it does not have: a gain was forgotten, or is under way."""
    return (member.partitions & (member.target or frozenset())) - own.partitions


@dataclass(frozen=True)
class Disagreement:
    """In which partitions the coordinator and this member disagree, and since when. Never edited: `after` returns the next.

    Under KIP-848 the coordinator says only once, in the answer to a heartbeat, which partitions a member has to give back or may
    take. If that answer is lost, librdkafka does not ask again (docs/design.md), and the two disagree until the member is
    expelled.

    A rebalance that goes on is no disagreement. What is assigned to a member and stays so is what it may have: nothing that
    another member has to give back first. What it has and is not to have, it gives back when it learns of that. So the two differ
    only while an answer is under way, or while this member drains.
    """

    since: Mapping[TopicPartition, float] = field(default_factory=lambda: MappingProxyType({}))
    """When each of these partitions was first found with one of the two and not with the other."""
    mended: int = 0
    """How often the member has joined again for it. Each time in a row takes twice the patience, if that does not help."""

    @property
    def patience_s(self) -> float:
        """How long the two have to disagree before the member joins again."""
        return DISAGREES_S * float(2**self.mended)

    def after(self, own: Assignment, member: GroupMember | None, now: float) -> Disagreement:
        """Return what is known after one more answer of the coordinator.

        Args:
            own: what this member has, before the question and after the answer alike.
            member: this member by the coordinator's word. `None` if the group does not have it, which librdkafka notices by
                itself.
            now: seconds, monotonic.
        """
        if member is None or member.target is None or own.draining:
            return Disagreement(mended=self.mended)
        differing = kept(own, member) | missing(own, member)
        if not differing:
            return Disagreement()
        since = {partition: self.since.get(partition, now) for partition in differing}
        return Disagreement(MappingProxyType(since), self.mended)

    def lasting(self, now: float) -> frozenset[TopicPartition]:
        """Return the partitions in which the two have disagreed for longer than a rebalance may take."""
        return frozenset(partition for partition, since in self.since.items() if now - since >= self.patience_s)

    def mend(self) -> Disagreement:
        """Return what is known when the member joins again for it."""
        return Disagreement(mended=self.mended + 1)


class Coordinator(Protocol):
    """Asks the coordinator (`group_admin_process.GroupAdminProcess`). One thread uses it."""

    def member(self, group: str, member_id: str) -> GroupMember | None:
        """Return the member with what the coordinator has assigned to it. Raises GroupKafkaError."""

    def close(self) -> None:
        """Give up what the question needs."""


def watch(member: Member, group_id: str, coordinator: Coordinator) -> None:
    """Compare the two until the member leaves the group, on a thread of its own; return at once."""
    comparing = CoordinatorWatch(member, group_id, coordinator)
    threading.Thread(target=comparing.run, name="groupkafka-compare", daemon=True).start()


class CoordinatorWatch:
    """The comparison of one membership. Used by its thread alone."""

    def __init__(
        self,
        member: Member,
        group_id: str,
        coordinator: Coordinator,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Begin without a difference. Nothing is asked yet.

        Args:
            member: the member.
            group_id: its group.
            coordinator: asks for what is assigned to it.
            clock: returns seconds, monotonic.
            sleep: waits for so many seconds.
        """
        self._member = member
        self._group_id = group_id
        self._coordinator = coordinator
        self._clock = clock
        self._sleep = sleep
        self._disagreement = Disagreement()
        self._trouble = ""

    def run(self) -> None:
        """Compare until the member leaves."""
        try:
            due_at = self._clock() + COMPARE_EVERY_S
            timeouts = self._member.timeouts
            while self._member.state not in _OVER:
                if self._member.timeouts != timeouts:
                    timeouts = self._member.timeouts
                    due_at = min(due_at, self._clock() + COMPARE_AGAIN_S)
                if self._clock() >= due_at:
                    self.compare()
                    due_at = self._clock() + (COMPARE_AGAIN_S if self._disagreement.since else COMPARE_EVERY_S)
                self._sleep(WATCH_STEP_S)
        except Exception:
            log.exception("comparing this driver's assignment with the coordinator's ended")
        finally:
            self._coordinator.close()

    def compare(self) -> None:
        """Ask once, and have the member join again if the two have differed for too long."""
        own = self._member.assignment
        member = self._asked(own)
        if self._member.assignment != own:
            member = None
        now = self._clock()
        self._disagreement = self._disagreement.after(own, member, now)
        if member is not None and (lasting := self._disagreement.lasting(now)):
            since = min(self._disagreement.since[partition] for partition in lasting)
            self._disagreement = self._disagreement.mend()
            self._member.rejoin(own, sentence(kept(own, member) & lasting, missing(own, member) & lasting, now - since))

    def _asked(self, own: Assignment) -> GroupMember | None:
        if not own.member_id or own.draining or self._member.state is not State.MEMBER:
            return None
        try:
            member = self._coordinator.member(self._group_id, own.member_id)
        except GroupKafkaError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                log.info("what the coordinator has assigned to this driver is asked later: %s", error)
            return None
        self._trouble = ""
        return member


def sentence(too_many: frozenset[TopicPartition], too_few: frozenset[TopicPartition], seconds: float) -> str:
    """Return why a member joins again.

    Args:
        too_many: partitions that it has and is not to have.
        too_few: partitions that are assigned to it and that it does not have.
        seconds: for how long they have differed.
    """
    differences = []
    if too_many:
        differences.append(f"this driver has {listed(sorted(too_many), 20)}, which is meant for others")
    if too_few:
        differences.append(f"the coordinator has assigned {listed(sorted(too_few), 20)}, which this driver does not have")
    return (
        f"for {seconds:.0f} s {', and '.join(differences)}: an answer of the coordinator was lost, and librdkafka does not ask "
        "again. This driver leaves the group and joins it again; claims that are open stay"
    )
