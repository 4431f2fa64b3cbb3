"""One driver's access to the group's registers, which may be late or lose its connection."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from spark_groupsource.errors import GenerationChanged
from spark_groupsource.group.fenced_commits import FencedCommits
from spark_groupsource.handoff.commit_record import CommitRecord, GroupCommit, mark_of
from spark_groupsource.partition import TopicPartition
from tests.simulation.group import as_commit, as_commit_of_any_version

if TYPE_CHECKING:
    from tests.simulation.driver import Driver
    from tests.simulation.world import World


class FakeCommits(FencedCommits):
    def __init__(self, world: World, driver: Driver) -> None:
        self.world = world
        self.driver = driver

    @property
    def member(self) -> str | None:
        """The mark of this driver's member."""
        return mark_of(self.driver.member) if self.driver.member else None

    def fetch(self, partitions: Iterable[TopicPartition], *, timeout_s: float = 0) -> dict[TopicPartition, GroupCommit]:  # noqa: ARG002
        """Return the group's commits. For other members' partitions, they may be slightly outdated."""
        before, self.driver.before = self.driver.before, None
        now, held = self.world.group.registers, self.driver.held
        earlier = before or now
        read = as_commit_of_any_version if self.driver.newer else as_commit
        return {asked: read((now if asked.partition in held else earlier)[asked.partition]) for asked in partitions}

    def parts(self, records: Mapping[TopicPartition, CommitRecord]) -> Iterator[Mapping[TopicPartition, CommitRecord]]:
        """Return all records in one commit, or in two commits of which the second is lost."""
        if records and self.driver.answer == "split":
            self.driver.answer = ""
            first, *others = sorted(records)
            if others:
                yield {first: records[first]}
            self.driver.answer = "lost"
            yield {where: records[where] for where in others or [first]}
        elif records:
            yield records

    def commit(self, records: Mapping[TopicPartition, CommitRecord]) -> None:
        """Write the records that are not fenced, or lose the request or its response."""
        how, self.driver.answer = self.driver.answer, ""
        refused = self.world.group.fence(self.driver.member, self.driver.epoch, [where.partition for where in records])
        accepted = {where: record for where, record in records.items() if where.partition not in refused}
        if accepted and how in {"", "applied"}:
            self.world.write(accepted, self.driver.name)
        if how:
            # The client sends it more than once, so a copy may still be on its way after the group has received it.
            self.world.unanswered(self.driver, records, late=how in {"late", "applied"})
        if refused:
            raise GenerationChanged(f"stale member epoch for partitions {sorted(refused)}")
