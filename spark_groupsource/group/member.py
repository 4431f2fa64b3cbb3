"""Runs this driver's group member, on the only thread that uses the consumer.

librdkafka's consumer serves one caller at a time, and a callback that waits for another thread's commit waits forever. So one
thread does everything: it polls, and it runs other threads' commands between polls. While it waits in `on_revoke`, it runs them
inside the callback. The consumer never fetches a record: its own assignment stays empty (`incremental_assign([])`), and this
module keeps track of the partitions that the group has assigned.

The handoff package describes the life of a partition. This module implements the callbacks: `on_assign` acquires partitions,
`on_revoke` drains and releases them, and `on_lost` forgets them. A member that rejoins (`rejoin`) first drains and releases
everything.
"""

from __future__ import annotations

import logging
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from queue import Empty
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from spark_groupsource.brokers.broker_errors import MEMBER_ERRORS, cause_of, ends_member, explain
from spark_groupsource.brokers.client import TimeoutsNoticed, librdkafka_log, make_client
from spark_groupsource.brokers.login_trouble import is_refused
from spark_groupsource.errors import GroupKafkaError, MembershipClosed, MembershipError
from spark_groupsource.group.ledger import Ledger
from spark_groupsource.group.threads import Commands
from spark_groupsource.observer import UNOBSERVED, Observer
from spark_groupsource.partition import TopicPartition
from spark_groupsource.patience import Deadline
from spark_groupsource.timeouts import JOIN_INTERVAL_S, LEAVE_S

log = logging.getLogger(__name__)

TROUBLE_INTERVAL_S = 30.0
"""How often the same broker error is logged while it persists."""

POLL_INTERVAL_S = 0.05
"""The longest time between two polls if no command arrives. Commands are served immediately."""

LOOK_AT_MEMBER_EVERY_S = 0.5
"""How often waiting threads check whether the member has left or failed, or whether librdkafka has logged a request timeout."""

CALLBACK_AFTER_S = 2.0
"""KIP-848: how long a new member that has its epoch waits for the callback with its partitions."""

T = TypeVar("T")

EAGER_STRATEGIES = frozenset({"range", "roundrobin"})

_METADATA_MAGIC = b"CGMDv2:"


class State(Enum):
    """The stages of a member's life."""

    NEW = "new"
    JOINING = "joining"
    MEMBER = "member"
    DRAINING = "draining"
    LEAVING = "leaving"
    LEFT = "left"
    FAILED = "failed"


PREDECESSORS: Mapping[State, frozenset[State]] = {
    State.NEW: frozenset(),
    State.JOINING: frozenset({State.NEW, State.MEMBER, State.JOINING}),
    State.MEMBER: frozenset({State.JOINING, State.MEMBER, State.DRAINING}),
    State.DRAINING: frozenset({State.JOINING, State.MEMBER}),
    State.LEAVING: frozenset({State.NEW, State.JOINING, State.MEMBER, State.DRAINING}),
    State.LEFT: frozenset({State.LEAVING}),
    State.FAILED: frozenset({State.LEAVING}),
}
"""The states that each state may follow. A member goes from MEMBER back to JOINING when it loses partitions or has to rejoin
(`rejoin`). It may still have other partitions, such as those of topics that still exist, and must release them as it rejoins."""


@dataclass(frozen=True)
class Assignment:
    """A member's partitions, generation and id at one moment. Immutable: every change creates a new `Assignment`."""

    partitions: frozenset[TopicPartition] = frozenset()
    """Every partition that this member has, including the draining ones."""
    draining: frozenset[TopicPartition] = frozenset()
    """The partitions that the group has revoked but this member has not released yet."""
    generation: int = -1
    """The generation (classic) or the member epoch (KIP-848); -1 before the first assignment."""
    member_id: str = ""
    """The member's id in the group; empty before the first assignment."""


