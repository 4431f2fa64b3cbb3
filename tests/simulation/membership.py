"""Simulates one driver's membership in the group: the member's callbacks, and the steps between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from spark_groupsource.group.closing import Report
from spark_groupsource.group.ledger import Ledger
from spark_groupsource.handoff.commit_record import CommitRecord, GroupCommit
from spark_groupsource.partition import TopicPartition
from tests.simulation.account import Violation
from tests.simulation.group import partition
from tests.simulation.looks import HeldLooks
from tests.support.held_survey import HeldSurvey

if TYPE_CHECKING:
    from tests.simulation.world import World


class Reports(NamedTuple):
    """The reports that have reached one driver's ledger. A new report replaces the previous one."""

    claimed: Report | None = None
    """The newest plan, from the time that all its claims are made until Spark itself says that it is durable."""
    newest: Report | None = None
    """The newest report since the last claims were made."""
    waits: bool = False
    """Whether one has come since the consumer's thread last looked."""

    @property
    def believed(self) -> Report | None:
        """The plan whose claims the consumer's thread must close when it looks."""
        return self.claimed if self.claimed == self.newest else None


class Membership:
    """A membership. Each `do_...` method is one step, and returns true if the step had an effect that others may wait for."""

    letter: str
    ledger: Ledger
    survey: HeldSurvey
    answer: str
    dead: dict[tuple[TopicPartition, str, int], float]

    @property
    def looks(self) -> HeldLooks:
        """The questions to the group about other partitions."""
        looks = self.ledger._confirmed_plans
        assert isinstance(looks, HeldLooks)
        return looks

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.member: str | None = None
        self.epoch = -1
        self.untold: set[int] = set()
        """Given by the coordinator; `on_assign` has not run yet."""
        self.held: set[int] = set()
        self.draining: set[int] = set()
        self.deaf = False
        """Whether an answer was lost: it learns nothing of assignments any more."""
        self.leaving = False
        """Whether it drains because it is about to join again."""
        self.reports = Reports()

    @property
    def known(self) -> bool:
        """Whether the coordinator has it as a member."""
        return self.member in self.world.group.epochs

    def do_join(self) -> bool:
        if self.member is not None:
            return False
        self.member = self.world.group.join(self.name)
        self.epoch = self.world.group.epochs[self.member]
        return True

    def do_sync(self) -> bool:
        """Learn the new generation or epoch."""
        if not self.known or self.epoch == self.world.group.epochs[self.member or ""]:
            return False
        self.epoch = self.world.group.epochs[self.member or ""]
        return True

    def do_lost(self) -> bool:
        """Run on_lost, because the member was removed."""
        if self.member is None or self.known:
            return False
        self.ledger.lost(named(self.held))
        self._forget_membership()
        return True

    def _forget_membership(self) -> None:
        self.member = None
        self.held, self.untold, self.draining = set(), set(), set()
        self.deaf = self.leaving = False

    def do_lose_answer(self) -> bool:
        """Lose the response with the partitions that the member must give back or may take."""
        if self.deaf or not self.known or not (self.untold or self.world.group.to_revoke(self.member)):
            return False
        self.deaf, self.untold = True, set()
        return True

    def do_rejoin(self) -> bool:
        """Drain, leave and rejoin, because the member has disagreed with its coordinator for too long."""
        if not self.deaf or self.draining or self.leaving or not self.known:
            return False
        self.leaving, self.draining = True, set(self.held)
        with self.looking_at_reports(self.held, owed_too=False):
            self.ledger.draining(named(self.draining))
        if not self.draining:
            self._leave_for_a_moment()
        return True

    def _leave_for_a_moment(self) -> None:
        if self.known:
            self.world.group.remove(self.member or "")
        self._forget_membership()

    def do_assign(self) -> bool:
        """Assign the free partitions. The member does not know yet."""
        given = self.world.group.assign(self.member) if self.member and self.known else []
        self.untold |= set() if self.deaf else set(given)
        self.world.account.note_owner(self.letter, given)
        return bool(given)

    def do_on_assign(self) -> bool:
        """Run on_assign. With the classic protocol, it sees the new generation; with KIP-848, the old epoch."""
        if not self.untold or self.draining or self.deaf:
            return False
        given, self.untold = self.untold, set()
        self.held |= given
        self.dead = {plan: since for plan, since in self.dead.items() if plan[0] not in named(given)}
        if self.world.group.protocol == "classic":
            self.do_sync()
        with self.looking_at_reports(self.held):
            self.ledger.acquired(named(given))
        return True

    def do_answer(self, number: int) -> bool:
        """Answer one of the questions about partitions to adopt, even if it is no longer wanted."""
        return self.survey.answer(number)

    def do_look(self) -> bool:
        """Answer with what the group's other records show."""
        self.looks.answer()
        return False

    def do_idle(self) -> bool:
        """Between polls, or while on_revoke waits: close and settle what is confirmed, and adopt what the brokers have answered
        for."""
        with self.looking_at_reports(self.held):
            self.ledger.idle()
        return False

    do_close = do_idle
    """The same, because a report has come."""

    def do_revoke(self) -> bool:
        """Begin on_revoke."""
        going = set(self.world.group.to_revoke(self.member)) - self.untold
        if self.draining or self.deaf or not going:
            return False
        self.draining = going
        with self.looking_at_reports(going, owed_too=False):
            self.ledger.draining(named(going))
        return True

    def do_release(self) -> bool:
        """End on_revoke, because nothing is in flight."""
        return not self.ledger.in_flight(named(self.draining)) and self.do_let_go()

    def do_let_go(self) -> bool:
        """End on_revoke after the drain timeout, even if something is in flight."""
        if not self.draining:
            return False
        going, self.draining = self.draining, set()
        self.world.account.graceful &= not self.ledger.in_flight(named(going))
        with self.looking_at_reports(going, owed_too=False):
            self.ledger.released(named(going))
        self.held -= going
        if self.member is not None:
            self.world.group.release(self.member, sorted(going))
        if self.leaving:
            self._leave_for_a_moment()
        return True

    # Reports that a plan is durable.

    @contextmanager
    def looking_at_reports(self, numbers: Iterable[int], *, owed_too: bool = True) -> Iterator[None]:
        """Let the consumer's thread close what is reported in these partitions, if it has adopted them.

        A member that the group rejects cannot, and neither can one whose connection breaks.
        """
        answer = self.answer
        current = self.known and self.epoch == self.world.group.epochs[self.member or ""]
        durable = self.reports.believed if current else None
        adopted = [where for where in named(numbers) if where in self.ledger._records]
        self.reports = self.reports._replace(waits=False)
        yield
        if durable is not None and self.answer == answer:
            check_closed(durable, {where: self.world.group.read(where.partition) for where in adopted}, owed_too=owed_too)


def named(numbers: Iterable[int]) -> frozenset[TopicPartition]:
    """Return the topic's partitions with these numbers."""
    return frozenset(partition(number) for number in numbers)


def check_closed(durable: Report, commits: Mapping[TopicPartition, GroupCommit], *, owed_too: bool = True) -> None:
    """Check the adopted records after a report was believed and nothing failed: none of them may still hold the plan's ranges.
    With `owed_too`, none may owe such a range to the driver's own stream either."""
    stream, plan = durable
    for where, record in commits.items():
        if not isinstance(record, CommitRecord) or record.stream != stream:
            continue
        own = [entry for entry in record.owed if entry.stream == stream and entry.plan <= plan]
        if (record.open and record.logged <= plan) or (owed_too and own):
            raise Violation("not closed", f"{where}: plan {plan} was reported as durable: {record.metadata()}")
