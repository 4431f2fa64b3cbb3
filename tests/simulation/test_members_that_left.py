"""A stream that never comes back, beside an idle plain consumer that has its other partition: what is owed to it is reread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from unittest.mock import patch

from spark_groupsource.handoff.commit_record import CommitRecord
from tests.simulation.faults import REREADING
from tests.simulation.history import quiet
from tests.simulation.world import Action, World

SETTING = replace(REREADING, streams=2, partitions=2, records=2, other_client=True)
ROUNDS = 200


def take(world: World, wanted: Callable[[Action], bool], until: Callable[[], bool]) -> None:
    """Take the steps that are due and wanted, until something has happened or for many rounds."""
    for _ in range(ROUNDS):
        for action in world.actions()[0]:
            if until():
                return
            if wanted(action):
                world.apply(action)


def beside_an_idle_consumer() -> CommitRecord:
    """A claims a plan of both partitions and dies. B gets partition 0, and an idle consumer partition 1. Return B's record."""
    world = World(SETTING)
    for partition in range(SETTING.partitions):
        for _ in range(SETTING.records):
            world.apply(("append", partition))
    take(world, lambda action: action != ("start", "B"), lambda: any(one.stage == "sink" for one in world.drivers.values()))
    claimed = [world.group.read(number) for number in range(SETTING.partitions)]
    assert all(isinstance(record, CommitRecord) and record.open for record in claimed)
    world.apply(("crash", "A.1"))
    world.apply(("throw out", "A.1#1"))

    # The consumer reads nothing and commits nothing, so partition 1 keeps the record of a member that has left.
    world.apply(("other joins",))
    assert world.other is not None
    idle = world.other.member
    world.apply(("move", 1, idle))
    world.apply(("start", "B"))

    def wanted(action: Action) -> bool:
        if action[0] == "move":
            return bool(action[1] == 0 and action[2] != idle)
        return action != ("start", "A") and action[0] not in {"other reads", "other commits"}

    take(world, wanted, lambda: False)
    held = [world.group.read(number) for number in range(SETTING.partitions)]
    assert held[1] == claimed[1]
    assert isinstance(held[0], CommitRecord)
    return held[0]


def test_what_is_owed_to_a_dead_stream_is_reread_beside_an_idle_consumer_with_its_other_partition() -> None:
    with quiet():
        record = beside_an_idle_consumer()
    assert (record.stream[0], record.next, record.owed) == ("B", SETTING.records, ())


def test_it_stays_owed_if_the_mark_of_a_member_that_left_counts_as_alive() -> None:
    with quiet(), patch("spark_groupsource.group.evidence._by_others", lambda *_: []):
        record = beside_an_idle_consumer()
    assert [entry.stream[0] for entry in record.owed] == ["A"]