class Member:
    """Joins a group, follows its rebalances, and leaves it. `call`, `close` and the properties may be used from any thread."""

    def __init__(
        self,
        consumer_settings: Mapping[str, str],
        subscription: list[str],
        *,
        drain_timeout_s: float,
        observer: Observer = UNOBSERVED,
    ) -> None:
        """Create the consumer. Nothing is sent to the group before `start`.

        Args:
            consumer_settings: librdkafka settings of a group member.
            subscription: topic names, or one pattern that starts with `^`.
            drain_timeout_s: how many seconds `on_revoke` waits for ranges in flight.
            observer: receives this member's assignments and rebalances.

        Raises:
            OptionError, AuthenticationFailed: see brokers.client.make_client.
        """
        strategies = consumer_settings.get("partition.assignment.strategy", "")
        self._eager = strategies.split(",")[0] in EAGER_STRATEGIES
        self._incremental_epochs = consumer_settings.get("group.protocol") == "consumer"
        self._group_id = consumer_settings["group.id"]
        self._subscription = subscription
        self._drain_timeout_s = drain_timeout_s
        self._observer = observer
        self._commands = Commands()
        # Replaced on the consumer's thread, never modified. Any thread may read these.
        self.assignment = Assignment()
        self.state = State.NEW
        self.failure: GroupKafkaError | None = None
        """The error with which the member failed, if any. Every later `call` raises this error immediately."""
        self.ended_by: int | None = None
        """The code of the broker or librdkafka error that made the member fail, if any."""
        self.last_trouble: KafkaError | None = None
        """The last error that librdkafka reported. It is the likely reason if no assignment arrives."""
        self.timeouts = 0
        """How many times librdkafka has logged that requests timed out. Their answers may be lost."""
        self._closing = False
        self._silent_until = 0.0
        self._has_joined = False
        self._rejoin_from: tuple[Assignment, str] | None = None
        """The assignment for which a rejoin was requested, and the reason. Another thread sets it."""
        self._has_drained = False
        """Whether this member has drained everything and is leaving in order to rejoin."""
        self._callback_due: Deadline | None = None
        self._ledger: Ledger
        self.consumer = make_client(
            Consumer, consumer_settings, self._on_error, TimeoutsNoticed(librdkafka_log, self._note_timeout)
        )
        self._thread = threading.Thread(target=self._run, name=f"groupkafka-{self._group_id}", daemon=True)

    # Called from any thread.

    def start(self, ledger: Ledger) -> None:
        """Start joining the group, and return without waiting. The consumer's thread calls `ledger` on every change."""
        self._ledger = ledger
        self._thread.start()

    def wait_joined(self, timeout_s: float) -> bool:
        """Wait for the group's first assignment to this member, which may be empty.

        Returns:
            False if `timeout_s` seconds have passed without an assignment.

        Raises:
            GroupKafkaError: the member failed before it got an assignment.
        """
        for _ in Deadline(timeout_s).attempts(JOIN_INTERVAL_S):
            # Read this before checking for a failure: a member that fails is marked as joined afterwards, and would
            # seem to have joined.
            joined = self._has_joined
            self._raise_failure()
            if joined:
                return True
        return False

    def call(self, run: Callable[[], T]) -> T:
        """Run a function on the consumer's thread, and return its result. No group callback runs during the call.

        Raises:
            MembershipClosed: the member has left the group.
            Exception: the exception that `run` raised, or the error with which the member failed.
        """
        self._raise_failure()
        reply = self._commands.put(run)
        while True:
            try:
                succeeded, value = reply.get(timeout=LOOK_AT_MEMBER_EVERY_S)
            except Empty:
                self._raise_failure()
                if self._thread.is_alive():
                    continue
                raise self._left() from None
            if not succeeded:
                raise value
            result: T = value
            return result

    def rejoin(self, seen: Assignment, reason: str) -> None:
        """Make the member leave the group and rejoin it, without waiting for either.

        The request is dropped if the member's assignment has changed since `seen`. The member drains as if the group had revoked
        everything. Claims that are still open after that stay in the group's record.

        Args:
            seen: the assignment that led to this request.
            reason: how the member and the coordinator disagree, for the log.
        """
        self._rejoin_from = (seen, reason)

    def close(self, timeout_s: float = LEAVE_S) -> None:
        """Leave the group and stop the thread, waiting at most `timeout_s` seconds for both.

        A static member stays in the group until its session times out. Safe to call in a signal handler, and more than once.
        """
        self._closing = True
        self._commands.wake()
        if threading.current_thread() is self._thread:
            return
        # Do not use `Thread.join` here. Spark may send SIGTERM twice, and the second signal may interrupt the first one's join
        # while that holds the thread's lock. A join in the second handler would then wait for its own thread until the timeout.
        for _ in Deadline(timeout_s).attempts(JOIN_INTERVAL_S):
            if self.state in {State.LEFT, State.FAILED} or not self._thread.is_alive():
                return

    def _raise_failure(self) -> None:
        """Raise the error with which the member failed, if any."""
        if self.failure is not None:
            raise self.failure

    def _left(self) -> MembershipClosed:
        """Return the error for a call after the member has left the group."""
        return MembershipClosed(f"This driver has left the group {self._group_id}.")

    # Everything below runs on the consumer's thread.

    def _move(self, state: State) -> None:
        """Change the state. Raise an error if the current state does not allow it."""
        if self.state not in PREDECESSORS[state]:
            raise MembershipError(f"A member cannot go from {self.state.value} to {state.value}. Please report this as a bug.")
        self.state = state

    def _run(self) -> None:
        """Poll and serve commands until the member closes or fails, then leave the group."""
        try:
            self._move(State.JOINING)
            self._subscribe()
            while not self._closing and self.failure is None:
                # There are no commands until the first assignment. It arrives in a callback inside `poll`, and `poll` does not
                # return just because it has served a callback.
                self._commands.serve(POLL_INTERVAL_S if self._has_joined else 0)
                self._poll(0 if self._has_joined else JOIN_INTERVAL_S)
                self._read_epoch()
                self._rejoin_if_asked()
                self._ledger.idle()
        except GroupKafkaError as error:
            self._fail(error)
        except KafkaException as error:
            self._fail(self._explained(error.args[0]))
        except Exception as error:  # noqa: BLE001 -- the query must be told about every error that stops this thread
            self._fail(MembershipError(f"The member of group {self._group_id} failed with an unexpected error: {error!r}"))
        finally:
            self._leave()

    def _subscribe(self) -> None:
        """Subscribe to the topics with this member's callbacks. This makes librdkafka join the group."""
        self.consumer.subscribe(self._subscription, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)

    def _rejoin_if_asked(self) -> None:
        """Drain everything and rejoin the group, if `rejoin` was called for the current assignment."""
        request, self._rejoin_from = self._rejoin_from, None
        if request is None or request[0] != self.assignment or self.state is not State.MEMBER:
            return
        log.warning("the coordinator and this driver disagree: %s", request[1])
        # 1. Drain first. A leaving member sends no heartbeats, so a drain in `on_revoke` could outlast its session.
        self._drain(self.assignment.partitions)
        if self._closing or self.failure is not None:
            return
        # 2. Leave and rejoin. librdkafka does so once `on_revoke` has been served, which does not drain a second time.
        self._has_drained = True
        self._move(State.JOINING)
        self.consumer.unsubscribe()
        self._subscribe()

    def _leave(self) -> None:
        """Leave the group, and answer all commands that are still queued with an error."""
        self._closing = True
        self._move(State.LEAVING)
        try:
            self.consumer.close()
        except (KafkaException, RuntimeError) as error:
            log.warning("failed to leave the group, so its partitions will not move until the session times out: %s", error)
        self._assign(Assignment())
        self._move(State.LEFT if self.failure is None else State.FAILED)
        self._has_joined = True
        self._commands.refuse(self.failure or self._left())

    def _explained(self, error: KafkaError) -> GroupKafkaError:
        """Convert a librdkafka error to one of this package's errors, and store its code in `ended_by`."""
        self.ended_by = cause_of(error).code()
        return explain(error, f"as a member of group {self._group_id}", MEMBER_ERRORS)

    def _fail(self, error: GroupKafkaError) -> None:
        """Make the member fail with this error, unless it has already failed with an earlier one."""
        if self.failure is None:
            self.failure = error
            if self._has_joined:  # the query gets the error only with its next call, perhaps as late as its next trigger
                log.error("this driver is no longer a member of the group: %s", error)

    def _poll(self, timeout_s: float) -> None:
        """Poll once, which runs librdkafka's callbacks. Raise errors that make the member fail, and record all others."""
        message = self.consumer.poll(timeout_s)
        if message is None:
            return
        error = message.error()
        if error is None:
            raise MembershipError("The group's consumer fetched a record, which it must never do. Please report this as a bug.")
        if error.code() == KafkaError._MAX_POLL_EXCEEDED:
            log.warning("this driver was paused for longer than kafka.max.poll.interval.ms; rejoining the group")
        elif ends_member(error, has_joined=self._has_joined):
            raise self._explained(error)
        else:
            self._on_error(error)

    def _note_timeout(self) -> None:
        """Count a librdkafka log line about requests that timed out. Called by librdkafka's log callback."""
        self.timeouts += 1

    def _on_error(self, error: KafkaError) -> None:
        """Handle an error from librdkafka's error callback. librdkafka recovers from these on its own, unless they are fatal."""
        repeated = self.last_trouble is not None and self.last_trouble.code() == error.code()
        self.last_trouble = error
        if error.fatal() or error.code() == KafkaError._FATAL or (is_refused(error) and not self._has_joined):
            self._fail(self._explained(error))
        elif not repeated or time.monotonic() >= self._silent_until:
            self._silent_until = time.monotonic() + TROUBLE_INTERVAL_S
            log.warning("the Kafka client reports: %s", error.str())

    def _read_epoch(self) -> None:
        """Update the KIP-848 member epoch, which rises without a callback and reaches callbacks too late.

        An empty first assignment has no callback either, so this method also detects when a member without partitions has joined.
        """
        if not self._incremental_epochs or self._closing:
            return
        if self.state is State.MEMBER:
            generation = generation_of(self.consumer)
            if generation != self.assignment.generation:
                self._publish(self.assignment.partitions, generation=generation)
        elif self.state is State.JOINING:
            generation = generation_of(self.consumer)
            if generation <= 0:
                self._callback_due = None
            elif self._callback_due is None:
                self._callback_due = Deadline(CALLBACK_AFTER_S)
            elif self._callback_due.over:
                self._joined_with(frozenset(), generation)

    def _joined_with(self, gained: frozenset[TopicPartition], generation: int) -> None:
        """Record that the group has assigned these partitions, and start adopting them."""
        self._callback_due = None
        self._has_drained = False
        self._move(State.MEMBER)
        self._publish(self.assignment.partitions | gained, generation=generation)
        self._observer.rebalanced("assigned")
        self._guarded(lambda: self._ledger.acquired(gained))
        self._has_joined = True

    def _publish(
        self,
        partitions: Iterable[TopicPartition],
        *,
        draining: Iterable[TopicPartition] = (),
        generation: int | None = None,
    ) -> None:
        """Replace the assignment that other threads read, and log what has changed."""
        previous = self.assignment
        current = Assignment(
            frozenset(partitions),
            frozenset(draining),
            previous.generation if generation is None else generation,
            previous.member_id if self._closing else self.consumer.memberid() or "",
        )
        self._assign(current)
        log.info(
            "generation %d: gained [%s] lost [%s] kept [%s]%s",
            current.generation,
            _listed(current.partitions - previous.partitions),
            _listed(previous.partitions - current.partitions),
            _listed(current.partitions & previous.partitions),
            f" draining [{_listed(current.draining)}]" if current.draining else "",
        )

    def _assign(self, assignment: Assignment) -> None:
        """Replace the assignment, and report it to the observer."""
        self.assignment = assignment
        self._observer.assigned(assignment.partitions, assignment.draining, assignment.generation, assignment.member_id)

    def _on_assign(self, consumer: Consumer, assigned: list[KafkaTopicPartition]) -> None:
        """Acquire the partitions that the group has assigned (librdkafka callback)."""
        gained = _plain(assigned)
        if self._eager:
            consumer.assign([])
        else:
            consumer.incremental_assign([])
        if self._closing:
            return
        self._joined_with(gained, generation_of(consumer))

    def _on_revoke(self, consumer: Consumer, revoked: list[KafkaTopicPartition]) -> None:
        """Drain and release the partitions that the group has revoked (librdkafka callback)."""
        partitions = _plain(revoked)
        self._observer.rebalanced("revoked")
        # 1. Close claims whose micro-batches finish in time. This member still owns the partitions, so its commits are accepted.
        self._guarded(lambda: self._drain(partitions))
        self._guarded(lambda: self._ledger.released(partitions))
        # 2. librdkafka gives the partitions back. The next owner may adopt them from now on, so nothing more is written for them.
        self._unassign(consumer)
        # 3. Let other threads see that the partitions are gone.
        if not self._closing:
            self._publish(self.assignment.partitions - partitions)

    def _unassign(self, consumer: Consumer) -> None:
        """Let librdkafka give back a callback's partitions. The list is empty because librdkafka's own assignment is empty."""
        if self._eager:
            consumer.unassign()
        else:
            consumer.incremental_unassign([])

    def _drain(self, partitions: frozenset[TopicPartition]) -> None:
        """Wait until no range in these partitions is in flight, but no longer than the drain timeout."""
        self._ledger.draining(partitions)
        if self._closing or self._has_drained or not self._ledger.in_flight(partitions):
            return
        self._move(State.DRAINING)
        self._publish(self.assignment.partitions, draining=partitions)
        began = time.monotonic()
        deadline = Deadline(self._drain_timeout_s)
        while not self._closing and self._ledger.in_flight(partitions):
            if deadline.over:
                log.warning(
                    "releasing [%s] with ranges still in flight, because handoff.drainTimeout has expired. This stream keeps its "
                    "claims",
                    _listed(partitions),
                )
                break
            # The query confirms the micro-batch in flight through commands. If these waited for this callback to return, both
            # would be stuck.
            self._commands.serve(min(deadline.left, POLL_INTERVAL_S))
            self._guarded(self._ledger.idle)
            if self.failure is not None:
                break
        self._observer.drained(time.monotonic() - began, in_time=self._closing or not self._ledger.in_flight(partitions))
        self._move(State.MEMBER)

    def _on_lost(self, consumer: Consumer, lost: list[KafkaTopicPartition]) -> None:
        """Forget partitions that another member may already own (librdkafka callback)."""
        partitions = _plain(lost)
        self._observer.rebalanced("lost")
        log.warning(
            "lost [%s]: either the group has removed this driver, which will rejoin, or the topics were deleted. Claims on these "
            "partitions remain in the group",
            _listed(partitions),
        )
        # Commit nothing more, because another member may own the partitions by now, and will hold this stream's open claims.
        self._guarded(lambda: self._ledger.lost(partitions))
        self._unassign(consumer)
        if not self._closing:
            self._move(State.JOINING)
            self._publish(self.assignment.partitions - partitions)

    def _guarded(self, step: Callable[[], None]) -> None:
        """Run one step of a callback. If it raises an error, make the member fail, because librdkafka would start fetching."""
        try:
            step()
        except GroupKafkaError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001
            self._fail(MembershipError(f"A callback of group {self._group_id} failed with an unexpected error: {error!r}"))


def _plain(partitions: Iterable[KafkaTopicPartition]) -> frozenset[TopicPartition]:
    """Return librdkafka's partitions as `TopicPartition` values."""
    return frozenset(TopicPartition(partition.topic, partition.partition) for partition in partitions)


def _listed(partitions: Iterable[TopicPartition]) -> str:
    """Return the partitions as text for a log line."""
    return " ".join(str(partition) for partition in sorted(partitions))


def generation_of(consumer: Consumer) -> int:
    """Return the consumer's generation (classic) or member epoch (KIP-848); -1 outside a group.

    librdkafka has no public getter, but its serialized ConsumerGroupMetadata has the number, in native byte order.

    Raises:
        MembershipError: this version of librdkafka serializes the metadata differently.
    """
    serialized = consumer.consumer_group_metadata()
    if not isinstance(serialized, bytes) or not serialized.startswith(_METADATA_MAGIC):
        raise MembershipError(
            "This version of confluent-kafka does not expose the group's generation. Install a version listed in docs/running.md."
        )
    generation: int = struct.unpack_from("=i", serialized, len(_METADATA_MAGIC))[0]
    return generation
