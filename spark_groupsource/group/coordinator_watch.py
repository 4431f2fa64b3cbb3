"""Compares this member's partitions with the coordinator's view, and makes the member rejoin if they differ for too long.

The comparison runs on its own thread, because the coordinator may take a long time to answer. A child process sends the requests
(brokers/group_admin_process.py). It starts with the first request, so a query that runs for less than half a minute never needs
it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from spark_groupsource.brokers.group_admin_process import GroupAdminProcess
from spark_groupsource.brokers.group_view import GroupMember
from spark_groupsource.errors import GroupKafkaError
from spark_groupsource.group.member import LOOK_AT_MEMBER_EVERY_S, Assignment, Member, State
from spark_groupsource.partition import TopicPartition, listed

log = logging.getLogger(__name__)

COMPARE_EVERY_S = 30.0
"""How often to ask the coordinator for this member's assignment. With `DISAGREES_S`, a difference is found within a minute."""

COMPARE_AGAIN_S = 5.0
"""How often to ask the coordinator while it disagrees with the member. Also the pause after a request that timed out, so that
librdkafka can reconnect first."""

_OVER = frozenset({State.LEAVING, State.LEFT, State.FAILED})


DISAGREES_S = 20.0
"""How long the coordinator and a member may disagree about the member's partitions. The member's next heartbeat should resolve
the disagreement, and brokers require one at least every 15 s (`group.consumer.max.heartbeat.interval.ms`)."""


def surplus(own: Assignment, member: GroupMember) -> frozenset[TopicPartition]:
    """Return the partitions that the member has but should give back: the revocation was lost or is still on its way."""
    return own.partitions - (member.target or frozenset())


def missing(own: Assignment, member: GroupMember) -> frozenset[TopicPartition]:
    """Return the partitions that the member should have but does not: the assignment was lost or is still on its way."""
    return (member.partitions & (member.target or frozenset())) - own.partitions


@dataclass(frozen=True)
class Disagreement:
    """The partitions about which the coordinator and this member disagree, and since when. `after` returns an updated copy.

    Under KIP-848 the coordinator tells a member only once, in a heartbeat response, which partitions to give back or take. If
    that response is lost, librdkafka does not ask again (docs/design.md), and the two disagree until the member is expelled.

    A rebalance in progress does not count as a disagreement. A partition that the member should have is both assigned to it and
    in its target, so no other member has to release it first. A partition that it should give back is released as soon as the
    member is told. So the two differ only while a response is on its way, or while this member drains.
    """

    since: Mapping[TopicPartition, float] = field(default_factory=lambda: MappingProxyType({}))
    """When the coordinator and the member were first seen to disagree about each partition."""
    mended: int = 0
    """How many times in a row the member has rejoined because of this disagreement. Each rejoin doubles `patience_s`."""

    @property
    def patience_s(self) -> float:
        """How many seconds the disagreement must last before the member rejoins."""
        return DISAGREES_S * float(2**self.mended)

    def after(self, own: Assignment, member: GroupMember | None, now: float) -> Disagreement:
        """Return the disagreement, updated with a new answer from the coordinator.

        Args:
            own: this member's assignment, which did not change between the request and the answer.
            member: this member as the coordinator describes it. `None` if it is not in the group, which librdkafka detects on
                its own.
            now: the time on a monotonic clock, in seconds.
        """
        if member is None or member.target is None or own.draining:
            return Disagreement(mended=self.mended)
        differing = surplus(own, member) | missing(own, member)
        if not differing:
            return Disagreement()
        first_seen = {partition: self.since.get(partition, now) for partition in differing}
        return Disagreement(MappingProxyType(first_seen), self.mended)

    def lasting(self, now: float) -> frozenset[TopicPartition]:
        """Return the partitions that have been in dispute for at least `patience_s`."""
        return frozenset(partition for partition, first_seen in self.since.items() if now - first_seen >= self.patience_s)

    def mend(self) -> Disagreement:
        """Return the disagreement to start from when the member rejoins: no partitions, and double the `patience_s`."""
        return Disagreement(mended=self.mended + 1)


def watch(member: Member, group_id: str, coordinator: GroupAdminProcess) -> None:
    """Start a thread that compares the member's partitions with the coordinator's view until the member leaves the group."""
    comparing = CoordinatorWatch(member, group_id, coordinator)
    threading.Thread(target=comparing.run, name="groupkafka-compare", daemon=True).start()


class CoordinatorWatch:
    """Compares one member's partitions with its coordinator's view. Used only by the comparing thread."""

    def __init__(
        self,
        member: Member,
        group_id: str,
        coordinator: GroupAdminProcess,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Start with no disagreement, without sending a request.

        Args:
            member: the member.
            group_id: the member's group.
            coordinator: asks the coordinator for the member's assignment.
            clock: returns monotonic time in seconds.
            sleep: waits for a number of seconds.
        """
        self._member = member
        self._group_id = group_id
        self._coordinator = coordinator
        self._clock = clock
        self._sleep = sleep
        self._disagreement = Disagreement()
        self._trouble = ""

    def run(self) -> None:
        """Compare repeatedly until the member leaves the group."""
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
                self._sleep(LOOK_AT_MEMBER_EVERY_S)
        except Exception:
            log.exception("comparing this driver's assignment with the coordinator's failed with an unexpected error")
        finally:
            self._coordinator.close()

    def compare(self) -> None:
        """Compare once, and make the member rejoin if the disagreement has lasted too long."""
        own = self._member.assignment
        member = self._described(own)
        if self._member.assignment != own:
            member = None
        now = self._clock()
        self._disagreement = self._disagreement.after(own, member, now)
        if member is not None and (lasting := self._disagreement.lasting(now)):
            began = min(self._disagreement.since[partition] for partition in lasting)
            self._disagreement = self._disagreement.mend()
            self._member.rejoin(own, rejoin_reason(surplus(own, member) & lasting, missing(own, member) & lasting, now - began))

    def _described(self, own: Assignment) -> GroupMember | None:
        """Return this member as the coordinator describes it, or `None` if no comparison is possible now."""
        if not own.member_id or own.draining or self._member.state is not State.MEMBER:
            return None
        try:
            member = self._coordinator.member(self._group_id, own.member_id)
        except GroupKafkaError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                log.info("failed to ask the coordinator for this driver's assignment, will retry: %s", error)
            return None
        self._trouble = ""
        return member


def rejoin_reason(too_many: frozenset[TopicPartition], too_few: frozenset[TopicPartition], seconds: float) -> str:
    """Return a log message that explains why a member rejoins.

    Args:
        too_many: partitions that the member has but should give back.
        too_few: partitions that are assigned to the member but that it does not have.
        seconds: how long the member and the coordinator have disagreed.
    """
    differences = []
    if too_many:
        differences.append(f"this driver has had {listed(sorted(too_many), 20)}, which is assigned to other members")
    if too_few:
        differences.append(f"this driver has been missing {listed(sorted(too_few), 20)}, which is assigned to it")
    return (
        f"for {seconds:.0f} s {', and '.join(differences)}: a response from the coordinator was lost, and librdkafka does not "
        "ask again. This driver will leave the group and rejoin it. Its claims remain in the group"
    )
