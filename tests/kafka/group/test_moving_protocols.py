"""Moving a group to the protocol of KIP-848 and back, by the steps of docs/operations.md: each record is read once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from spark_groupsource.cli.main import main
from spark_groupsource.errors import MembershipError
from spark_groupsource.kafka_settings.tables import CLASSIC_ONLY
from tests.conftest import MakeTopic, Produce
from tests.kafka.conftest import SHORT_TIMES, Claimed, MakeQuery, Query, offsets_of, running
from tests.support.waiting import until

PARTITIONS = 4
EACH = 20
RANGE = {"kafka.partition.assignment.strategy": "range"}
CONSUMER = {"kafka.group.protocol": "consumer"}


class Live:
    """A query that runs one micro-batch after the other in the background, as Spark would."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._runs: list[list[Claimed]] = []
        self._running = ExitStack()
        self._run()

    @property
    def batches(self) -> list[Claimed]:
        """What it has read, in all its runs."""
        return [batch for run in self._runs for batch in run]

    @property
    def owned(self) -> int:
        """The number of its partitions."""
        return len(self._query.positions)

    def stop(self) -> None:
        self._running.close()
        self._query.cycle.stop()

    def start(self, more: Mapping[str, str]) -> None:
        """Start it again on its checkpoint, with these settings of its member and no others."""
        times = {} if more == CONSUMER else SHORT_TIMES
        others = {name: value for name, value in self._query.given.items() if name.removeprefix("kafka.") not in CLASSIC_ONLY}
        self._query.restart({**others, "kafka.group.protocol": "classic", **times, **more})
        self._run()

    def _run(self) -> None:
        self._runs.append(self._running.enter_context(running(self._query)))


class Group:
    """Two live queries of one group, and a topic that grows."""

    def __init__(self, name: str, query: MakeQuery, produce: Produce, more: Mapping[str, str]) -> None:
        self.name = name
        self._produce = produce
        self._written = 0
        self.members = [Live(query(name, **more))]
        until(lambda: self.members[0].owned == PARTITIONS, "the first query has every partition")
        self.members.append(Live(query(name, **more)))
        self.until_shared()

    def until_shared(self) -> None:
        """Wait until each query has half of the partitions, and has read what is written now."""
        until(lambda: [each.owned for each in self.members] == [PARTITIONS // 2] * 2, "each query has half of the partitions")
        self.until_read()

    def until_read(self) -> None:
        """Write some more, and wait until everything is read."""
        for partition in range(PARTITIONS):
            self._produce(self.name, [(None, b"x")] * EACH, partition)
        self._written += EACH
        until(lambda: len(self._offsets()) >= PARTITIONS * self._written, "everything is read")
        assert sorted(self._offsets()) == [(number, offset) for number in range(PARTITIONS) for offset in range(self._written)]

    def stop(self) -> None:
        for each in self.members:
            each.stop()

    def _offsets(self) -> list[tuple[int, int]]:
        read = offsets_of([batch for each in self.members for batch in each.batches])
        return [(partition, offset) for partition, offsets in read.items() for offset in offsets]


@pytest.fixture
def group(topic: MakeTopic, query: MakeQuery, produce: Produce, request: pytest.FixtureRequest) -> Callable[..., Group]:
    def make(**more: str) -> Group:
        made = Group(topic(PARTITIONS), query, produce, more)
        request.addfinalizer(made.stop)
        return made

    return make


def refusal(query: Query) -> str:
    """Return the error with which a query ends that the group does not let in."""
    with pytest.raises(MembershipError) as ended:
        query.plan()
    return str(ended.value)


def check_of(query: Query, folder: Path) -> str:
    """Return what `groupkafka check` says of the query's options, which the group would refuse."""
    file = folder / "query.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in query.given.items()))
    checked = CliRunner().invoke(main, ["check", "--conf", str(file)])
    assert checked.exit_code == 1, checked.output
    return " ".join(checked.output.split())


def test_a_group_with_the_default_assignor_moves_while_no_member_runs_and_moves_back_one_by_one(
    group: Callable[..., Group], query: MakeQuery, tmp_path: Path
) -> None:
    moving = group()
    newcomer = query(moving.name, **CONSUMER)
    steps = "Stop all members of the group, then start them with kafka.group.protocol=consumer"
    error = refusal(newcomer)
    assert "GROUP_ID_NOT_FOUND" in error
    assert steps in error
    assert steps in check_of(newcomer, tmp_path)
    assert "INCONSISTENT_GROUP_PROTOCOL" in refusal(query(moving.name, **RANGE)), "nor can it move to range one by one"
    moving.until_read()
    for each in moving.members:
        each.stop()
    for each in moving.members:
        each.start(CONSUMER)
    moving.until_shared()
    for each in moving.members:
        each.stop()
        each.start({})
        moving.until_shared()


def test_a_group_with_range_moves_one_by_one_and_back_while_the_others_read(
    group: Callable[..., Group], query: MakeQuery, tmp_path: Path
) -> None:
    moving = group(**RANGE)
    for settings in (CONSUMER, RANGE):
        for each in moving.members:
            each.stop()
            moving.until_read()
            each.start(settings)
            moving.until_shared()
