"""A driver's questions to the group about other partitions. A history decides when each answer comes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from spark_groupsource.group.evidence import Answer, ConfirmedPlans, GroupReader, Question, _by_former_members, find_out
from spark_groupsource.handoff.commit_record import CommitRecord, GroupCommit, OtherFormat, mark_of
from spark_groupsource.handoff.rules import evidence
from spark_groupsource.partition import TopicPartition
from tests.simulation.group import as_commit, as_commit_of_any_version
from tests.simulation.twins import twin_of
from tests.support.held_questions import HeldQuestions

if TYPE_CHECKING:
    from tests.simulation.driver import Driver


class FakeReader:
    """The group's registers and members, as one driver sees them. There are no other topics."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.showed: list[str] = []
        """The stream that wrote each partition's record at the last look, if its member was in the group then."""

    def subscribed(self) -> Mapping[TopicPartition, GroupCommit]:
        """Return the group's current commits."""
        world = self.driver.world
        read = as_commit_of_any_version if self.driver.newer else as_commit
        self.showed = world.written_by_members()
        return {where: read(world.group.registers[where.partition]) for where in world.partitions()}

    def others(self) -> Iterable[GroupCommit]:
        return ()

    def members(self) -> frozenset[str]:
        """Return the marks of the members."""
        return frozenset(map(mark_of, self.driver.world.group.epochs))

    def pause(self) -> None:
        """Do nothing, because there is nothing to give up."""


class HeldLooks(ConfirmedPlans):
    """Questions, each of which waits until a step of the history answers it."""

    def __init__(self, reader: GroupReader, *, clock: Callable[[], float]) -> None:
        super().__init__(reader, clock=clock)
        self._questions: HeldQuestions[Question, Answer] = HeldQuestions(partial(find_out, reader))

    def clone(self, reader: GroupReader) -> HeldLooks:
        twin = twin_of(self)
        if isinstance(reader, FakeReader) and isinstance(self._reader, FakeReader):
            reader.showed = self._reader.showed
        twin._reader, twin._questions = reader, self._questions.clone(partial(find_out, reader))
        return twin

    @property
    def waits(self) -> bool:
        """Whether a question is waiting for its answer."""
        return bool(self._questions.waiting)

    @property
    def answered(self) -> bool:
        """Whether an answer can be taken."""
        return self._questions.answered

    def answers(self) -> list[Answer | Exception]:
        """The answers that are still to be taken."""
        return [answer for _, answer in self._questions.answers]

    def answer(self) -> None:
        """The group answers."""
        self._questions.answer()

    def _note(self, answer: Answer) -> None:
        super()._note(answer)
        if isinstance(self._reader, FakeReader):
            driver = self._reader.driver
            driver.knows = self._reader.showed
            owned = driver.ledger._records.keys() | driver.ledger._adopting.partitions
            driver.takes_answer(self._alive(owned), self.protected(driver.ledger._records.values(), owned))

    def key(self, own: str, *, liveness_matters: bool) -> tuple[object, ...]:
        """Equal for drivers of the stream `own` that know and ask the same. Who is alive matters if ranges are taken over."""
        return (
            *(
                _what_matters(self._subscribed, own, liveness_matters),
                tuple(_known(answer, own, liveness_matters) for answer in self.answers()),
            ),
            *(self._asked_elsewhere, repr(self._asked), repr(self._unasked), self._outdated, self._answered),
            *(frozenset(self._left_since), self._abandoned),
        )


def _what_matters(here: Mapping[TopicPartition, GroupCommit], own: str, liveness_matters: bool) -> frozenset[object]:
    """Return what matters in the group's commits: which plans of other streams are done, and where they wrote records."""
    done = {(name, plan) for name, plan in evidence(here.values()).items() if name != own and plan >= 0}
    if not liveness_matters:
        return frozenset(done)
    others = {where: commit.stream for where, commit in here.items() if isinstance(commit, CommitRecord | OtherFormat)}
    return frozenset({*done, *((where, name) for where, name in others.items() if name != own)})


def _known(answer: Answer | Exception, own: str, liveness_matters: bool) -> object:
    if isinstance(answer, Exception):
        return repr(answer)
    by_others = None if answer.members is None else frozenset(_by_former_members(answer.subscribed, answer.members))
    return _what_matters(answer.subscribed, own, liveness_matters), answer.missing, by_others
