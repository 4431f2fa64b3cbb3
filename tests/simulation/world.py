"""The world in which the hand-off is simulated: streams and their checkpoints, sinks, a group, and what can go wrong.

The project's own code decides: `Ledger` with handoff/rules.py, the planner, the offset JSON and the commit record as text. The
coordinator (group.py), Spark (driver.py, one step at a time in Spark's order of calls) and the sink are fake. A history is a list
of actions. Everything that could be scheduled differently is a separate action. So a crash, an expired session or another
member's step may come between any two actions. After each commit, and at the end, the account (account.py) checks what must hold,
and raises `Violation`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

from spark_groupsource.errors import (
    CheckpointBehindGroup,
    CommitOutcomeUnknown,
    CommitRecordUnreadable,
    GenerationChanged,
    MemberUnknown,
)
from spark_groupsource.group.ledger import Ledger
from spark_groupsource.handoff.commit_record import CommitRecord, mark_of
from spark_groupsource.partition import Ranges, TopicPartition
from tests.simulation.account import Account, Violation
from tests.simulation.checkpoint import Checkpoint
from tests.simulation.driver import ON_ITS_OWN, SPARKS_CALLS, Driver
from tests.simulation.group import Group, partition
from tests.simulation.other_client import OtherClient
from tests.simulation.record_text import LONGEST_NAME, metadata_bytes, register_of
from tests.simulation.setting import Setting
from tests.simulation.twins import twin_of
from tests.support.held_survey import HeldSurvey

Action: TypeAlias = tuple[Any, ...]

LETTERS = "ABCD"
FAULTS = frozenset(
    {"crash", "throw out", "let go", "cut", "second", "stop", "move", "reset", "expire", "other joins", "other crashes", "delete"}
    | {"recreate", "restore", "lose commit", "lose answer", "elect"}
)
"""Actions that never happen once a history's faults are over."""


