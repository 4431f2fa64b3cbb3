"""A group of which nothing is to be found out: for ledgers in whose tests no range is held for another stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spark_groupsource.handoff.commit_record import GroupCommit
from spark_groupsource.partition import TopicPartition


class NothingHeld:
    """An `evidence.GroupReader` that must not be called."""

    def subscribed(self) -> Mapping[TopicPartition, GroupCommit]:
        raise AssertionError("a range is held")

    def others(self) -> Iterable[GroupCommit]:
        raise AssertionError("a range is held")

    def members(self) -> frozenset[str]:
        raise AssertionError("a range is held")

    def pause(self) -> None:
        pass
