"""A checkpoint that was put back from an older copy, while the group has gone on."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from devtools.broker import Cluster
from spark_groupsource.cli.main import main
from spark_groupsource.errors import CheckpointBehindGroup
from spark_groupsource.group.ledger import Ledger
from tests.conftest import MakeTopic, Produce
from tests.kafka.conftest import Claimed, MakeQuery, Query, RecordOf
from tests.support.waiting import until


def test_it_is_refused_although_other_streams_own_every_partition_since(
    topic: MakeTopic, produce: Produce, query: MakeQuery, record_of: RecordOf
) -> None:
    name = topic()
    a, b, c = query(name), query(name), query(name)
    for _ in range(3):
        produce(name, [(None, b"x")] * 10)
        older = a.done
        a.run_batch()
    a.session.step(Ledger.confirm)
    a.cycle.stop()
    produce(name, [(None, b"y")] * 10)
    b.run_batch()
    b.cycle.stop()
    c.until_planning(1)
    record = record_of(name, 0)
    assert record.past == ((a.done.stream, 2, 1), (b.done.stream, 0, -1))
    a.done = a.logged = older
    a.restart()
    with pytest.raises(CheckpointBehindGroup, match=rf"the group has plan 2 of stream {a.done.stream}.* checkpoint is 1"):
        a.plan()
    c.cycle.stop()
    produce(name, [(None, b"z")] * 10)
    with pytest.raises(CheckpointBehindGroup):
        a.plan()


class Output:
    """A sink that ignores a micro-batch that it has, by its number, and may be restored with the checkpoint."""

    def __init__(self) -> None:
        self.batches: dict[int, Claimed] = {}

    def take(self, one: Query) -> Claimed:
        """Run the query's newest plan, live or as a replay."""
        claimed = one.claim()
        self.batches.setdefault(one.logged.plan, claimed)
        one.finish()
        return claimed

    def rows(self) -> list[tuple[int, int]]:
        """The partition and the offset of each row."""
        return sorted(
            (partition, offset)
            for batch in self.batches.values()
            for partition, bounds in batch.items()
            for start, end in zip(bounds[::2], bounds[1::2], strict=True)
            for offset in range(start, end)
        )


class BetweenTheOffsetLogAndTheCommitLog:
    """A query over two partitions, whose checkpoint has its newest plan, and has lost its commit."""

    def __init__(self, name: str, produce: Produce, query: MakeQuery) -> None:
        self.name, self.output = name, Output()
        self.query = query(name)
        self._produce = produce
        for _ in range(2):
            self.append()
            older = self.query.done
            until(self.query.plan, "something to read")
            assert self.output.take(self.query)
        assert not self.query.plan(), "the claims are closed"
        self.query.cycle.stop()
        self.query.done = older

    def append(self) -> None:
        for partition in range(2):
            self._produce(self.name, [(None, b"x")] * 5, partition)

    def refused(self) -> str:
        """Start the query: it replays its newest plan."""
        self.query.restart()
        with pytest.raises(CheckpointBehindGroup) as raised:
            self.query.claim()
        self.query.restart()
        return str(raised.value)

    def all_rows(self, count: int) -> list[tuple[int, int]]:
        return [(partition, offset) for partition in range(2) for offset in range(count)]


@pytest.fixture
def restored(topic: MakeTopic, produce: Produce, query: MakeQuery) -> BetweenTheOffsetLogAndTheCommitLog:
    return BetweenTheOffsetLogAndTheCommitLog(topic(partitions=2), produce, query)


@pytest.mark.parametrize("output", ["lacks", "has"])
def test_one_that_lacks_only_the_newest_commit_is_refused_and_its_advice_brings_each_row_once(
    restored: BetweenTheOffsetLogAndTheCommitLog, output: str, cluster: Cluster
) -> None:
    query, name = restored.query, restored.name
    if output == "lacks":
        del restored.output.batches[1]  # it was restored with the checkpoint
    said = restored.refused()
    assert f"According to the group, a micro-batch of stream {query.done.stream} is finished." in said
    listed = re.findall(rf"^    {name}-(\d) \[(\d+), \d+\), and the group's position is (\d+)$", said, re.MULTILINE)
    assert listed == [("0", "5", "10"), ("1", "5", "10")]
    state = "has the" if output == "has" else "does not have this micro-batch's"
    (way,) = re.findall(rf"output {state} rows.*", said)
    (command,) = set(re.findall(r"`groupkafka (reset-offsets .*?)`", said))
    assert ("set each partition to the group's position" in way) == (output == "has")
    for partition, first, reads_on in listed:
        offset = first if output == "lacks" else reads_on
        given = command.replace("NAME:PARTITION", f"{name}:{partition}").replace("FIRST", offset)
        where = ["--bootstrap-server", cluster.bootstrap_servers, "--group", f"group-of-{name}"]
        done = CliRunner().invoke(main, [*given.split(), *where])
        assert done.exit_code == 0, done.output
    assert restored.output.take(query) == {}, "it runs the plan without a row"
    restored.append()
    until(query.plan, "something to read")
    restored.output.take(query)
    while query.plan():
        restored.output.take(query)
    assert restored.output.rows() == restored.all_rows(15)


def test_one_that_lacks_only_the_newest_commit_is_refused_although_another_query_goes_on(
    restored: BetweenTheOffsetLogAndTheCommitLog, query: MakeQuery, record_of: RecordOf
) -> None:
    other = query(restored.name)
    restored.append()
    until(other.plan, "something to read")
    assert other.claim() == {0: (10, 15), 1: (10, 15)}
    assert record_of(restored.name, 0).past == ((restored.query.done.stream, 1, 1),)
    assert "and the group's position is 15" in restored.refused()


def test_one_whose_newest_commit_was_put_back_goes_on(restored: BetweenTheOffsetLogAndTheCommitLog) -> None:
    restored.refused()
    restored.query.finish()
    restored.append()
    until(restored.query.plan, "something to read")
    restored.output.take(restored.query)
    assert restored.output.rows() == restored.all_rows(15)