class World:
    """Everything that a history acts on."""

    driver_type: type[Driver] = Driver
    ledger_type: type[Ledger] = Ledger
    survey_type: type[HeldSurvey] = HeldSurvey

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.group = Group(setting.partitions, setting.protocol, setting.fencing)
        self.account = Account(setting.partitions, other_client=setting.other_client)
        self.ends = [0] * setting.partitions
        name_length = LONGEST_NAME if setting.room else 0
        self.streams = {letter: Checkpoint(letter, name_length=name_length) for letter in LETTERS[: setting.streams]}
        self.newer: set[str] = set()
        """Drivers of the next version of this package."""
        self.drivers: dict[str, Driver] = {}
        self.other: OtherClient | None = None
        self.late: list[tuple[str, int, Mapping[TopicPartition, CommitRecord]]] = []
        """Commits on their way whose senders have given up: member, epoch, records."""
        self.logs: list[list[int]] = [[] for _ in range(setting.partitions)]
        """The leader epoch of each record."""
        self.epochs = [0] * setting.partitions
        """The leader epochs of the partitions now."""
        self.recreated = 0
        """How often the topic was deleted and recreated."""
        self.writes = 0
        self.written: dict[str, int] = {}
        """The newest plan of each stream that a record of its own has had."""
        self.refused: list[str] = []
        """Drivers that have failed because their checkpoint is behind the group, or a record is of the next version."""
        self.faults_over = False

    def clone(self) -> World:
        twin = twin_of(self)
        twin.group = self.group.clone()
        twin.account = self.account.clone()
        twin.ends, twin.epochs, twin.logs = list(self.ends), list(self.epochs), [list(log) for log in self.logs]
        twin.streams = {letter: checkpoint.clone() for letter, checkpoint in self.streams.items()}
        twin.drivers = {name: driver.clone(twin) for name, driver in self.drivers.items()}
        twin.other = self.other and self.other.clone(twin)
        twin.late, twin.refused, twin.newer = list(self.late), list(self.refused), set(self.newer)
        twin.written = dict(self.written)
        return twin

    def forget(self) -> None:
        """Free the world if no history continues from it. Its drivers refer to it, and Python frees such cycles late.

        Drivers that have crashed or stopped are left to the garbage collector.
        """
        for driver in self.drivers.values():
            vars(driver).clear()
        self.drivers.clear()

    def partitions(self) -> list[TopicPartition]:
        return [partition(number) for number in range(self.setting.partitions)]

    @property
    def topic_id(self) -> str:
        """The topic's current id."""
        return f"{self.recreated:022}"

    # What can happen next.

    def actions(self) -> tuple[list[Action], list[Action]]:
        """Return the due steps, and the things that may go wrong or come from outside."""
        due: list[Action] = []
        may: list[Action] = []
        for letter, checkpoint in self.streams.items():
            running = self._running(letter)
            if not running:
                due.append(("start", letter))
                may += self._restores_of(letter, checkpoint)
                if self.setting.deletions and checkpoint.named:
                    may.append(("delete", letter))
            elif running == 1 and self.setting.second_drivers:
                may.append(("second", letter))
        for name, driver in self.drivers.items():
            due += driver.due()
            may += [("crash", name), ("stop", name), ("ask", name)]
            may += [("cut", name, how) for how in ("lost", "applied", "late", "split")]
            may += driver.may()
            if driver.draining:
                may.append(("let go", name))
            if driver.stage == "plan":
                may.append(("plan", name, 0))
        self._actions_of_group(due, may)
        if self.setting.other_client:
            self._actions_of_other_client(due, may)
        return due, may

    def _restores_of(self, letter: str, checkpoint: Checkpoint) -> list[Action]:
        if not self.setting.restores:
            return []
        without_plan = [("restore", letter)] if self.known_to_the_group(checkpoint) else []
        return [*without_plan, *([("lose commit", letter)] if self.shown_as_done(checkpoint) else [])]

    def _actions_of_group(self, due: list[Action], may: list[Action]) -> None:
        alive = self._alive()
        for member in self.group.epochs:
            (may if member in alive else due).append(("throw out", member))
            for number, target in enumerate(self.group.target):
                if target != member:
                    (due if target is None else may).append(("move", number, member))
        may += [("append", number) for number, end in enumerate(self.ends) if end < self.setting.records]
        if sum(self.epochs) < self.setting.falls:
            may += [
                ("elect", number, to) for number, end in enumerate(self.ends) for to in sorted({end, end // 2, max(0, end - 1)})
            ]
        may += [("arrive", index) for index in range(len(self.late))]
        if self.setting.upgrades:
            may += [("upgrade", letter) for letter, checkpoint in self.streams.items() if not checkpoint.newer]
        if self.setting.recreations and self.recreated < 2:
            may += [("recreate", 0), ("recreate", 1)]
        if self.setting.expiry and not self.drivers and not self.group.epochs and any(self.group.registers):
            may.append(("expire",))

    def _actions_of_other_client(self, due: list[Action], may: list[Action]) -> None:
        if self.other is not None:
            due += self.other.due()
            may += [("other leaves",), ("other crashes",)]
            return
        may.append(("other joins",))
        if not self.group.epochs:
            may += [("reset", number, to) for number in range(self.setting.partitions) for to in (0, self.ends[number])]

    def _running(self, letter: str) -> int:
        return sum(driver.letter == letter for driver in self.drivers.values())

    def _alive(self) -> set[str | None]:
        return {driver.member for driver in self.drivers.values()} | ({self.other.member} if self.other else set())

    # The actions.

    def apply(self, action: Action) -> bool:
        """Do an action if it is possible now. Return whether it had an effect that others may wait for."""
        kind, *arguments = action
        if self.faults_over and kind in FAULTS and not self._harmless(kind, arguments):
            return False
        step = f"do_{kind.replace(' ', '_')}"
        if hasattr(Driver, step):
            driver = self.drivers.get(arguments[0])
            if driver is None or (kind in SPARKS_CALLS and kind != driver.stage):
                return False
            if driver.away and kind not in ON_ITS_OWN | {"join anew", "crash", "stop"}:
                return False
            return self._guarded(driver, getattr(driver, step), arguments[1:])
        if kind.startswith("other ") and kind != "other joins":
            return self.other is not None and bool(getattr(self.other, f"do_{kind.removeprefix('other ')}")(*arguments))
        return bool(getattr(self, step)(*arguments))

    def _harmless(self, kind: str, arguments: list[Any]) -> bool:
        """Return the actions that never stop: unassigned partitions are assigned, and crashed members' sessions expire."""
        if kind == "move":
            return self.group.target[arguments[0]] is None
        return kind == "throw out" and arguments[0] not in self._alive()

    def _guarded(self, driver: Driver, step: Callable[..., bool], arguments: list[Any]) -> bool:
        writes = self.writes
        try:
            return step(*arguments) or self.writes != writes
        except (GenerationChanged, MemberUnknown):
            return False
        except CommitOutcomeUnknown:
            return self._unanswered(driver, step)
        except CheckpointBehindGroup as behind:
            if not driver.checkpoint.torn:
                raise Violation("a healthy checkpoint is called behind", str(behind)) from behind
            self.refused.append(driver.name)
            if driver.checkpoint.put_aside is not None:
                driver.checkpoint.put_back()
            return driver.do_crash()
        except CommitRecordUnreadable as unreadable:
            if driver.newer or not self.newer:
                raise Violation("a record is called too new", str(unreadable)) from unreadable
            self.refused.append(driver.name)
            return driver.do_crash()

    def _unanswered(self, driver: Driver, step: Callable[..., bool]) -> bool:
        """Let the query rejoin as a new member. If that takes too long, or the query is being stopped, it ends.

        Before it ends, it closes what is durable, unless that gets no response either.
        """
        if step.__name__ == "do_stop":
            return driver.do_crash()
        if driver.rejoins:
            driver.rejoins -= 1
            return driver.leaves(answered=not self.late)
        return driver.do_crash() if self.late else driver.do_stop()

    def do_start(self, letter: str) -> bool:
        """Start a driver for a stream that has none."""
        return not self._running(letter) and self._start(letter)

    def do_second(self, letter: str) -> bool:
        """Start a second driver on a checkpoint that another one is using."""
        if self._running(letter) != 1:
            return False
        self.streams[letter].torn = True
        return self._start(letter)

    def _start(self, letter: str) -> bool:
        self.streams[letter].drivers += 1
        driver = self.driver_type(self, letter)
        if driver.checkpoint.newer:
            self.newer.add(driver.name)
        self.drivers[driver.name] = driver
        return self._guarded(driver, driver.do_begin, [])

    def do_restore(self, letter: str) -> bool:
        """Replace a stopped query's checkpoint with an older copy, without its newest plan.

        Not if no record in the group has that plan, because then the restore cannot be detected.
        """
        checkpoint = self.streams[letter]
        if self._running(letter) or not self.known_to_the_group(checkpoint):
            return False
        checkpoint.restore()
        return True

    def known_to_the_group(self, checkpoint: Checkpoint) -> bool:
        """Return whether the checkpoint's newest plan was ever in one of the group's records."""
        newest = checkpoint.logged
        return checkpoint.put_aside is None and 0 <= newest <= self.written.get(checkpoint.named, -1)

    def do_lose_commit(self, letter: str) -> bool:
        """Replace a stopped query's checkpoint with an older copy, whose newest plan is logged but not committed.

        Not if no record of the plan's partitions shows that it is done, because then the restore cannot be detected.
        """
        checkpoint = self.streams[letter]
        if self._running(letter) or not self.shown_as_done(checkpoint):
            return False
        checkpoint.lose_commit()
        return True

    def shown_as_done(self, checkpoint: Checkpoint) -> bool:
        """Return whether the newest plan is in the commit log, and a record of one of its partitions shows that."""
        newest = checkpoint.newest()
        if checkpoint.put_aside is not None or not 0 <= newest.plan == checkpoint.committed:
            return False
        for where, ranges in newest.by_partition.items():
            commit = self.group.read(where.partition)
            if isinstance(commit, CommitRecord) and any(offsets.size for offsets in ranges):
                past = {earlier.stream: earlier.done for earlier in commit.past or ()}
                if {**past, commit.stream: commit.done}.get(newest.stream, -1) >= newest.plan:
                    return True
        return False

    def do_delete(self, letter: str) -> bool:
        """Delete a stopped query's checkpoint."""
        if self._running(letter):
            return False
        self.account.graceful = False
        self.streams[letter].delete()
        return True

    def do_upgrade(self, letter: str) -> bool:
        """Upgrade the job to the next version of this package at its next start."""
        checkpoint = self.streams[letter]
        was, checkpoint.newer = checkpoint.newer, True
        return not was

    def do_throw_out(self, member: str) -> bool:
        """Remove a member whose session has expired."""
        if member not in self.group.epochs:
            return False
        self.account.graceful = False
        self.group.remove(member)
        return True

    def do_move(self, number: int, member: str) -> bool:
        """Make the group decide that the member must get the partition."""
        if member not in self.group.epochs or self.group.target[number] == member:
            return False
        self.group.target[number] = member
        self.group.move_on(None)
        return True

    def do_append(self, number: int) -> bool:
        """Write a record, as a producer does."""
        if self.ends[number] >= self.setting.records:
            return False
        self.ends[number] += 1
        self.logs[number].append(self.epochs[number])
        self.account.append(number)
        return True

    def do_elect(self, number: int, to: int) -> bool:
        """Give a partition a new leader, which has the records below `to`. The log is truncated there if it had more."""
        if to > self.ends[number]:
            return False
        self.epochs[number] += 1
        if to < self.ends[number]:
            self.ends[number] = to
            del self.logs[number][to:]
            self.account.cut(number, to)
            for checkpoint in self.streams.values():
                checkpoint.cut(partition(number), to)
        return True

    def epoch_end(self, number: int, epoch: int) -> int:
        """Return where the records of this leader epoch and of earlier ones end, according to the partition's leader."""
        return next((offset for offset, of in enumerate(self.logs[number]) if of > epoch), self.ends[number])

    def _is_of_this_log(self, number: int, record: CommitRecord) -> bool:
        """Return whether the record's position belongs to the current log."""
        return record.epoch is None or self.epoch_end(number, record.epoch) >= record.next

    def do_recreate(self, forgets: int) -> bool:
        """Recreate the topic. The group's coordinator has forgotten its commits, or not yet."""
        self.recreated += 1
        self.ends = [0] * self.setting.partitions
        self.logs = [[] for _ in self.logs]
        if forgets:
            self.group.registers = [None] * self.setting.partitions
        self.account.recreate()
        return True

    def do_arrive(self, index: int) -> bool:
        """Let a commit that its sender has given up on reach the coordinator after all."""
        if index >= len(self.late):
            return False
        member, epoch, records = self.late.pop(index)
        with suppress(GenerationChanged, MemberUnknown):
            refused = self.group.fence(member, epoch, [where.partition for where in records])
            self.write({where: record for where, record in records.items() if where.partition not in refused}, member)
        return True

    def do_expire(self) -> bool:
        """Let the offsets expire after a week without a driver. Not while another stream must be restarted, as documented."""
        restart_is_owed = any(checkpoint.committed < checkpoint.logged for checkpoint in self.streams.values())
        alone = self.setting.streams == 1
        read_all = all(checkpoint.read_all() for checkpoint in self.streams.values())
        if self.group.epochs or self.drivers or not read_all or (restart_is_owed and not alone):
            return False
        self.account.moved |= not (alone and self.setting.partitions == 1 and self._remembered())
        self.group.registers = [None] * self.setting.partitions
        return True

    def _remembered(self) -> bool:
        """Return whether the only stream's last plan has what the group is about to forget about the only partition."""
        last = self.streams["A"].newest().by_partition.get(partition(0))
        commit = self.group.read(0)
        return commit is None or (last is not None and isinstance(commit, CommitRecord) and commit.next in last[-1])

    def do_reset(self, number: int, to: int) -> bool:
        """Move a stopped group's committed offset, as a tool does. Not while claims are open, as documented."""
        held = self.group.read(number)
        if self.group.epochs or self.other or (isinstance(held, CommitRecord) and held.unconfirmed):
            return False
        self.group.registers[number] = (to, "", None)
        self.account.committed_elsewhere(number, to, skipped=True)
        self.account.moved = True
        return True

    def do_other_joins(self) -> bool:
        """Let a plain consumer join the group."""
        if self.other is not None:
            return False
        self.other = OtherClient(self)
        return True

    # What the coordinator and the tasks do for a driver.

    def write(self, records: Mapping[TopicPartition, CommitRecord], who: str) -> None:
        """Take a commit as the coordinator. `who`: the driver that sent it, or one of its members."""
        self.writes += 1
        for where, record in records.items():
            before = self.group.read(where.partition)
            may_reread = self.setting.held_claims.reread_after_s is not None
            current = record.topic_id == self.topic_id and self._is_of_this_log(where.partition, record)
            if current:
                self.account.check_claim(where, record, before, self._shown_to(who) if may_reread else None)
            if self.setting.room and len(record.metadata()) > metadata_bytes(self.setting.room):
                raise Violation("no room", f"{where}: {len(record.metadata())} bytes: {record.metadata()}")
            if may_reread:
                self.account.note_adoption(where.partition, record, *self._writers_and_owners())
            self.written[record.stream] = max(record.logged, self.written.get(record.stream, -1))
            self.group.registers[where.partition] = register_of(record, newer=who.partition("#")[0] in self.newer)
            if self.group.read(where.partition) != record:
                raise Violation("unreadable record", f"{where}: {record.metadata()}")
            if current:  # a record written before its member noticed the new topic, or log, tells nothing about its records
                self.account.check_record(where, record, self.streams)

    def _writers_and_owners(self) -> tuple[list[str], list[str]]:
        """Return the stream that wrote each partition's record, and the letter of the partition's owner. Empty: none."""
        commits = [self.group.read(number) for number in range(self.setting.partitions)]
        written = [commit.stream if isinstance(commit, CommitRecord) else "" for commit in commits]
        return written, [(owner or "")[:1] for owner in self.group.owner]

    def _shown_to(self, who: str) -> list[str]:
        """Return the stream that wrote each partition's record, if its member is in the group now, and was when `who` looked."""
        driver = self.drivers.get(who.partition("#")[0])
        now = self.written_by_members()
        return [stream if driver is None or stream == driver.knew[number] else "" for number, stream in enumerate(now)]

    def written_by_members(self) -> list[str]:
        """Return the stream that wrote each partition's record, if the member that wrote it is still in the group."""
        marks = {mark_of(member) for member in self.group.epochs}
        commits = [self.group.read(number) for number in range(self.setting.partitions)]
        return [commit.stream if isinstance(commit, CommitRecord) and commit.member in marks else "" for commit in commits]

    def unanswered(self, driver: Driver, records: Mapping[TopicPartition, CommitRecord], *, late: bool) -> None:
        """Leave a commit unanswered. A late one has not reached the coordinator yet."""
        self.account.graceful = False
        if late:
            self.late.append((driver.member or "", driver.epoch, dict(records)))
        raise CommitOutcomeUnknown(f"{driver.name} got no answer for {sorted(records)}")

    def read(self, granted: Ranges) -> Ranges:
        """Return what a plan's tasks write to the sink."""
        return granted

    # The end of a history.

    def heal(self) -> None:
        """Let nothing more go wrong, and keep one driver for each stream and no other client.

        If two drivers used one checkpoint, both are stopped, because the one that is behind may own no record that shows this. An
        upgrade ends with every stream on the next version, because this version cannot read what the next one has confirmed.
        """
        if self.other is not None:
            self.other.do_leaves()
            self.other = None
        for driver in list(self.drivers.values()):
            driver.answer, driver.before = "", None
            if driver.checkpoint.torn or self.setting.upgrades:
                driver.do_crash()
        for checkpoint in self.streams.values():
            checkpoint.newer |= self.setting.upgrades
            if checkpoint.put_aside is not None:
                checkpoint.put_back()
        self.late.clear()
        for number, end in enumerate(self.ends):
            self.account.append(number, self.setting.records - end)
            self.logs[number] += [self.epochs[number]] * (self.setting.records - end)
        self.ends = [self.setting.records] * self.setting.partitions
        self.faults_over = True

    def check_end(self) -> None:
        """Check what must hold once everything has been restarted and has nothing left to do."""
        for driver in self.drivers.values():
            if driver.stage not in {"durable", "plan", "propose", "confirm", "rest"}:
                raise Violation("stuck", f"{driver.name} waits to {driver.stage} plan {driver.plan.plan} for ever")
        owners = {driver.plan.stream for driver in self.drivers.values() if driver.member in self.group.owner}
        commits = {where: self.group.read(where.partition) for where in self.partitions()}
        rereading = self.setting.held_claims.reread_after_s is not None
        self.account.check_end(commits, owners, rereading=rereading, limited=bool(self.setting.room))

    def key(self) -> tuple[object, ...]:
        """A key that is equal for worlds that behave alike."""
        return (
            *(tuple(self.group.registers), tuple(self.group.owner), tuple(self.group.target), frozenset(self.group.epochs)),
            *(tuple(self.epochs), tuple(map(tuple, self.logs))),
            *(tuple(self.ends), self.account.key(), repr(self.late), self.recreated, frozenset(self.written.items())),
            tuple(
                self.group.has_had(member, where.partition, epoch) for member, epoch, records in self.late for where in records
            ),
            tuple(checkpoint.key() for checkpoint in self.streams.values()),
            tuple(driver.key() for driver in self.drivers.values()),
        )
